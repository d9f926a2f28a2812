use super::*;

const BEGAN: u64 = 1_000;
const LIMITS: HoldParams = HoldParams {
    ticket: 5,
    activity: 8,
    timeout_ns: 2_000_000,
    linger_ns: 300_000,
    still_ns: 50_000_000,
    longest_ns: 1_000_000_000,
};

fn begun(params: HoldParams) -> (Hold, u64) {
    let mut hold = Hold::new(4_096, params, [0; 3]);
    let deadline = hold.begin(BEGAN);
    (hold, deadline)
}

fn word(ticket: u32, activity: u32) -> u64 {
    u64::from(ticket) | u64::from(activity) << 32
}

#[test]
fn hold_kernel_without_a_change_ends_after_its_timeout() {
    let (mut hold, deadline) = begun(LIMITS);
    assert_eq!(deadline, BEGAN + 2_000_000);
    assert_eq!(hold.read(word(4, 8), BEGAN), Step::Unchanged);
    assert_eq!(hold.idle_until(deadline), deadline);
}

#[test]
fn ticket_that_has_been_reached_releases_it() {
    let (mut hold, _) = begun(LIMITS);
    assert_eq!(hold.read(word(6, 8), BEGAN + 9), Step::Released { is_first: false });
    let (mut hold, _) = begun(HoldParams { ticket: u32::MAX, ..LIMITS });
    assert_eq!(hold.read(word(3, 9), BEGAN + 9), Step::Released { is_first: true }, "tickets wrap around");
}

#[test]
fn change_of_the_activity_sets_the_time_until_its_end() {
    let (mut hold, _) = begun(LIMITS);
    let until = |deadline, is_first| Step::Until { deadline, is_first };
    assert_eq!(hold.read(word(4, 12 | KEEPS | WORKING), 100_000), until(50_100_000, true));
    assert_eq!(hold.read(word(4, 12 | KEEPS | WORKING), 200_000), Step::Unchanged);
    assert_eq!(hold.read(word(4, 16), 1_100_000), until(1_400_000, false));
    assert_eq!(hold.read(word(4, 20), 1_300_000), until(1_600_000, false), "a change restarts the time");
    assert_eq!(hold.read(word(4, 24 | KEEPS), 990_000_000), until(BEGAN + 1_000_000_000, false));
    // The lead, both gaps and the rest: all but the time of the work.
    assert_eq!(hold.idle_until(990_500_000), 990_500_000 - 1_000_000);
}

#[test]
fn linger_time_of_zero_ends_it_with_the_work() {
    let (mut hold, _) = begun(HoldParams { linger_ns: 0, ..LIMITS });
    hold.read(word(4, 12 | KEEPS | WORKING), 100_000);
    assert_eq!(hold.read(word(4, 16), 200_000), Step::Until { deadline: 200_001, is_first: false });
}
