use super::*;

const MS: u64 = 1_000_000;

#[test]
fn enabled_time_without_work_is_not_exported() {
    let mut time = GpuTime::new(100 * MS, 0);
    time.add_busy(20 * MS);
    assert_eq!(time.count(100 * MS, 100 * MS, 0, true), 20 * MS);
    assert_eq!(time.share(100 * MS), Share::from_fraction(0.2).unwrap());
}

#[test]
fn report_never_raises_what_was_charged() {
    let mut time = GpuTime::new(100 * MS, 0);
    time.add_busy(90 * MS);
    assert_eq!(time.count(100 * MS, 50 * MS, 0, true), 50 * MS);
    assert_eq!(time.count(200 * MS, 60 * MS, 0, true), 0, "the first report is used up");
}

#[test]
fn running_grant_that_is_charged_less_at_its_end_is_counted_once() {
    let mut time = GpuTime::new(100 * MS, 0);
    time.add_busy(10 * MS);
    assert_eq!(time.count(10 * MS, 0, 10 * MS, false), 10 * MS);
    time.was_charged();
    assert_eq!(time.count(20 * MS, 5 * MS, 0, false), 0);
    assert_eq!(time.count(30 * MS, 12 * MS, 0, false), 2 * MS);
    assert_eq!(time.total_ns, 12 * MS);
}

#[test]
fn running_grant_counts_as_far_as_its_processes_report_work() {
    let mut time = GpuTime::new(100 * MS, 0);
    time.add_busy(4 * MS);
    assert_eq!(time.count(10 * MS, 0, 10 * MS, false), 4 * MS);
}
