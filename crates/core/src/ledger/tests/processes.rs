//! Several processes of one client, and peers whose grants end by timer.

use super::*;

fn two_processes(kind: ReturnKind) -> TokenLedger {
    let mut ledger = pair();
    ledger.add_process(ProcessId(10), ClientId(0), kind).unwrap();
    ledger.add_process(ProcessId(11), ClientId(0), kind).unwrap();
    ledger
}

#[test]
fn second_process_joins_for_the_remaining_time_and_both_must_return() {
    let mut ledger = two_processes(ReturnKind::Returns);
    ask(&mut ledger, 10, 0);
    ledger.advance(0);
    ask(&mut ledger, 1, 0);
    ask(&mut ledger, 11, 20 * MS);
    assert_eq!(granted(&ledger.advance(20 * MS)), [(11, Deadline::At(50 * MS))]);
    ledger.returned(ProcessId(10), 30 * MS, 30 * MS, 0).unwrap();
    assert_eq!(granted(&ledger.advance(30 * MS)), []);
    ledger.returned(ProcessId(11), 50 * MS, 30 * MS, 0).unwrap();
    let actions = ledger.advance(50 * MS);
    // Each reports its own time, which contains the other's. Together they are charged at most the time that passed.
    assert_eq!(ended(&actions), [(0, 50 * MS, 50 * MS)]);
    assert_eq!(granted(&actions), [(1, Deadline::At(100 * MS))]);
}

#[test]
fn too_little_remaining_time_is_not_granted_while_another_client_waits() {
    let mut ledger = two_processes(ReturnKind::Returns);
    ask(&mut ledger, 10, 0);
    ledger.advance(0);
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    ask(&mut ledger, 11, 50 * MS - 999_999);
    assert_eq!(granted(&ledger.advance(50 * MS - 999_999)), []);
}

#[test]
fn all_waiting_processes_of_a_client_share_one_grant() {
    let mut ledger = two_processes(ReturnKind::Returns);
    ask(&mut ledger, 10, 0);
    ask(&mut ledger, 11, 0);
    assert_eq!(granted(&ledger.advance(0)), [(10, Deadline::At(50 * MS)), (11, Deadline::At(50 * MS))]);
}

#[test]
fn grant_continues_when_one_of_two_processes_dies() {
    let mut ledger = two_processes(ReturnKind::Returns);
    ask(&mut ledger, 10, 0);
    ask(&mut ledger, 11, 0);
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    ledger.process_gone(ProcessId(10), 10 * MS);
    assert_eq!(granted(&ledger.advance(10 * MS)), []);
    ledger.returned(ProcessId(11), 20 * MS, 5 * MS, 0).unwrap();
    let actions = ledger.advance(20 * MS);
    // The process that died reported nothing: it is charged the time held.
    assert_eq!(ended(&actions), [(0, 20 * MS, 15 * MS)]);
    assert_eq!(granted(&actions).len(), 1);
}

#[test]
fn request_of_a_holder_returns_its_grant() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    ask(&mut ledger, 0, 20 * MS);
    let actions = ledger.advance(20 * MS);
    assert_eq!(ended(&actions), [(0, 20 * MS, 20 * MS)]);
    assert_eq!(granted(&actions), [(1, Deadline::At(70 * MS))]);
}

#[test]
fn gemini_grant_ends_by_timer_and_its_overuse_is_charged_with_the_next_request() {
    let mut ledger = two_processes(ReturnKind::ByTimer);
    ask(&mut ledger, 10, 0);
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    assert_eq!(ledger.next_deadline(), Some(50 * MS));
    let actions = ledger.advance(50 * MS);
    assert_eq!(ended(&actions), [(0, 50 * MS, 50 * MS)]);
    assert_eq!(granted(&actions), [(1, Deadline::At(100 * MS))]);
    ledger.request(ProcessId(10), 60 * MS, GrantRequest { burst_ns: 0, overuse_ns: 4 * MS }).unwrap();
    assert_eq!(ledger.usage(ClientId(0), 60 * MS).unwrap().charged_ns, 54 * MS);
    // Overuse is charged once, and at most the time that has passed.
    ledger.request(ProcessId(10), 61 * MS, GrantRequest { burst_ns: 0, overuse_ns: 9 * S }).unwrap();
    assert_eq!(ledger.usage(ClientId(0), 61 * MS).unwrap().charged_ns, 54 * MS);
}

#[test]
fn gemini_is_answered_from_the_running_grant_while_its_burst_fits() {
    let mut ledger = two_processes(ReturnKind::ByTimer);
    ask(&mut ledger, 10, 0);
    ledger.advance(0);
    ledger.request(ProcessId(10), 20 * MS, GrantRequest { burst_ns: 30 * MS, overuse_ns: 0 }).unwrap();
    assert_eq!(granted(&ledger.advance(20 * MS)), [(10, Deadline::At(50 * MS))]);
    ledger.request(ProcessId(10), 30 * MS, GrantRequest { burst_ns: 30 * MS, overuse_ns: 0 }).unwrap();
    let actions = ledger.advance(30 * MS);
    assert_eq!(ended(&actions), [(0, 30 * MS, 30 * MS)]);
    assert!(matches!(granted(&actions)[..], [(10, Deadline::At(at))] if at > 50 * MS));
}

#[test]
fn process_that_cannot_join_its_clients_grant_causes_no_immediate_deadline() {
    let policy = Policy { capacity: 2, ..Policy::default() };
    // A limited client: its grant ends at its deadline.
    let mut ledger = ledger_of(policy, &[spec(0.5, 0.9)]);
    ledger.add_process(ProcessId(9), ClientId(0), ReturnKind::Returns).unwrap();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    // The deadline has passed but the work still runs: the other process waits for the next grant.
    ask(&mut ledger, 9, 60 * MS);
    ledger.advance(60 * MS);
    assert_eq!(ledger.next_deadline(), Some(50 * MS + Policy::default().return_timeout_ns));
}

#[test]
fn time_before_a_process_became_hardware_scheduled_is_charged() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    ledger.set_kind(ProcessId(0), ReturnKind::HardwareScheduled, 20 * MS).unwrap();
    ledger.set_enabled(ClientId(0), true, 20 * MS);
    ledger.returned(ProcessId(0), 45 * MS, 0, 0).unwrap();
    assert_eq!(ended(&ledger.advance(45 * MS)), [(0, 45 * MS, 45 * MS)]);
}
