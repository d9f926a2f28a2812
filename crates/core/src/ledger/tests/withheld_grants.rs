//! Withheld grants.

use super::*;

/// The first client, gated or not, holds a grant from 0 on and the second one waits. Grants are withheld from 10 ms on.
fn withheld(gated: bool) -> TokenLedger {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    ledger.set_gated(ProcessId(0), gated);
    ledger.set_withheld(true, 10 * MS);
    assert_eq!(ledger.advance(10 * MS), []);
    ledger
}

#[test]
fn no_grant_is_given_while_grants_are_withheld() {
    let mut ledger = withheld(true);
    ledger.returned(ProcessId(0), 30 * MS, 8 * MS, 0).unwrap();
    assert_eq!(granted(&ledger.advance(30 * MS)), []);
    assert_eq!(ledger.next_deadline(), None, "no deadline while withheld");
    ledger.set_withheld(false, S);
    assert_eq!(granted(&ledger.advance(S)), [(1, Deadline::At(S + 50 * MS))]);
}

#[test]
fn suspended_client_is_charged_only_the_time_that_it_ran() {
    let mut ledger = withheld(true);
    // Its report contains the time for which its work was held back.
    ledger.set_withheld(false, 5 * S);
    ledger.advance(5 * S);
    ledger.returned(ProcessId(0), 5 * S + 30 * MS, 5 * S, 0).unwrap();
    assert_eq!(ended(&ledger.advance(5 * S + 30 * MS)), [(0, 40 * MS, 40 * MS)]);
    let usage = ledger.usage(ClientId(0), 5 * S + 30 * MS).unwrap();
    assert_eq!((usage.charged_ns, usage.held_ns), (40 * MS, 40 * MS));
}

#[test]
fn client_that_returns_while_grants_are_withheld_is_charged_its_report() {
    let mut ledger = withheld(true);
    ledger.returned(ProcessId(0), 50 * MS, 45 * MS, 0).unwrap();
    assert_eq!(ended(&ledger.advance(50 * MS)), [(0, 50 * MS, 45 * MS)]);
    // A process that ends reports nothing: its grant counts as suspended.
    let mut ledger = withheld(true);
    ledger.process_gone(ProcessId(0), 50 * MS);
    assert_eq!(ended(&ledger.advance(50 * MS)), [(0, 10 * MS, 10 * MS)]);
}

#[test]
fn suspended_grant_is_not_revoked_while_its_work_is_held_back() {
    let mut ledger = withheld(true);
    assert_eq!(ledger.next_deadline(), None);
    let revoked = |actions: &[Action]| actions.iter().any(|a| matches!(a, Action::Revoke { .. }));
    assert!(!revoked(&ledger.advance(60 * S)));
    ledger.set_withheld(false, 60 * S);
    assert!(!revoked(&ledger.advance(60 * S)));
    let overdue = ledger.next_deadline().unwrap();
    assert_eq!(overdue, 60 * S - 10 * MS + 50 * MS + Policy::default().return_timeout_ns);
    assert!(revoked(&ledger.advance(overdue)));
}

#[test]
fn client_without_gates_is_charged_its_report_and_revoked_at_the_usual_time() {
    let mut ledger = withheld(false);
    assert_eq!(ledger.next_deadline(), Some(50 * MS + Policy::default().return_timeout_ns));
    ledger.returned(ProcessId(0), 50 * MS, 50 * MS, 0).unwrap();
    assert_eq!(ended(&ledger.advance(50 * MS)), [(0, 50 * MS, 50 * MS)]);
}

#[test]
fn grant_that_ends_by_timer_continues_while_grants_are_withheld() {
    let mut ledger = pair();
    ledger.add_process(ProcessId(9), ClientId(0), ReturnKind::ByTimer).unwrap();
    ask(&mut ledger, 9, 0);
    ledger.advance(0);
    ledger.set_gated(ProcessId(9), true);
    ledger.set_withheld(true, 10 * MS);
    assert_eq!(ledger.next_deadline(), Some(50 * MS));
    assert_eq!(ended(&ledger.advance(50 * MS)), [(0, 50 * MS, 50 * MS)]);
}

#[test]
fn hardware_scheduled_processes_get_grants_while_grants_are_withheld() {
    let mut ledger = pair();
    ledger.set_kind(ProcessId(1), ReturnKind::HardwareScheduled, 0).unwrap();
    ledger.set_withheld(true, 0);
    ask(&mut ledger, 0, 0);
    ask(&mut ledger, 1, 0);
    assert_eq!(granted(&ledger.advance(0)), [(1, Deadline::At(50 * MS))]);
    // No other client can be granted: it continues.
    let actions = ledger.advance(50 * MS);
    assert!(actions.iter().any(|a| matches!(a, Action::Extend { process: ProcessId(1), .. })), "{actions:?}");
}

#[test]
fn grant_of_a_client_alone_is_not_extended_while_grants_are_withheld() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    ledger.set_withheld(true, 10 * MS);
    assert_eq!(ledger.advance(49 * MS), []);
    ledger.set_withheld(false, 49 * MS);
    assert!(matches!(ledger.advance(49 * MS)[..], [Action::Extend { process: ProcessId(0), .. }]));
}
