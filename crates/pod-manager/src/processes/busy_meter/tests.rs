use super::*;

const MS: u64 = 1_000_000;

#[test]
fn running_burst_counts_before_it_is_reported_and_once() {
    let mut meter = BusyMeter::new(0, 0);
    assert_eq!(meter.read(0, Some(10 * MS), 30 * MS), (0, 20 * MS));
    assert_eq!(meter.read(40 * MS, None, 50 * MS), (30 * MS, 20 * MS));
}

#[test]
fn use_after_a_pause_counts_from_the_last_reading() {
    let mut meter = BusyMeter::new(0, 0);
    assert_eq!(meter.read(0, None, 90 * MS).1, 0);
    assert_eq!(meter.read(0, Some(95 * MS), 100 * MS), (90 * MS, 5 * MS));
    assert_eq!(meter.read(9 * MS, None, 105 * MS), (100 * MS, 4 * MS));
}

#[test]
fn burst_that_is_reported_late_counts_before_the_last_reading() {
    let mut meter = BusyMeter::new(0, 0);
    assert_eq!(meter.read(0, None, 100 * MS).1, 0);
    assert_eq!(meter.read(12 * MS, None, 105 * MS), (93 * MS, 12 * MS));
}

#[test]
fn burst_that_is_reported_just_after_a_reading_is_not_lost() {
    let mut meter = BusyMeter::new(0, 0);
    assert_eq!(meter.read(0, Some(10 * MS), 14 * MS).1, 4 * MS);
    // The burst ended at 16 ms. Its report arrives when the next burst runs.
    assert_eq!(meter.read(0, Some(18 * MS), 19 * MS).1, 0);
    assert_eq!(meter.read(6 * MS, Some(18 * MS), 20 * MS), (18 * MS, 2 * MS));
    assert_eq!(meter.read(8 * MS, None, 20 * MS), (18 * MS, 2 * MS));
}

#[test]
fn burst_that_runs_counts_from_its_begin_although_the_one_before_was_reported_since_the_last_reading() {
    let mut meter = BusyMeter::new(0, 0);
    assert_eq!(meter.read(0, Some(10 * MS), 20 * MS).1, 10 * MS);
    assert_eq!(meter.read(15 * MS, Some(26 * MS), 30 * MS).1, 9 * MS);
    assert_eq!(meter.read(23 * MS, None, 40 * MS).1, 4 * MS);
}

#[test]
fn reports_of_more_than_the_elapsed_time_count_as_the_elapsed_time() {
    let mut meter = BusyMeter::new(0, 0);
    assert_eq!(meter.read(3 * MS, None, 100 * MS).1, 3 * MS);
    assert_eq!(meter.read(u64::MAX / 2, None, 200 * MS).1, 197 * MS);
    assert_eq!(meter.read(u64::MAX / 2, None, 300 * MS).1, 0);
}

#[test]
fn burst_that_used_less_than_estimated_is_made_up_for_by_the_next() {
    let mut meter = BusyMeter::new(0, 0);
    assert_eq!(meter.read(0, Some(0), 30 * MS).1, 30 * MS);
    assert_eq!(meter.read(10 * MS, None, 40 * MS).1, 0);
    assert_eq!(meter.read(35 * MS, None, 80 * MS).1, 5 * MS);
}

#[test]
fn counter_that_jumps_counts_at_most_the_elapsed_time() {
    let mut meter = BusyMeter::new(0, 0);
    assert_eq!(meter.read(u64::MAX, Some(u64::MAX), 5 * MS).1, 5 * MS);
}

#[test]
fn counter_that_begins_anew_is_counted_from_there() {
    let mut meter = BusyMeter::new(0, 0);
    assert_eq!(meter.read(50 * MS, None, 100 * MS).1, 50 * MS);
    assert_eq!(meter.read(0, None, 110 * MS).1, 0);
    assert_eq!(meter.read(5 * MS, None, 120 * MS).1, 5 * MS);
}

#[test]
fn work_that_begins_in_the_future_counts_since_the_last_reading() {
    let mut meter = BusyMeter::new(0, 0);
    assert_eq!(meter.read(0, Some(u64::MAX), 5 * MS).1, 5 * MS);
    assert_eq!(meter.read(0, Some(u64::MAX), 9 * MS).1, 4 * MS);
}
