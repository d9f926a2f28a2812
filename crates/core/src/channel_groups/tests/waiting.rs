//! Processes whose work waits: for functions of the host, copies, values in memory.

use super::simulation::{MS, S, Simulation, US, Work};
use crate::ProcessId;
use crate::channel_groups::GroupId;
use proptest::prelude::*;

const WAITING: ProcessId = ProcessId(1);
const OTHER: ProcessId = ProcessId(2);

/// A process of this work beside one that always has a kernel, after a second. What the second one has of the GPU and how many kernels the
/// first one has in 10 s.
fn beside_always(sim: &mut Simulation, work: Work) -> (f64, u64) {
    sim.best_effort(1, 50, work);
    sim.best_effort(2, 50, Work::Always);
    sim.run(S);
    sim.reset_counts();
    let before = sim.processes[&WAITING].turns;
    sim.run(10 * S);
    (sim.gpu_time[&OTHER] as f64 / (10 * S) as f64, sim.processes[&WAITING].turns - before)
}

/// The parts of the GPU that a process with a request of so many percent and another one, which always has a kernel, have for 20 s, after 2 s.
fn parts(sim: &mut Simulation, percent: u32, work: Work) -> [f64; 2] {
    sim.best_effort(1, percent, work);
    sim.best_effort(2, 100 - percent, Work::Always);
    sim.run(2 * S);
    sim.reset_counts();
    sim.run(20 * S);
    [WAITING, OTHER].map(|id| sim.gpu_time[&id] as f64 / (20 * S) as f64)
}

/// The kernel runs at once, on half of the GPU.
#[test]
fn process_that_waits_leaves_the_gpu_to_others_and_its_short_kernels_wait_for_no_quantum() {
    let (kernel, wait) = (100 * US, 20 * MS);
    let mut sim = Simulation::new();
    let (other, turns) = beside_always(&mut sim, Work::Turns { kernel, wait });
    assert!(other >= 0.98, "{other} of the GPU for the other client");
    let ideal = 10 * S / (2 * kernel + wait);
    assert!(turns * 100 >= ideal * 98, "{turns} of {ideal} turns");
    assert!(sim.controls.len() <= 20, "{} controls in 10 s", sim.controls.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Some waits are too short to leave a quantum, which then lasts up to its deadline. A manager that sleeps does not see those that are shorter
    /// than the time between two looks.
    #[test]
    fn process_that_mostly_waits_leaves_the_gpu_to_others_and_is_not_slower_than_beside_equal_slices(
        kernel in 50 * US..2 * MS,
        waits_for in 2..30_u64,
        sleeps in any::<bool>(),
        waits_end_anyway in any::<bool>(),
    ) {
        let wait = (kernel * waits_for).max(if sleeps { 1_200 * US } else { 300 * US });
        let mut sim = Simulation::new();
        (sim.sleeps, sim.waits_end_anyway) = (sleeps, waits_end_anyway);
        let (other, turns) = beside_always(&mut sim, Work::Turns { kernel, wait });
        let ideal = 10 * S / (2 * kernel + wait);
        prop_assert!(turns * 100 >= ideal * 95, "{turns} of {ideal} turns");
        let left = 1.0 - (kernel * turns) as f64 / (10 * S) as f64;
        prop_assert!(other >= left - 0.02, "{other} of the GPU for the other client, of {left}");
    }
}

/// It has less than its share, so it may have each of its kernels beside the other one.
#[test]
fn process_that_waits_between_longer_kernels_is_not_slower_than_beside_equal_slices() {
    for (kernel, wait) in [(5 * MS, 4 * MS), (12 * MS, 4 * MS), (2 * MS, 5 * MS)] {
        let mut sim = Simulation::new();
        let (other, turns) = beside_always(&mut sim, Work::Turns { kernel, wait });
        let ideal = 10 * S / (2 * kernel + wait);
        assert!(turns * 100 >= ideal * 90, "{turns} of {ideal} turns of {kernel}");
        assert!(other >= 0.5, "{other} of the GPU for the other client beside {kernel}");
    }
}

/// It waits for less time than it executes, so it keeps its quanta.
#[test]
fn client_that_pauses_for_a_moment_behind_each_kernel_keeps_its_share() {
    let [own, _] = parts(&mut Simulation::new(), 80, Work::Turns { kernel: 20 * MS, wait: MS });
    assert!(own >= 0.74, "{own} of the GPU");
}

/// While it is ahead of the others its groups are disabled, and are enabled for each of its quanta.
#[test]
fn client_that_waits_for_longer_than_it_executes_and_could_use_more_has_its_share() {
    let [own, other] = parts(&mut Simulation::new(), 10, Work::Turns { kernel: MS, wait: 2 * MS });
    assert!(own >= 0.095 && other >= 0.87, "{own} and {other} of the GPU");
}

/// It would have half of the GPU if it were believed.
#[test]
fn process_that_falsely_reports_waits_has_no_more_than_its_share() {
    let mut sim = Simulation::new();
    sim.false_waits.insert(WAITING);
    let [_, other] = parts(&mut sim, 10, Work::Always);
    assert!(other >= 0.87, "{other} of the GPU for the other client");
}

/// One check reads the counts of few groups. Those of the honest processes come first.
#[test]
fn false_report_beside_many_processes_that_wait_is_found() {
    const LIAR: u64 = 7;
    let mut sim = Simulation::new();
    sim.best_effort(2, 40, Work::Always);
    for id in [1, 3, 4, 5, 6] {
        sim.best_effort(id, 10, Work::Turns { kernel: 100 * US, wait: 20 * MS });
    }
    sim.best_effort(LIAR, 10, Work::Always);
    sim.false_waits.insert(ProcessId(LIAR));
    sim.run(6 * S);
    sim.reset_counts();
    sim.run(10 * S);
    let [other, liar] = [OTHER, ProcessId(LIAR)].map(|id| sim.gpu_time[&id] as f64 / (10 * S) as f64);
    assert!(
        liar <= 0.3 && other >= 0.6,
        "{liar} of the GPU for the process with the false report, {other} for the other one"
    );
}

/// What the others lose without the report.
#[test]
fn process_that_does_not_report_its_waits_holds_its_quanta() {
    let mut sim = Simulation::new();
    sim.reports_no_waits.insert(WAITING);
    let (other, turns) = beside_always(&mut sim, Work::Turns { kernel: 100 * US, wait: 20 * MS });
    assert!(other <= 0.55 && turns <= 300, "{other} of the GPU for the other client, {turns} turns");
}

#[test]
fn process_with_long_kernels_gives_up_its_quantum_while_it_waits() {
    let mut sim = Simulation::new();
    let (other, turns) = beside_always(&mut sim, Work::Turns { kernel: 60 * MS, wait: 300 * MS });
    assert!(other >= 0.75, "{other} of the GPU for the other client");
    assert!(turns >= 20, "{turns} turns");
}

/// The count was read before the process left, and arrives afterwards.
#[test]
fn count_of_a_group_whose_process_has_left_concerns_no_process() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.best_effort(2, 50, Work::Always);
    let exceeds = |sim: &mut Simulation| sim.scheduler.check_switches(GroupId(1), u32::MAX, sim.now);
    assert!(exceeds(&mut sim), "more than its grants explain");
    sim.dies(1);
    let before = sim.scheduler.clone();
    assert!(!exceeds(&mut sim));
    assert!(sim.scheduler == before, "the other process is believed as before");
}
