//! Grants that are withheld.

use super::*;

/// The first client, gated or not, holds from 0 on and the second one waits; withheld from 10 ms on.
fn withheld(gated: bool) -> TokenLedger {
    let mut ledger = pair();
    ledger.set_gated(ProcessId(0), gated);
    ask(&mut ledger, 0, 0);
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    ledger.set_withheld(true, 10 * MS);
    assert_eq!(ledger.advance(10 * MS), []);
    ledger
}

#[test]
fn nobody_is_granted_anything_while_grants_are_withheld_and_the_next_one_is_when_they_are_not() {
    let mut ledger = withheld(true);
    ledger.returned(ProcessId(0), 30 * MS, 8 * MS, 0).unwrap();
    assert_eq!(granted(&ledger.advance(30 * MS)), []);
    assert_eq!(ledger.next_deadline(), None, "nothing is to be done before that");
    ledger.set_withheld(false, S);
    assert_eq!(granted(&ledger.advance(S)), [(1, Deadline::At(S + 50 * MS))]);
}

#[test]
fn who_stood_is_charged_what_it_ran_and_has_not_had_the_rest() {
    let mut ledger = withheld(true);
    // What it reports contains the time for which its work was held back.
    ledger.set_withheld(false, 5 * S);
    ledger.advance(5 * S);
    ledger.returned(ProcessId(0), 5 * S + 30 * MS, 5 * S, 0).unwrap();
    assert_eq!(ended(&ledger.advance(5 * S + 30 * MS)), [(0, 40 * MS, 40 * MS)]);
    let usage = ledger.usage(ClientId(0), 5 * S + 30 * MS).unwrap();
    assert_eq!((usage.charged_ns, usage.held_ns), (40 * MS, 40 * MS));
}

#[test]
fn who_returns_while_grants_are_withheld_is_charged_what_it_says_it_used() {
    let mut ledger = withheld(true);
    ledger.returned(ProcessId(0), 50 * MS, 45 * MS, 0).unwrap();
    assert_eq!(ended(&ledger.advance(50 * MS)), [(0, 50 * MS, 45 * MS)]);
    // Who dies does not say anything, and is taken to have stood.
    let mut ledger = withheld(true);
    ledger.process_gone(ProcessId(0), 50 * MS);
    assert_eq!(ended(&ledger.advance(50 * MS)), [(0, 10 * MS, 10 * MS)]);
}

#[test]
fn who_turns_out_to_go_on_is_charged_for_all_of_it_and_asked_for_at_its_deadline() {
    let mut ledger = withheld(true);
    ledger.set_withheld(false, 20 * MS);
    ledger.set_withheld(true, 30 * MS);
    assert_eq!(ledger.next_deadline(), None);
    ledger.set_ungated(ProcessId(0));
    assert_eq!(ledger.next_deadline(), Some(50 * MS + Policy::default().return_timeout_ns));
    ledger.returned(ProcessId(0), 50 * MS, 45 * MS, 0).unwrap();
    assert_eq!(ended(&ledger.advance(50 * MS)), [(0, 50 * MS, 45 * MS)]);
}

#[test]
fn a_grant_whose_work_is_held_back_is_waited_for_as_long_as_that_lasts() {
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
fn who_has_no_gates_is_charged_what_it_reports_and_waited_for_no_longer_than_ever() {
    let mut ledger = withheld(false);
    assert_eq!(ledger.next_deadline(), Some(50 * MS + Policy::default().return_timeout_ns));
    ledger.returned(ProcessId(0), 50 * MS, 50 * MS, 0).unwrap();
    assert_eq!(ended(&ledger.advance(50 * MS)), [(0, 50 * MS, 50 * MS)]);
}

#[test]
fn a_grant_that_ends_by_timer_goes_on_to_its_end_and_is_charged() {
    let mut ledger = pair();
    ledger.add_process(ProcessId(9), ClientId(0), PeerKind::ByTimer).unwrap();
    ledger.set_gated(ProcessId(9), true);
    ask(&mut ledger, 9, 0);
    ledger.advance(0);
    ledger.set_withheld(true, 10 * MS);
    assert_eq!(ledger.next_deadline(), Some(50 * MS));
    assert_eq!(ended(&ledger.advance(50 * MS)), [(0, 50 * MS, 50 * MS)]);
}

#[test]
fn those_that_are_steered_take_turns_all_the_same() {
    let mut ledger = pair();
    ledger.set_kind(ProcessId(1), PeerKind::Steered, 0).unwrap();
    ledger.set_withheld(true, 0);
    ask(&mut ledger, 0, 0);
    ask(&mut ledger, 1, 0);
    assert_eq!(granted(&ledger.advance(0)), [(1, Deadline::At(50 * MS))]);
    // Nobody else has a chance: it goes on.
    let actions = ledger.advance(50 * MS);
    assert!(
        actions.iter().any(|a| matches!(a, Action::Prolong { process: ProcessId(1), .. })),
        "{actions:?}"
    );
}

#[test]
fn who_is_alone_returns_at_its_deadline_while_grants_are_withheld() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    ledger.set_withheld(true, 10 * MS);
    assert_eq!(ledger.advance(49 * MS), []);
    ledger.set_withheld(false, 49 * MS);
    assert!(matches!(ledger.advance(49 * MS)[..], [Action::Prolong { process: ProcessId(0), .. }]));
}
