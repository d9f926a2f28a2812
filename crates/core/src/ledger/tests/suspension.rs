//! Suspended clients get no grants, and the others get their time.

use super::*;

fn revoked(actions: &[Action]) -> Vec<u64> {
    let revoke = |action: &Action| match action {
        Action::Revoke { process, .. } => Some(process.0),
        _ => None,
    };
    actions.iter().filter_map(revoke).collect()
}

#[test]
fn holder_keeps_its_grant_to_the_deadline_and_gets_no_other_until_it_is_resumed() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    assert_eq!(granted(&ledger.advance(0)), [(0, Deadline::At(50 * MS))]);
    ledger.set_suspended(ClientId(0), true, 10 * MS);
    assert_eq!(ledger.advance(10 * MS), []);
    ask(&mut ledger, 1, 20 * MS);
    // The request returns the grant.
    ask(&mut ledger, 0, 50 * MS);
    assert_eq!(granted(&ledger.advance(50 * MS)), [(1, Deadline::At(100 * MS))]);
    ledger.returned(ProcessId(1), 100 * MS, 50 * MS, 0).unwrap();
    assert_eq!(granted(&ledger.advance(100 * MS)), []);
    assert_eq!(granted(&ledger.advance(5 * S)), []);
    assert_eq!(ledger.waiting().count(), 0, "it counts as a client that waits");
    ledger.set_suspended(ClientId(0), false, 6 * S);
    let actions = ledger.advance(6 * S);
    assert_eq!(granted(&actions).iter().map(|(process, _)| *process).collect::<Vec<_>>(), [0]);
}

#[test]
fn grant_for_which_no_other_client_waits_is_not_extended() {
    let policy = Policy { extend_ahead_ns: 5 * MS, ..Policy::default() };
    let mut ledger = ledger_of(policy, &[spec(0.3, 1.0), spec(0.5, 1.0)]);
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    let extended = |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::Extend { .. }));
    assert!(extended(&ledger.advance(46 * MS)));
    ledger.set_suspended(ClientId(0), true, 47 * MS);
    assert!(!extended(&ledger.advance(96 * MS)));
}

#[test]
fn request_that_waits_is_withheld_and_granted_after_resumption() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    ask(&mut ledger, 1, 0);
    ledger.set_suspended(ClientId(1), true, 10 * MS);
    assert_eq!(ledger.next_in_line().count(), 0);
    ledger.returned(ProcessId(0), 50 * MS, 50 * MS, 0).unwrap();
    assert_eq!(granted(&ledger.advance(50 * MS)), []);
    ledger.set_suspended(ClientId(1), false, 60 * MS);
    assert_eq!(granted(&ledger.advance(60 * MS)).len(), 1);
    // A process that ended meanwhile has no request any more.
    ledger.set_suspended(ClientId(1), true, 61 * MS);
    ask(&mut ledger, 1, 62 * MS);
    ledger.process_gone(ProcessId(1), 63 * MS);
    ledger.set_suspended(ClientId(1), false, 64 * MS);
    assert_eq!(granted(&ledger.advance(200 * MS)), []);
}

#[test]
fn unlimited_grants_of_a_latency_critical_client_are_revoked_at_once() {
    let critical = ClientSpec { class: Class::LatencyCritical, ..spec(0.3, 1.0) };
    let mut ledger = ledger_of(Policy::default(), &[critical, spec(0.5, 1.0)]);
    ask(&mut ledger, 0, 0);
    assert_eq!(granted(&ledger.advance(0)), [(0, Deadline::Unlimited)]);
    ledger.set_suspended(ClientId(0), true, MS);
    assert_eq!(revoked(&ledger.advance(MS)), [0]);
    ask(&mut ledger, 0, 2 * MS);
    assert_eq!(granted(&ledger.advance(2 * MS)), []);
    assert_eq!(granted(&ledger.advance(S)), []);
    ledger.set_suspended(ClientId(0), false, 2 * S);
    assert_eq!(granted(&ledger.advance(2 * S)), [(0, Deadline::Unlimited)]);
}

#[test]
fn class_that_changes_meanwhile_ends_no_suspension() {
    let mut ledger = pair();
    ledger.set_suspended(ClientId(0), true, 0);
    ask(&mut ledger, 0, 0);
    ledger.set_client(ClientId(0), ClientSpec { class: Class::LatencyCritical, ..spec(0.3, 1.0) }, MS);
    ask(&mut ledger, 0, 2 * MS);
    assert_eq!(granted(&ledger.advance(3 * MS)), []);
    assert!(ledger.is_suspended(ClientId(0)));
}
