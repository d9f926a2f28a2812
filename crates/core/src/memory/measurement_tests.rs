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

fn measure(ledger: &mut MemoryLedger, bytes: u64, now_ms: u64) {
    let reading = Reading { taken_ns: now_ms * MS, processes: vec![(APP, bytes)], unknown: 0 };
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
    let reading = Reading { taken_ns: 0, processes: vec![(APP, 30), (ProcessId(2), 20)], unknown: 5 };
    ledger.reserve(APP, 10);
    ledger.measure(POD, &reading, 0);
    assert_eq!(overhead(&ledger), 45);
    ledger.process_gone(APP);
    assert_eq!(ledger.client(POD).unwrap().total(), 25);
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

proptest! {
    /// A process with a constant overhead allocates and frees near its limit. Whatever the lag of the readings and their distance, the
    /// ledger never finds more overhead than there is. Once the charge has rested, it finds all of it.
    #[test]
    fn lagging_readings_never_show_more_overhead_than_there_is(
        steps in prop::collection::vec((1u64..300, 0u64..=200, 0u8..4, 0u64..60), 1..200)
    ) {
        const OVERHEAD: u64 = 30;
        let mut ledger = ledger(100);
        let mut gpu = LaggingGpu { history: vec![(0, OVERHEAD)] };
        let (mut now, mut allocated) = (1000 * MS, 0);
        for (pause_ms, lag_ms, step, bytes) in steps {
            now += pause_ms * MS;
            match step {
                0 | 1 => {
                    let fits = allocated + bytes + OVERHEAD <= 100;
                    let granted = ledger.reserve(APP, bytes) == ReserveResult::Granted;
                    prop_assert!(granted || !fits, "{} bytes refused with {} allocated", bytes, allocated);
                    if granted {
                        allocated += bytes;
                        gpu.history.push((now, allocated + OVERHEAD));
                    }
                }
                2 => {
                    // The driver frees first; the hook reports it afterwards.
                    let bytes = bytes.min(allocated);
                    allocated -= bytes;
                    gpu.history.push((now, allocated + OVERHEAD));
                    ledger.release(APP, bytes);
                }
                _ => {
                    let shown = gpu.at(now - lag_ms * MS);
                    let reading = Reading { taken_ns: now, processes: vec![(APP, shown)], unknown: 0 };
                    now += pause_ms * MS / 10;
                    ledger.measure(POD, &reading, now);
                    prop_assert!(overhead(&ledger) <= OVERHEAD);
                }
            }
        }
        for _ in 0..3 {
            now += 400 * MS;
            measure(&mut ledger, gpu.at(now), now / MS);
        }
        prop_assert_eq!(ledger.client(POD).unwrap().total(), allocated + OVERHEAD);
    }
}
