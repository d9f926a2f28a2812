//! Clients whose work waits for other work of theirs: no client keeps the GPU for longer than a bound while none of its work can run and
//! another client waits. And each client goes on.

use super::simulated_process::Process;
use super::simulation::{MS, S, Simulation, TurnWait, US, Work};
use crate::channel_groups::{ChannelGroupPolicy, QuantumState};
use crate::ledger::{Class, Policy};
use crate::{ClientId, ProcessId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// What a client does.
#[derive(Clone, Copy, Debug)]
enum Program {
    /// It always has a kernel.
    Always,
    /// A kernel and a function of the host or a copy, in turn.
    Commands { kernel: u64, wait: u64 },
    /// So many processes have a kernel in turn.
    Processes { number: u64, kernel: u64, wait: TurnWait },
    /// A process has a kernel in so many contexts in turn.
    Contexts { number: u64, kernel: u64 },
}

/// The latency-critical client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Critical {
    Absent,
    Idle,
    Working,
}

fn program() -> impl Strategy<Value = Program> {
    let kernel = prop_oneof![100 * US..MS, MS..8 * MS];
    let wait = prop::sample::select(vec![TurnWait::Pipe, TurnWait::Memory, TurnWait::Kernel]);
    (0..7_u8, kernel, 2..=3_u64, wait, 2 * MS..60 * MS).prop_map(|(which, kernel, number, turn, wait)| {
        match which {
            0 | 1 => Program::Always,
            2 => Program::Commands { kernel, wait },
            3 => Program::Contexts { number, kernel },
            _ => Program::Processes { number, kernel, wait: turn },
        }
    })
}

fn critical() -> impl Strategy<Value = Critical> {
    prop::sample::select(vec![Critical::Absent, Critical::Idle, Critical::Working])
}

fn simulation(programs: &[Program], critical: Critical) -> Simulation {
    let mut sim = Simulation::new();
    let percent = 80 / u32::try_from(programs.len()).unwrap();
    for (client, program) in (1..).zip(programs) {
        sim.client(client, percent, 100, Class::BestEffort);
        let first = client * 10;
        let mut add = |id, groups: &[u64], work| sim.process(id, client, groups, Class::BestEffort, work);
        match *program {
            Program::Always => add(first, &[first], Work::Always),
            Program::Commands { kernel, wait } => add(first, &[first], Work::Turns { kernel, wait }),
            Program::Processes { number, kernel, wait } => {
                (first..first + number).for_each(|id| add(id, &[id], Work::InTurn { kernel, wait }));
            }
            Program::Contexts { number, kernel } => {
                add(first, &(first..first + number).collect::<Vec<_>>(), Work::Contexts { kernel });
            }
        }
    }
    match critical {
        Critical::Absent => {}
        Critical::Idle => sim.critical(90, Work::Never),
        Critical::Working => sim.critical(90, Work::Periodic { from: 0, period: 20 * MS, busy: MS }),
    }
    sim
}

/// The clients that keep the GPU, have a kernel in no enabled group, and another client waits.
fn idle_holders(sim: &Simulation) -> BTreeSet<ClientId> {
    let of = |id: &ProcessId| sim.processes[id].client;
    let keeps = |id: &&ProcessId| {
        matches!(sim.scheduler.quantum_state(**id), Some(QuantumState::Granted | QuantumState::Ending))
    };
    let holders: BTreeSet<ClientId> = sim.processes.keys().filter(keeps).map(of).collect();
    let waiting: BTreeSet<ClientId> = sim.tokens.waiting().map(|id| of(&id)).collect();
    let runs = |client: ClientId| {
        let its = sim.processes.values().filter(|process| process.client == client);
        its.into_iter().any(|process| process.makes_progress(sim.now) && sim.is_enabled(process))
    };
    let others_wait =
        |client: ClientId| waiting.iter().any(|other| *other != client && !holders.contains(other));
    holders.iter().copied().filter(|client| !runs(*client) && others_wait(*client)).collect()
}

/// The longest times for which a client was an idle holder.
#[derive(Clone, Copy, Debug, Default)]
struct Longest {
    /// While controls could be made.
    earned_ns: u64,
    /// Where controls had to wait, because their rate was spent.
    spent_ns: u64,
}

/// The controls of a hand-off between clients with three groups each.
const CONTROLS_NS: u64 = 4 * MS;

/// How often the state is looked at.
const STEP: u64 = 250 * US;

fn observe(sim: &mut Simulation, ns: u64) -> Longest {
    let (mut since, mut longest) = (BTreeMap::<ClientId, (u64, bool)>::new(), Longest::default());
    for _ in 0..ns / STEP {
        sim.run(STEP);
        let holders = idle_holders(sim);
        since.retain(|client, _| holders.contains(client));
        let spent = sim.scheduler.control_ready_at() > sim.now;
        for client in holders {
            let (began, was_spent) = since.entry(client).or_insert((sim.now, false));
            *was_spent |= spent;
            let of = if *was_spent { &mut longest.spent_ns } else { &mut longest.earned_ns };
            *of = (*of).max(sim.now - *began);
        }
    }
    longest
}

/// The longest times. While a latency-critical client works, one group is enabled, and a stream that waits counts as work: the client keeps
/// its quantum, and the hand-off waits for a good moment. A client that is behind gets two quanta in a row, and may have its kernel in another
/// context in both.
fn bounds(critical: Critical) -> Longest {
    let policy = ChannelGroupPolicy::default();
    let quantum_ns = Policy::default().quantum_ns;
    let spent_ns = quantum_ns + policy.max_extension_ns;
    match critical {
        Critical::Working => {
            let two_ns = 2 * quantum_ns + policy.window_wait_ns;
            Longest { earned_ns: two_ns, spent_ns: two_ns + policy.max_extension_ns }
        }
        Critical::Absent | Critical::Idle => {
            Longest { earned_ns: policy.idle_ns + policy.poll_ns + CONTROLS_NS, spent_ns }
        }
    }
}

fn check(sim: &mut Simulation, critical: Critical) -> Result<(), String> {
    let (longest, bounds) = (observe(sim, 2 * S), bounds(critical));
    if longest.earned_ns <= bounds.earned_ns && longest.spent_ns <= bounds.spent_ns {
        return Ok(());
    }
    Err(format!("a client held the GPU without work: {longest:?}, allowed: {bounds:?}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn clients_do_not_hold_the_gpu_while_their_work_waits(
        programs in proptest::collection::vec(program(), 2..=4),
        critical in critical(),
    ) {
        let mut sim = simulation(&programs, critical);
        check(&mut sim, critical).map_err(TestCaseError::fail)?;
        let takes_turns = |process: &Process| {
            matches!(process.work, Work::Turns { .. } | Work::InTurn { .. } | Work::Contexts { .. })
        };
        for (id, process) in sim.processes.iter().filter(|(_, process)| takes_turns(process)) {
            prop_assert!(process.turns > 0, "{:?} has had no kernel", id);
        }
    }
}

/// The hook's fault violates the bound, so the property can fail.
#[test]
fn client_holds_the_gpu_too_long_where_its_process_does_not_report_waits() {
    let programs = [Program::Always, Program::Commands { kernel: 30 * MS, wait: 100 * MS }];
    let mut sim = simulation(&programs, Critical::Absent);
    assert_eq!(check(&mut sim, Critical::Absent), Ok(()));
    sim.reports_no_waits.insert(ProcessId(20));
    assert!(check(&mut sim, Critical::Absent).is_err());
}
