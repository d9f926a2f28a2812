//! Begin and end of grants, one at a time.

use super::super::{GrantEnd, Refused, Returned};
use super::*;

#[test]
fn next_client_is_granted_when_a_grant_is_returned_early() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    assert_eq!(granted(&ledger.advance(0)), [(0, Deadline::At(50 * MS))]);
    ask(&mut ledger, 1, MS);
    assert_eq!(granted(&ledger.advance(MS)), []);
    ledger.returned(ProcessId(0), 5 * MS, 5 * MS, 0).unwrap();
    assert_eq!(granted(&ledger.advance(5 * MS)), [(1, Deadline::At(55 * MS))]);
}

#[test]
fn grant_is_revoked_only_after_the_return_timeout() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    assert_eq!(ledger.next_deadline(), Some(50 * MS + 2 * S));
    assert_eq!(ledger.advance(50 * MS + 2 * S - 1), []);
    let actions = ledger.advance(50 * MS + 2 * S);
    let revoked = Action::Revoke { process: ProcessId(0), reason: GrantEnd::NotReturned };
    assert!(actions.contains(&revoked), "{actions:?}");
    assert_eq!(ended(&actions), [(0, 2 * S + 50 * MS, 2 * S + 50 * MS)]);
    assert_eq!(granted(&actions).len(), 1);
    // A late return changes nothing.
    assert_eq!(ledger.returned(ProcessId(0), 3 * S, MS, 0), Ok(Returned::NothingHeld));
}

#[test]
fn next_client_is_granted_at_once_when_the_holder_dies() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    ledger.process_gone(ProcessId(0), 3 * MS);
    let actions = ledger.advance(3 * MS);
    assert_eq!(granted(&actions), [(1, Deadline::At(53 * MS))]);
    assert_eq!(ended(&actions), [(0, 3 * MS, 3 * MS)]);
}

#[test]
fn waiting_process_that_dies_is_removed() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    ledger.process_gone(ProcessId(1), MS);
    ledger.returned(ProcessId(0), 2 * MS, 2 * MS, 0).unwrap();
    assert_eq!(granted(&ledger.advance(2 * MS)), []);
    assert_eq!(
        ledger.request(ProcessId(1), 3 * MS, GrantRequest::default()),
        Err(Refused::UnknownProcess(ProcessId(1)))
    );
}

#[test]
fn client_below_its_request_may_run_twice_in_a_row() {
    let mut ledger = ledger_of(Policy::default(), &[spec(0.9, 1.0), spec(0.1, 1.0)]);
    ask(&mut ledger, 0, 0);
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    ledger.returned(ProcessId(0), 50 * MS, 50 * MS, 0).unwrap();
    // The other client runs, and the first one is far below its request from then on.
    assert_eq!(granted(&ledger.advance(50 * MS)), [(1, Deadline::At(100 * MS))]);
    ask(&mut ledger, 0, 50 * MS);
    ledger.returned(ProcessId(1), 100 * MS, 50 * MS, 0).unwrap();
    ask(&mut ledger, 1, 100 * MS);
    assert_eq!(granted(&ledger.advance(100 * MS)), [(0, Deadline::At(150 * MS))]);
    // It returns and requests again a little later: the GPU is kept free for it in between.
    ledger.returned(ProcessId(0), 150 * MS, 50 * MS, 0).unwrap();
    assert_eq!(granted(&ledger.advance(150 * MS)), []);
    assert_eq!(ledger.next_deadline(), Some(150 * MS + 200_000));
    ask(&mut ledger, 0, 150 * MS + 100_000);
    assert_eq!(granted(&ledger.advance(150 * MS + 100_000)), [(0, Deadline::At(200 * MS + 100_000))]);
    // Without that request, the other client would have run.
    ledger.returned(ProcessId(0), 200 * MS + 100_000, 50 * MS, 0).unwrap();
    ledger.advance(200 * MS + 100_000);
    assert_eq!(granted(&ledger.advance(200 * MS + 300_000)).first().map(|grant| grant.0), Some(1));
}

#[test]
fn holder_is_notified_when_another_client_starts_and_stops_waiting() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    ask(&mut ledger, 1, MS);
    assert_eq!(ledger.advance(MS), [Action::Contended { client: ClientId(0), contended: true }]);
    ledger.process_gone(ProcessId(1), 2 * MS);
    assert_eq!(ledger.advance(2 * MS), [], "it may come back");
    let reported = ledger.advance(102 * MS);
    assert!(reported.contains(&Action::Contended { client: ClientId(0), contended: false }), "{reported:?}");
}

#[test]
fn holder_is_notified_before_its_grant_that_another_client_worked_a_moment_ago() {
    let mut ledger = pair();
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    ledger.returned(ProcessId(1), MS, MS, 0).unwrap();
    ledger.advance(MS);
    ask(&mut ledger, 0, 50 * MS);
    let actions = ledger.advance(50 * MS);
    assert_eq!(actions[0], Action::Contended { client: ClientId(0), contended: true });
    assert!(matches!(actions[1], Action::Grant { .. }), "{actions:?}");
}

#[test]
fn latency_critical_client_never_waits_and_leaves_other_grants_alone() {
    let mut ledger = pair();
    let critical = ClientSpec { class: Class::LatencyCritical, ..spec(0.2, 1.0) };
    ledger.set_client(ClientId(9), critical, 0);
    ledger.add_process(ProcessId(9), ClientId(9), ReturnKind::Returns).unwrap();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    ask(&mut ledger, 9, MS);
    assert_eq!(granted(&ledger.advance(MS)), [(9, Deadline::Unlimited)]);
    assert!(ledger.holds(ProcessId(9)) && ledger.holds(ProcessId(0)));
    assert_eq!(ledger.returned(ProcessId(9), 2 * MS, MS, 0), Ok(Returned::NothingHeld));
    // It becomes best-effort: its grant is revoked, and it waits for the next one.
    ledger.set_client(ClientId(9), spec(0.2, 1.0), 3 * MS);
    let revoked = Action::Revoke { process: ProcessId(9), reason: GrantEnd::Withdrawn };
    assert_eq!(ledger.advance(3 * MS), [revoked]);
    ask(&mut ledger, 9, 4 * MS);
    assert_eq!(granted(&ledger.advance(4 * MS)), []);
}

#[test]
fn grant_of_a_removed_client_goes_to_the_next() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    ledger.remove_client(ClientId(0), MS);
    assert_eq!(granted(&ledger.advance(MS)), [(1, Deadline::At(51 * MS))]);
    assert_eq!(ledger.usage(ClientId(0), MS), None);
    let refused = ledger.add_process(ProcessId(7), ClientId(0), ReturnKind::Returns);
    assert_eq!(refused, Err(Refused::UnknownClient(ClientId(0))));
}

#[test]
fn with_more_capacity_several_clients_hold_grants_and_share_the_time_held() {
    let policy = Policy { capacity: 2, ..Policy::default() };
    let mut ledger = ledger_of(policy, &[spec(0.3, 1.0), spec(0.3, 1.0), spec(0.3, 1.0)]);
    for process in 0..3 {
        ask(&mut ledger, process, 0);
    }
    assert_eq!(granted(&ledger.advance(0)).len(), 2);
    ledger.returned(ProcessId(0), 40 * MS, 20 * MS, 0).unwrap();
    assert_eq!(granted(&ledger.advance(40 * MS)), [(2, Deadline::At(90 * MS))]);
    assert_eq!(ledger.usage(ClientId(0), 40 * MS).unwrap().held_ns, 20 * MS);
}

#[test]
fn length_of_grants_adapts_to_bursts() {
    let mut ledger = pair();
    let mut now = 0;
    let mut lengths = Vec::new();
    for _ in 0..4 {
        ledger.request(ProcessId(0), now, GrantRequest { burst_ns: MS, overuse_ns: 0 }).unwrap();
        let actions = ledger.advance(now);
        let Some((0, Deadline::At(deadline))) = granted(&actions).first().copied() else {
            panic!("{actions:?}")
        };
        lengths.push(deadline - now);
        now = deadline;
        ledger.returned(ProcessId(0), now, 0, 0).unwrap();
    }
    assert_eq!(lengths, [25_500_000, 13_250_000, 10 * MS, 10 * MS]);
}

#[test]
fn reason_of_a_grant_tells_a_client_alone_from_one_that_was_chosen_joined_or_never_waits() {
    let critical = ClientSpec { class: Class::LatencyCritical, ..spec(0.2, 1.0) };
    let mut ledger = ledger_of(Policy::default(), &[spec(0.3, 1.0), spec(0.5, 1.0), critical]);
    let reason =
        |ledger: &TokenLedger, of: u64, at: u64| ledger.grant_reason(ProcessId(of), ClientId(of), at);
    ask(&mut ledger, 0, 0);
    ask(&mut ledger, 2, 0);
    ledger.advance(0);
    assert_eq!(reason(&ledger, 0, 0), GrantReason::Alone);
    assert_eq!(reason(&ledger, 2, 0), GrantReason::LatencyCritical);
    ledger.add_process(ProcessId(7), ClientId(0), ReturnKind::Returns).unwrap();
    ask(&mut ledger, 7, MS);
    ask(&mut ledger, 1, MS);
    ledger.advance(MS);
    assert_eq!(ledger.grant_reason(ProcessId(7), ClientId(0), MS), GrantReason::Joined);
    ledger.returned(ProcessId(7), 50 * MS, 49 * MS, 0).unwrap();
    ledger.returned(ProcessId(0), 50 * MS, 50 * MS, 0).unwrap();
    ask(&mut ledger, 0, 50 * MS);
    ledger.advance(50 * MS);
    assert_eq!(reason(&ledger, 1, 50 * MS), GrantReason::SmallestVirtualTime);
}
