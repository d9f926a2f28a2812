use super::*;

fn at(pid: i32, start_ns: u64, end_ns: u64) -> Interval {
    Interval { start_ns, end_ns, pid, busy_ns: end_ns - start_ns }
}

#[test]
fn a_gap_counts_at_the_begin_in_the_middle_and_at_the_end() {
    let timeline = [at(1, 10, 20), at(2, 20, 90), at(1, 90, 95)];
    assert_eq!(longest_gap(&timeline, &[1], 0, 100), 70);
    assert_eq!(longest_gap(&timeline, &[1, 2], 0, 100), 10);
    assert_eq!(longest_gap(&timeline, &[2], 0, 300), 210);
    assert_eq!(longest_gap(&[], &[1], 5, 9), 4);
}

#[test]
fn a_gap_counts_from_the_begin_of_the_window_to_its_end() {
    let timeline = [at(1, 30, 40), at(2, 40, 60), at(1, 60, 90)];
    assert_eq!(longest_gap(&timeline, &[1], 0, 100), 30);
    assert_eq!(longest_gap(&timeline, &[1], 25, 100), 20);
    assert_eq!(longest_gap(&timeline, &[1], 25, 200), 110);
    assert_eq!(longest_gap(&timeline, &[3], 0, 100), 100);
}

#[test]
fn a_pause_of_one_process_is_no_handoff() {
    let timeline = [at(1, 0, 10), at(1, 15, 20), at(2, 27, 30), at(1, 30, 31)];
    assert_eq!(handoffs(&timeline).collect::<Vec<_>>(), [7, 0]);
}

#[test]
fn a_process_that_had_the_gpu_already_does_not_start() {
    let timeline = [at(1, 10, 20), at(2, 30, 90)];
    assert_eq!(next_start(&timeline, 2, 15), Some(30));
    assert_eq!(next_start(&timeline, 2, 50), None);
    assert_eq!(next_start(&timeline, 1, 50), None);
}
