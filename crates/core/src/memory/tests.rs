use super::*;
use proptest::prelude::*;

const POD: ClientId = ClientId(1);

fn ledger(limit: u64, processes: u64) -> MemoryLedger {
    let mut ledger = MemoryLedger::default();
    ledger.set_limit(POD, limit);
    for process in 0..processes {
        assert!(ledger.open(ProcessId(process), POD));
    }
    ledger
}

fn used_and_limit(ledger: &MemoryLedger) -> (u64, u64) {
    let account = ledger.client(POD).unwrap();
    (account.used, account.limit)
}

#[test]
fn limit_is_exact_to_the_byte_across_four_processes() {
    let mut ledger = ledger(1000, 4);
    for process in 0..4 {
        assert_eq!(ledger.reserve(ProcessId(process), 250), ReserveResult::Granted);
    }
    assert_eq!(ledger.reserve(ProcessId(3), 1), ReserveResult::Denied);
    assert_eq!(ledger.release(ProcessId(0), 1), 1);
    assert_eq!(ledger.reserve(ProcessId(3), 2), ReserveResult::Denied);
    assert_eq!(ledger.reserve(ProcessId(3), 1), ReserveResult::Granted);
    assert_eq!(used_and_limit(&ledger), (1000, 1000));
}

#[test]
fn process_cannot_release_bytes_of_another() {
    let mut ledger = ledger(100, 2);
    ledger.reserve(ProcessId(0), 60);
    assert_eq!(ledger.release(ProcessId(1), 10), 0);
    assert_eq!(ledger.release(ProcessId(0), u64::MAX), 60);
    assert_eq!(used_and_limit(&ledger), (0, 100));
}

#[test]
fn bytes_of_a_dead_process_are_freed_once() {
    let mut ledger = ledger(100, 2);
    ledger.reserve(ProcessId(0), 60);
    ledger.reserve(ProcessId(1), 40);
    assert_eq!(ledger.process_gone(ProcessId(0)), 60);
    assert_eq!(ledger.process_gone(ProcessId(0)), 0);
    assert_eq!(ledger.reserve(ProcessId(0), 1), ReserveResult::NoAccount);
    assert_eq!(ledger.reserve(ProcessId(1), 60), ReserveResult::Granted);
}

#[test]
fn limit_below_use_frees_nothing_and_refuses_until_enough_is_released() {
    let mut ledger = ledger(100, 1);
    ledger.reserve(ProcessId(0), 80);
    ledger.set_limit(POD, 50);
    assert_eq!(used_and_limit(&ledger), (80, 50));
    assert_eq!(ledger.reserve(ProcessId(0), 0), ReserveResult::Denied);
    ledger.release(ProcessId(0), 40);
    assert_eq!(ledger.reserve(ProcessId(0), 11), ReserveResult::Denied);
    assert_eq!(ledger.reserve(ProcessId(0), 10), ReserveResult::Granted);
}

#[test]
fn sizes_near_u64_max_are_refused_not_wrapped() {
    let mut ledger = ledger(u64::MAX, 2);
    assert_eq!(ledger.reserve(ProcessId(0), u64::MAX), ReserveResult::Granted);
    assert_eq!(ledger.reserve(ProcessId(1), 1), ReserveResult::Denied);
    ledger.redeclare(ProcessId(1), u64::MAX);
    assert_eq!(ledger.held_by(ProcessId(1)), 0);
}

#[test]
fn declared_bytes_replace_the_account_even_above_the_limit() {
    let mut ledger = ledger(100, 2);
    ledger.reserve(ProcessId(0), 30);
    ledger.redeclare(ProcessId(0), 150);
    ledger.redeclare(ProcessId(1), 20);
    assert_eq!(used_and_limit(&ledger), (170, 100));
    ledger.redeclare(ProcessId(0), 10);
    assert_eq!(used_and_limit(&ledger), (30, 100));
}

proptest! {
    #[test]
    fn used_is_the_sum_of_the_processes_and_reservations_keep_the_limit(
        steps in prop::collection::vec((0u64..4, 0u8..5, prop_oneof![0u64..2000, any::<u64>()]), 1..200)
    ) {
        let mut ledger = ledger(1000, 4);
        for (process, step, bytes) in steps {
            let id = ProcessId(process);
            let before = ledger.client(POD).unwrap();
            match step {
                0 | 1 => {
                    let result = ledger.reserve(id, bytes);
                    let after = ledger.client(POD).unwrap();
                    let expected = before.used.checked_add(bytes).filter(|used| *used <= before.limit);
                    prop_assert_eq!(result == ReserveResult::Granted, expected.is_some());
                    prop_assert_eq!(after.used, expected.unwrap_or(before.used));
                }
                2 => prop_assert!(ledger.release(id, bytes) <= bytes),
                3 => {
                    ledger.process_gone(id);
                    prop_assert!(ledger.open(id, POD));
                }
                _ => ledger.redeclare(id, bytes),
            }
            let held: u128 = (0..4).map(|id| u128::from(ledger.held_by(ProcessId(id)))).sum();
            prop_assert_eq!(u128::from(ledger.client(POD).unwrap().used), held);
        }
    }
}
