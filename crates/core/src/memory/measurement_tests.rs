//! The overhead under readings that lag behind, and under tenants that report false charges.

use super::*;
use proptest::prelude::*;

const POD: ClientId = ClientId(1);
const APP: ProcessId = ProcessId(1);
const MS: u64 = 1_000_000;

fn ledger(limit: u64) -> MemoryLedger {
    let mut ledger = MemoryLedger::default();
    ledger.set_limit(POD, limit);
    assert!(ledger.open(APP, POD));
    ledger
}

/// Bytes of processes with one account each.
fn shown<const N: usize>(processes: [(ProcessId, u64); N]) -> Vec<ProcessReading> {
    processes.map(|(process, bytes)| ProcessReading { process, bytes, is_only_account: true }).to_vec()
}

fn measure(ledger: &mut MemoryLedger, bytes: u64, now_ms: u64) {
    let reading = Reading { taken_ns: now_ms * MS, processes: shown([(APP, bytes)]), unknown: 0 };
    ledger.measure(POD, &reading, now_ms * MS);
}

fn overhead(ledger: &MemoryLedger) -> u64 {
    ledger.client(POD).unwrap().overhead
}

#[test]
fn overhead_counts_towards_the_limit_and_later_readings_correct_it() {
    let mut ledger = ledger(100);
    ledger.reserve(APP, 40);
    measure(&mut ledger, 70, 400);
    assert_eq!(overhead(&ledger), 30);
    assert_eq!(ledger.reserve(APP, 31), ReserveResult::Denied);
    assert_eq!(ledger.reserve(APP, 30), ReserveResult::Granted);
    measure(&mut ledger, 80, 800);
    measure(&mut ledger, 80, 1200);
    assert_eq!(overhead(&ledger), 10);
}

#[test]
fn overhead_above_the_limit_takes_nothing_away_and_refuses_every_reservation() {
    let mut ledger = ledger(100);
    ledger.reserve(APP, 40);
    measure(&mut ledger, 150, 400);
    let account = ledger.client(POD).unwrap();
    assert_eq!((account.used, account.overhead, account.total()), (40, 110, 150));
    assert_eq!(ledger.reserve(APP, 1), ReserveResult::Denied);
    measure(&mut ledger, 60, 800);
    assert_eq!(ledger.reserve(APP, 40), ReserveResult::Granted);
}

#[test]
fn memory_released_falsely_becomes_overhead_with_the_second_reading() {
    let mut ledger = ledger(100);
    ledger.reserve(APP, 100);
    measure(&mut ledger, 100, 400);
    ledger.release(APP, 100);
    assert_eq!(ledger.reserve(APP, 100), ReserveResult::Granted, "no reading has shown the difference yet");
    ledger.release(APP, 100);
    measure(&mut ledger, 200, 800);
    measure(&mut ledger, 200, 1200);
    assert_eq!(ledger.reserve(APP, 1), ReserveResult::Denied);
    assert_eq!(overhead(&ledger), 200);
}

#[test]
fn overhead_stays_while_the_charge_moves_and_the_reading_agrees_with_it() {
    let mut ledger = ledger(100);
    measure(&mut ledger, 30, 400);
    ledger.reserve(APP, 70);
    ledger.release(APP, 70);
    measure(&mut ledger, 30, 800);
    assert_eq!(overhead(&ledger), 30, "the reading may have been taken while nothing was allocated");
    ledger.reserve(APP, 70);
    ledger.release(APP, 70);
    measure(&mut ledger, 20, 1200);
    assert_eq!(overhead(&ledger), 20);
}

#[test]
fn declared_memory_hides_at_most_the_limit() {
    let mut ledger = ledger(100);
    ledger.redeclare(APP, 1000);
    measure(&mut ledger, 300, 400);
    ledger.release(APP, 1000);
    assert_eq!(overhead(&ledger), 200);
    assert_eq!(ledger.reserve(APP, 1), ReserveResult::Denied);
}

#[test]
fn memory_of_a_process_that_attaches_late_is_counted_once() {
    let mut ledger = ledger(100);
    let reading = Reading { taken_ns: 400 * MS, processes: Vec::new(), unknown: 80 };
    ledger.measure(POD, &reading, 400 * MS);
    assert_eq!(overhead(&ledger), 80);
    ledger.redeclare(APP, 60);
    assert_eq!(ledger.client(POD).unwrap().total(), 80);
}

#[test]
fn process_that_declares_memory_and_ends_hides_no_overhead_of_another() {
    let mut ledger = ledger(100);
    measure(&mut ledger, 60, 400);
    assert!(ledger.open(ProcessId(2), POD));
    ledger.redeclare(ProcessId(2), 60);
    ledger.process_gone(ProcessId(2));
    assert_eq!(ledger.client(POD).unwrap().total(), 60);
}

#[test]
fn overhead_of_an_ended_process_ends_with_it() {
    let mut ledger = ledger(100);
    assert!(ledger.open(ProcessId(2), POD));
    let reading = Reading { taken_ns: 0, processes: shown([(APP, 30), (ProcessId(2), 20)]), unknown: 5 };
    ledger.reserve(APP, 10);
    ledger.measure(POD, &reading, 0);
    assert_eq!(overhead(&ledger), 45);
    ledger.process_gone(APP);
    assert_eq!(ledger.client(POD).unwrap().total(), 25);
}

#[test]
fn memory_of_a_known_process_that_declares_it_late_is_counted_once() {
    let mut ledger = ledger(100);
    ledger.reserve(APP, 10);
    measure(&mut ledger, 75, 400);
    assert_eq!(overhead(&ledger), 65);
    ledger.redeclare(APP, 70);
    assert_eq!(ledger.client(POD).unwrap().total(), 75);
    assert_eq!(ledger.reserve(APP, 25), ReserveResult::Granted);
}

#[test]
fn charges_above_a_lowered_limit_are_no_overhead() {
    let mut ledger = ledger(100);
    ledger.reserve(APP, 80);
    measure(&mut ledger, 81, 400);
    ledger.set_limit(POD, 40);
    measure(&mut ledger, 81, 800);
    measure(&mut ledger, 81, 1200);
    assert_eq!((overhead(&ledger), ledger.client(POD).unwrap().total()), (1, 81));
    ledger.release(APP, 80);
    measure(&mut ledger, 81, 1210);
    assert_eq!(overhead(&ledger), 1, "the reading may lag behind the release");
    measure(&mut ledger, 1, 1610);
    assert_eq!(ledger.reserve(APP, 39), ReserveResult::Granted);
}

#[test]
fn raised_limit_allows_reservations_before_the_next_reading() {
    let mut ledger = ledger(100);
    ledger.reserve(APP, 80);
    ledger.set_limit(POD, 40);
    measure(&mut ledger, 81, 400);
    ledger.set_limit(POD, 100);
    assert_eq!(ledger.reserve(APP, 19), ReserveResult::Granted);
}

#[test]
fn declared_charges_above_the_limit_are_no_overhead() {
    let mut ledger = ledger(40);
    ledger.redeclare(APP, 80);
    measure(&mut ledger, 81, 400);
    assert_eq!(overhead(&ledger), 1);
}

#[test]
fn end_of_a_process_takes_the_overhead_of_the_reading_not_of_its_charge_now() {
    let (mut ledger, other) = (ledger(100), ProcessId(2));
    assert!(ledger.open(other, POD));
    ledger.reserve(APP, 10);
    ledger.reserve(other, 30);
    let reading = Reading { taken_ns: 0, processes: shown([(APP, 30), (other, 30)]), unknown: 0 };
    ledger.measure(POD, &reading, 0);
    assert_eq!(overhead(&ledger), 20);
    ledger.release(other, 30);
    ledger.process_gone(other);
    assert_eq!(overhead(&ledger), 20, "the other process had no overhead");
    ledger.reserve(APP, 20);
    ledger.process_gone(APP);
    assert_eq!(ledger.client(POD).unwrap().total(), 0);
}

#[test]
fn process_that_a_reading_does_not_show_has_no_overhead() {
    let (mut ledger, other) = (ledger(100), ProcessId(2));
    assert!(ledger.open(other, POD));
    let reading = |processes| Reading { taken_ns: 0, processes, unknown: 0 };
    ledger.measure(POD, &reading(shown([(APP, 20), (other, 30)])), 0);
    ledger.measure(POD, &reading(shown([(APP, 20)])), 0);
    ledger.process_gone(other);
    assert_eq!(overhead(&ledger), 20);
}

#[test]
fn charges_of_one_process_do_not_hide_the_context_of_another_one() {
    let other = ProcessId(2);
    let reading = Reading { taken_ns: 1000 * MS, processes: shown([(APP, 10), (other, 10)]), unknown: 0 };
    // The first one has just freed 80 bytes, or has reserved them and not allocated yet.
    for has_freed in [true, false] {
        let mut ledger = ledger(100);
        assert!(ledger.open(other, POD));
        measure(&mut ledger, 10, 400);
        ledger.reserve(APP, 80);
        if has_freed {
            ledger.release(APP, 80);
        }
        ledger.measure(POD, &reading, 1000 * MS);
        assert_eq!(overhead(&ledger), 20, "has freed: {has_freed}");
        assert_eq!(ledger.reserve(other, 1 + if has_freed { 80 } else { 0 }), ReserveResult::Denied);
    }
}

#[test]
fn context_of_a_process_with_reserved_bytes_ends_with_it() {
    let mut ledger = ledger(100);
    assert!(ledger.open(ProcessId(2), POD));
    measure(&mut ledger, 10, 400);
    ledger.reserve(APP, 80);
    measure(&mut ledger, 10, 800);
    assert_eq!(overhead(&ledger), 10);
    ledger.process_gone(APP);
    assert_eq!(ledger.reserve(ProcessId(2), 100), ReserveResult::Granted);
}

/// They connect anew, or call `exec`: the driver may still report what they held before.
#[test]
fn processes_that_open_other_accounts_are_not_taken_for_ones_with_overhead() {
    let mut ledger = ledger(1000);
    let (before, after) = ([1, 2, 3].map(ProcessId), [4, 5, 6].map(ProcessId));
    for process in before {
        ledger.open(process, POD);
        ledger.reserve(process, 60);
    }
    let reading = |processes: [ProcessId; 3], now_ms| {
        let processes = shown(processes.map(|process| (process, 70)));
        Reading { taken_ns: now_ms * MS, processes, unknown: 0 }
    };
    for now_ms in [400, 800] {
        ledger.measure(POD, &reading(before, now_ms), now_ms * MS);
    }
    assert_eq!(overhead(&ledger), 30);
    for (old, new) in before.into_iter().zip(after) {
        ledger.process_gone(old);
        ledger.open(new, POD);
    }
    ledger.measure(POD, &reading(after, 810), 810 * MS);
    assert_eq!(overhead(&ledger), 30, "as far as it is known");
    for process in after {
        ledger.redeclare(process, 60);
    }
    for now_ms in [820, 1200, 1600] {
        ledger.measure(POD, &reading(after, now_ms), now_ms * MS);
        assert!(ledger.client(POD).unwrap().total() <= 210, "at {now_ms}");
    }
}

/// Otherwise the charges in the other account would count twice.
#[test]
fn process_with_several_accounts_is_compared_with_all_charges_of_its_client() {
    let mut ledger = ledger(100);
    assert!(ledger.open(ProcessId(2), POD));
    ledger.reserve(ProcessId(2), 50);
    let reading = ProcessReading { process: APP, bytes: 50, is_only_account: false };
    ledger.measure(POD, &Reading { taken_ns: 0, processes: vec![reading], unknown: 0 }, 0);
    assert_eq!(overhead(&ledger), 0);
}

/// A GPU whose reports lag behind: memory in use by time.
struct LaggingGpu {
    history: Vec<(u64, u64)>,
}

impl LaggingGpu {
    fn at(&self, time: u64) -> u64 {
        self.history.iter().rev().find(|(at, _)| *at <= time).map_or(0, |(_, bytes)| *bytes)
    }
}

const APPS: [ProcessId; 2] = [APP, ProcessId(2)];

proptest! {
    /// Two processes with a constant overhead allocate and free near the limit of their client. Whatever the lag of the readings and their
    /// distance, the ledger never finds more overhead than there is. Once the charges have rested, it finds all of it.
    #[test]
    fn lagging_readings_never_show_more_overhead_than_there_is(
        steps in prop::collection::vec((1u64..300, 0u64..=200, 0u8..4, 0u64..60, 0usize..2), 1..200)
    ) {
        const EACH: u64 = 15;
        const OVERHEAD: u64 = 2 * EACH;
        let mut ledger = ledger(100);
        assert!(ledger.open(APPS[1], POD));
        let mut gpus = [(); 2].map(|()| LaggingGpu { history: vec![(0, EACH)] });
        let reading = |gpus: &[LaggingGpu; 2], at: u64, taken_ns: u64| {
            let processes = shown([0, 1].map(|of| (APPS[of], gpus[of].at(at))));
            Reading { taken_ns, processes, unknown: 0 }
        };
        let (mut now, mut allocated) = (1000 * MS, [0, 0]);
        for (pause_ms, lag_ms, step, bytes, of) in steps {
            now += pause_ms * MS;
            match step {
                0 | 1 => {
                    let fits = allocated[0] + allocated[1] + bytes + OVERHEAD <= 100;
                    let granted = ledger.reserve(APPS[of], bytes) == ReserveResult::Granted;
                    prop_assert!(granted || !fits, "{} bytes refused with {:?} allocated", bytes, allocated);
                    if granted {
                        allocated[of] += bytes;
                        gpus[of].history.push((now, allocated[of] + EACH));
                    }
                }
                2 => {
                    // The driver frees first; the hook reports it afterwards.
                    let bytes = bytes.min(allocated[of]);
                    allocated[of] -= bytes;
                    gpus[of].history.push((now, allocated[of] + EACH));
                    ledger.release(APPS[of], bytes);
                }
                _ => {
                    let reading = reading(&gpus, now - lag_ms * MS, now);
                    now += pause_ms * MS / 10;
                    ledger.measure(POD, &reading, now);
                    prop_assert!(overhead(&ledger) <= OVERHEAD);
                }
            }
        }
        for _ in 0..3 {
            now += 400 * MS;
            ledger.measure(POD, &reading(&gpus, now, now), now);
        }
        prop_assert_eq!(ledger.client(POD).unwrap().total(), allocated[0] + allocated[1] + OVERHEAD);
    }
}
