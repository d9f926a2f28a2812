//! Time in which a client held the GPU and executed nothing while another client waited.

use super::*;

/// What the grants that ended count, nanoseconds.
fn counted(actions: &[Action]) -> Vec<(u64, u64)> {
    let end = |action: &Action| match action {
        Action::Ended { client, hold_and_wait_ns, .. } => Some((client.0, *hold_and_wait_ns)),
        _ => None,
    };
    actions.iter().filter_map(end).collect()
}

/// The first client holds a grant from 0 on. The second one waits from `since` on.
fn holder_and_waiter(since: u64) -> TokenLedger {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    ask(&mut ledger, 1, since);
    ledger.advance(since);
    ledger
}

/// What the first client's grant counts if it is returned at `now`, after `used_ns` of GPU time.
fn counted_by_return(mut ledger: TokenLedger, now: u64, used_ns: u64, overuse_ns: u64) -> u64 {
    ledger.returned(ProcessId(0), now, used_ns, overuse_ns).unwrap();
    let [(0, counted_ns)] = counted(&ledger.advance(now))[..] else { panic!("one grant has ended") };
    counted_ns
}

#[test]
fn idle_client_that_no_other_waits_for_counts_nothing() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    assert_eq!(counted_by_return(ledger, 50 * MS, 0, 0), 0);
}

#[test]
fn idle_time_counts_as_far_as_another_client_waited() {
    for (waits_since, expected) in [(0, 30), (20, 30), (35, 15), (50, 0)] {
        let ledger = holder_and_waiter(waits_since * MS);
        let counted_ns = counted_by_return(ledger, 50 * MS, 20 * MS, 0);
        assert_eq!(counted_ns, expected * MS, "another client waits from {waits_since} ms on");
    }
}

#[test]
fn client_that_executes_all_the_time_counts_nothing() {
    assert_eq!(counted_by_return(holder_and_waiter(0), 50 * MS, 50 * MS, 0), 0);
    // Its own kernel runs past the deadline.
    assert_eq!(counted_by_return(holder_and_waiter(0), 300 * MS, 300 * MS, 250 * MS), 0);
}

#[test]
fn grant_that_is_not_returned_counts_all_the_time_in_which_another_client_waited() {
    let overdue = 50 * MS + Policy::default().return_timeout_ns;
    assert_eq!(counted(&holder_and_waiter(0).advance(overdue)), [(0, overdue)]);
    assert_eq!(counted(&holder_and_waiter(30 * MS).advance(overdue)), [(0, overdue - 30 * MS)]);
}

#[test]
fn grant_of_a_process_that_ends_counts_nothing_because_its_use_is_unknown() {
    let mut ledger = holder_and_waiter(0);
    ledger.process_gone(ProcessId(0), 40 * MS);
    assert_eq!(counted(&ledger.advance(40 * MS)), [(0, 0)]);
}

#[test]
fn waiter_that_leaves_counts_up_to_then() {
    let mut ledger = holder_and_waiter(10 * MS);
    ledger.process_gone(ProcessId(1), 25 * MS);
    ledger.advance(25 * MS);
    assert_eq!(counted_by_return(ledger, 50 * MS, 0, 0), 15 * MS);
}

#[test]
fn client_that_waits_for_its_limit_counts_from_when_the_limit_allows_a_grant() {
    let mut ledger = ledger_of(Policy::default(), &[spec(0.3, 1.0), spec(0.1, 0.1)]);
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    ledger.returned(ProcessId(1), 50 * MS, 50 * MS, 0).unwrap();
    ask(&mut ledger, 1, 50 * MS);
    assert_eq!(granted(&ledger.advance(50 * MS)), [], "it has used its limit");
    let allowed_at = ledger.next_deadline().unwrap();
    assert!(allowed_at > 200 * MS, "{allowed_at}");
    ask(&mut ledger, 0, 50 * MS);
    assert_eq!(granted(&ledger.advance(50 * MS)).len(), 1);
    assert_eq!(counted_by_return(ledger, allowed_at + 20 * MS, 0, 0), 20 * MS);
}

/// As [`holder_and_waiter`], with hardware-scheduled processes: the first one is enabled and reports work, and the second one waits from 0 on.
fn enabled_and_waiter() -> TokenLedger {
    let mut ledger = pair();
    for process in 0..2 {
        ledger.set_kind(ProcessId(process), ReturnKind::HardwareScheduled, 0).unwrap();
        ask(&mut ledger, process, 0);
    }
    assert_eq!(granted(&ledger.advance(0)), [(0, Deadline::At(50 * MS))], "the older one");
    ledger.set_enabled(ClientId(0), true, 0);
    ledger
}

#[test]
fn enabled_client_counts_the_time_in_which_it_reports_no_work() {
    assert_eq!(counted_by_return(enabled_and_waiter(), 40 * MS, 0, 0), 0);
    let mut ledger = enabled_and_waiter();
    ledger.set_working(10 * MS, |_| false);
    ledger.set_working(12 * MS, |_| true);
    ledger.set_working(37 * MS, |_| false);
    assert_eq!(counted_by_return(ledger, 40 * MS, 0, 0), 5 * MS);
}

#[test]
fn quantum_that_is_charged_at_its_deadline_counts_each_idle_time_once() {
    let mut ledger = enabled_and_waiter();
    ledger.set_working(10 * MS, |_| false);
    ledger.set_working(12 * MS, |_| true);
    assert_eq!(counted(&ledger.advance(50 * MS)), [(0, 2 * MS)]);
    // The manager disables it, which takes a while.
    ledger.set_working(51 * MS, |_| false);
    assert_eq!(counted_by_return(ledger, 54 * MS, 0, 0), 3 * MS);
}
