//! Slots: which client is granted in them, and when the grants of others end.

use super::*;
use crate::gangs::{CYCLE_NS, Slot, Slots};

const CYCLE: u64 = CYCLE_NS / MS;

/// Clients 0 and 1 are gangs with the slots 0 to 60 and 60 to 120 ms, client 2 is alone on the GPU.
fn ledger_with_slots() -> TokenLedger {
    let mut ledger = ledger_of(Policy::default(), &[spec(0.3, 1.0), spec(0.3, 1.0), spec(0.4, 1.0)]);
    let slot = |start: u64, end: u64| Slot { start_ns: start * MS, end_ns: end * MS };
    ledger.set_slots(Slots::from_iter([(ClientId(0), slot(0, 60)), (ClientId(1), slot(60, 120))]));
    ledger
}

fn hardware_scheduled(ledger: &mut TokenLedger) {
    for process in 0..3 {
        ledger.set_kind(ProcessId(process), ReturnKind::HardwareScheduled, 0).unwrap();
    }
}

/// What the scheduler of channel groups does: the process is off the GPU and wants it again.
fn hand_over(ledger: &mut TokenLedger, from: u64, at: u64) -> Vec<Action> {
    ledger.returned(ProcessId(from), at * MS, 0, 0).unwrap();
    ask(ledger, from, at * MS);
    ledger.advance(at * MS)
}

#[test]
fn each_gang_is_granted_in_its_slot_and_the_rest_goes_to_clients_of_one_gpu() {
    let mut ledger = ledger_with_slots();
    hardware_scheduled(&mut ledger);
    (0..3).for_each(|process| ask(&mut ledger, process, 0));
    for cycle in 0..3 {
        let at = |ms: u64| cycle * CYCLE + ms;
        // The grant is as long as the slot, which is longer than a quantum.
        let actions = if cycle == 0 { ledger.advance(0) } else { hand_over(&mut ledger, 2, at(0)) };
        assert_eq!(granted(&actions), [(0, Deadline::At(at(60) * MS))], "{cycle}");
        let actions = hand_over(&mut ledger, 0, at(60));
        assert_eq!(granted(&actions), [(1, Deadline::At(at(120) * MS))], "{cycle}");
        // A quantum of 50 ms, and another one that ends where the next slot begins.
        let actions = hand_over(&mut ledger, 1, at(120));
        assert_eq!(granted(&actions), [(2, Deadline::At(at(170) * MS))], "{cycle}");
        let actions = ledger.advance(at(170) * MS);
        let extended = |action: &Action| match action {
            Action::Extend { process, deadline, .. } => Some((process.0, *deadline)),
            _ => None,
        };
        assert_eq!(actions.iter().find_map(extended), Some((2, at(200) * MS)), "{actions:?}");
    }
}

#[test]
fn gang_that_works_again_in_its_slot_has_the_holder_disabled() {
    let mut ledger = ledger_with_slots();
    hardware_scheduled(&mut ledger);
    ask(&mut ledger, 2, 0);
    assert_eq!(granted(&ledger.advance(0)), [(2, Deadline::At(50 * MS))]);
    ask(&mut ledger, 0, 20 * MS);
    let actions = ledger.advance(20 * MS);
    assert!(actions.contains(&Action::Disable { process: ProcessId(2) }), "{actions:?}");
    assert_eq!(granted(&hand_over(&mut ledger, 2, 21)), [(0, Deadline::At(60 * MS))]);
    // Outside of its slot it waits for the quantum to end.
    let actions = hand_over(&mut ledger, 0, 60);
    assert_eq!(granted(&actions), [(2, Deadline::At(110 * MS))]);
    assert!(!ledger.advance(70 * MS).iter().any(|action| matches!(action, Action::Disable { .. })));
}

#[test]
fn gangs_alone_use_all_the_time_and_take_turns_outside_of_their_slots() {
    let mut ledger = ledger_with_slots();
    hardware_scheduled(&mut ledger);
    (0..2).for_each(|process| ask(&mut ledger, process, 0));
    ledger.advance(0);
    hand_over(&mut ledger, 0, 60);
    // Of the cycles 0 and 1: the first and the second of those that wait.
    assert_eq!(granted(&hand_over(&mut ledger, 1, 120)), [(0, Deadline::At(170 * MS))]);
    ledger.advance(170 * MS);
    let actions = ledger.advance(200 * MS);
    assert!(!actions.iter().any(|action| matches!(action, Action::Disable { .. })), "{actions:?}");
    hand_over(&mut ledger, 0, 260);
    let actions = ledger.advance(320 * MS);
    assert!(!actions.iter().any(|action| matches!(action, Action::Disable { .. })), "{actions:?}");
}

/// By tokens: the collective of a rank ends only when its peer runs again.
#[test]
fn grant_of_a_gang_that_was_not_returned_goes_on_in_its_next_slot_and_holds_up_no_other_gang() {
    let mut ledger = ledger_with_slots();
    (0..2).for_each(|process| ask(&mut ledger, process, 0));
    assert_eq!(granted(&ledger.advance(0)), [(0, Deadline::At(60 * MS))]);
    // It is not returned at the end of the slot, and not when the GPU must have finished what was launched.
    assert_eq!(granted(&ledger.advance(60 * MS)), []);
    assert_eq!(ledger.next_deadline(), Some(100 * MS));
    assert_eq!(granted(&ledger.advance(100 * MS)), [(1, Deadline::At(120 * MS))]);
    ledger.returned(ProcessId(1), 120 * MS, 60 * MS, 0).unwrap();
    ledger.advance(120 * MS);
    let next = ledger.next_deadline().unwrap();
    assert!(next <= 200 * MS, "{next}");
    let actions = ledger.advance(200 * MS);
    let goes_on = |action: &Action| matches!(action, Action::Extend { process: ProcessId(0), deadline, .. } if *deadline == 260 * MS);
    assert!(actions.iter().any(goes_on), "{actions:?}");
}

/// The next gang does not wait for longer than the work of the last one takes.
#[test]
fn gang_is_granted_as_soon_as_the_last_one_has_returned_its_grant() {
    let mut ledger = ledger_with_slots();
    (0..2).for_each(|process| ask(&mut ledger, process, 0));
    ledger.advance(0);
    assert_eq!(granted(&ledger.advance(60 * MS)), []);
    ledger.returned(ProcessId(0), 75 * MS, 75 * MS, 15 * MS).unwrap();
    assert_eq!(granted(&ledger.advance(75 * MS)), [(1, Deadline::At(120 * MS))]);
}

/// A client of one GPU returns its grant: it waits for no other GPU.
#[test]
fn gang_waits_for_a_client_of_one_gpu_that_has_not_returned_its_grant() {
    let mut ledger = ledger_with_slots();
    ask(&mut ledger, 2, 130 * MS);
    assert_eq!(granted(&ledger.advance(130 * MS)), [(2, Deadline::At(180 * MS))]);
    ask(&mut ledger, 0, 190 * MS);
    assert_eq!(granted(&ledger.advance(201 * MS)), []);
    ledger.returned(ProcessId(2), 210 * MS, 80 * MS, 0).unwrap();
    assert_eq!(granted(&ledger.advance(210 * MS)), [(0, Deadline::At(260 * MS))]);
}

#[test]
fn rank_whose_peer_has_died_holds_up_no_client_of_its_gpu() {
    let mut ledger = ledger_with_slots();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    ask(&mut ledger, 2, 10 * MS);
    ledger.advance(10 * MS);
    assert_eq!(ledger.next_deadline(), Some(60 * MS));
    assert_eq!(granted(&ledger.advance(60 * MS)), []);
    assert_eq!(granted(&ledger.advance(100 * MS)), [(2, Deadline::At(150 * MS))]);
    // The grant that is never returned ends by the return timeout, in whichever slot that is.
    let mut now = 100 * MS;
    let mut ended = false;
    while now < 5 * S && !ended {
        now = ledger.next_deadline().unwrap().clamp(now + 1, now + 20 * MS);
        let not_returned = |action: &Action| {
            matches!(action, Action::Revoke { process: ProcessId(0), reason: GrantEnd::NotReturned })
        };
        ended = ledger.advance(now).iter().any(not_returned);
    }
    assert!(ended && now <= 2 * S + 100 * MS, "{now}");
}

#[test]
fn gang_whose_limit_allows_it_to_run_in_its_slot_has_the_holder_disabled() {
    let mut ledger = ledger_with_slots();
    ledger.set_client(ClientId(1), spec(0.3, 0.3), 0);
    hardware_scheduled(&mut ledger);
    // It has used up its limit.
    ask(&mut ledger, 1, 60 * MS);
    ledger.advance(60 * MS);
    ask(&mut ledger, 2, 61 * MS);
    ledger.set_enabled(ClientId(1), true, 60 * MS);
    let actions = hand_over(&mut ledger, 1, 120);
    assert_eq!(granted(&actions).len(), 1, "{actions:?}");
    let mut now = 120 * MS;
    // Client 2 goes on quantum after quantum. When the limit allows, in the slot, the gang is next.
    while now < S {
        now = ledger.next_deadline().unwrap().clamp(now + 1, now + 10 * MS);
        if ledger.advance(now).contains(&Action::Disable { process: ProcessId(2) }) {
            break;
        }
    }
    let phase = now % CYCLE_NS;
    assert!(now < S && (59 * MS..120 * MS).contains(&phase), "{now}");
}
