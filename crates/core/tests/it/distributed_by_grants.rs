//! Data-parallel trainings that share two GPUs by grants, in stepped time: what they make, compared with time slicing by the driver.
//!
//! A rank launches ahead of the GPU, so work is left when its grant ends. It returns the grant when the GPU has done this work, and a collective
//! ends only when it has run on both GPUs at the same time. What is left over runs beside the next holder's work, by the driver's time slices.

use sluice_core::gangs::{GangTable, Slots, assign};
use sluice_core::ledger::{
    Action, Class, ClientSpec, Deadline, GrantRequest, Policy, ReturnKind, TokenLedger,
};
use sluice_core::{ClientId, ProcessId, Share};
use std::collections::VecDeque;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const TICK_NS: u64 = MS / 4;
const GPUS: usize = 2;
/// The driver's time slices. They are not equally long, so that the slices of two GPUs do not stay as they began.
const SLICES_NS: [u64; 6] = [6 * TICK_NS, 7 * TICK_NS, 8 * TICK_NS, 8 * TICK_NS, 9 * TICK_NS, 10 * TICK_NS];
/// A step, as of the training that was measured on two H200: the forward pass, and the backward pass with a collective after each bucket of
/// gradients.
const BUCKETS: usize = 12;
const STEP: [Work; 1 + 2 * BUCKETS] = {
    let mut step = [Work::Compute(12 * MS); 1 + 2 * BUCKETS];
    let mut bucket = 0;
    while bucket < BUCKETS {
        step[1 + 2 * bucket] = Work::Compute(7 * TICK_NS);
        step[2 + 2 * bucket] = Work::Collective(TICK_NS);
        bucket += 1;
    }
    step
};
const STEP_NS: u64 = 12 * MS + BUCKETS as u64 * 8 * TICK_NS;
/// How many steps the host launches before the GPU has finished the first of them.
const STEPS_AHEAD: u64 = 2;

#[derive(Clone, Copy, Debug)]
enum Work {
    Compute(u64),
    /// It makes progress while all ranks run it.
    Collective(u64),
}

/// How the trainings share the GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// By the driver alone.
    TimeSlices,
    /// By grants, in the cycles of channel groups.
    GrantsInShortCycles,
    /// By grants.
    Grants,
}

/// The process of a training on one GPU.
#[derive(Clone, Debug, Default)]
struct Rank {
    /// Launched work that has not ended, and the time that each takes still.
    queue: VecDeque<(Work, u64)>,
    launched: u64,
    finished: u64,
    /// When the host has made its last launch.
    host_free_at: u64,
    grant: Option<Grant>,
    waits: bool,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    from: u64,
    deadline: u64,
}

impl Rank {
    fn wants_to_launch(&self) -> bool {
        let steps = STEP.len() as u64;
        self.launched / steps < self.finished / steps + STEPS_AHEAD
    }

    /// The host launches what the GPU has room for, and takes `launch_ns` for each.
    fn launch(&mut self, now: u64, has_grants: bool, launch_ns: u64) {
        let may_launch = !has_grants || self.grant.is_some_and(|grant| now < grant.deadline);
        while may_launch && self.wants_to_launch() && self.host_free_at < now + TICK_NS {
            let work = STEP[usize::try_from(self.launched).unwrap() % STEP.len()];
            let (Work::Compute(ns) | Work::Collective(ns)) = work;
            self.queue.push_back((work, ns));
            self.launched += 1;
            self.host_free_at = self.host_free_at.max(now) + launch_ns;
        }
    }

    /// Number of the collective that its GPU runs.
    fn collective(&self) -> Option<u64> {
        matches!(self.queue.front(), Some((Work::Collective(_), _))).then_some(self.finished)
    }

    fn run(&mut self) {
        let Some((_, left)) = self.queue.front_mut() else { return };
        *left -= TICK_NS;
        if *left == 0 {
            self.queue.pop_front();
            self.finished += 1;
        }
    }
}

struct Gpu {
    ledger: TokenLedger,
    ranks: Vec<Rank>,
    /// The rank that has the GPU, and until when.
    owner: usize,
    owned_until: u64,
    chance: Chance,
}

/// Numbers without a pattern, the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

impl Gpu {
    fn new(number: u64, shares: &[f64]) -> Self {
        let mut ledger = TokenLedger::new(Policy::default());
        for (number, request) in (0..).zip(shares) {
            let request = Share::from_fraction(*request).unwrap();
            let spec = ClientSpec { request, limit: Share::ONE, class: Class::BestEffort };
            ledger.set_client(ClientId(number), spec, 0);
            ledger.add_process(ProcessId(number), ClientId(number), ReturnKind::Returns).unwrap();
        }
        let ranks = vec![Rank::default(); shares.len()];
        Self { ledger, ranks, owner: 0, owned_until: 0, chance: Chance(number) }
    }

    fn table(&self, by_grants: bool) -> GangTable {
        let shares = self.ledger.entitled_shares().into_iter();
        let shares = shares.filter_map(|(client, share)| Some((client.0.to_string(), share?))).collect();
        GangTable { shares, by_grants, ..GangTable::default() }
    }

    /// What the hooks do: request a grant, and return it when its work has ended.
    fn request_and_return(&mut self, now: u64) {
        for (number, rank) in (0..).zip(&mut self.ranks) {
            let process = ProcessId(number);
            if let Some(grant) = rank.grant.filter(|grant| now >= grant.deadline && rank.queue.is_empty()) {
                rank.grant = None;
                self.ledger.returned(process, now, now - grant.from, now - grant.deadline).unwrap();
            }
            if rank.grant.is_none() && !rank.waits && rank.wants_to_launch() {
                rank.waits = true;
                self.ledger.request(process, now, GrantRequest::default()).unwrap();
            }
        }
    }

    fn decide(&mut self, now: u64) {
        for action in self.ledger.advance(now) {
            let of = |process: ProcessId| usize::try_from(process.0).unwrap();
            match action {
                Action::Grant { process, deadline: Deadline::At(deadline), .. } => {
                    let rank = &mut self.ranks[of(process)];
                    (rank.grant, rank.waits) = (Some(Grant { from: now, deadline }), false);
                }
                Action::Extend { process, deadline, .. } => {
                    let rank = &mut self.ranks[of(process)];
                    rank.grant = rank.grant.map(|grant| Grant { deadline, ..grant });
                }
                Action::Revoke { process, .. } => self.ranks[of(process)].grant = None,
                _ => {}
            }
        }
    }

    /// The rank that has the GPU in this tick. None has it while it switches.
    fn schedule(&mut self, now: u64) -> Option<usize> {
        let has_work = |rank: usize| !self.ranks[rank].queue.is_empty();
        if now < self.owned_until && has_work(self.owner) {
            return Some(self.owner);
        }
        let count = self.ranks.len();
        let next = (1..=count).map(|step| (self.owner + step) % count).find(|rank| has_work(*rank))?;
        let slice = SLICES_NS[usize::try_from(self.chance.below(SLICES_NS.len() as u64)).unwrap()];
        self.owned_until = now + slice;
        let is_switch = std::mem::replace(&mut self.owner, next) != next;
        (!is_switch).then_some(next)
    }
}

/// What a training made of what it makes alone, and its longest time without a step.
#[derive(Clone, Copy, Debug)]
struct Made {
    part: f64,
    longest_ns: u64,
}

/// Runs a training with each of these shares. `launch_ns`: how long a host takes for a launch.
fn train(shares: &[f64], sharing: Sharing, launch_ns: u64) -> Vec<Made> {
    let mut gpus: Vec<Gpu> = (0..GPUS as u64).map(|number| Gpu::new(number, shares)).collect();
    let tables: Vec<GangTable> = gpus.iter().map(|gpu| gpu.table(sharing == Sharing::Grants)).collect();
    let gangs = assign(&tables);
    for gpu in &mut gpus {
        let slot = |client: u64| Some((ClientId(client), *gangs.slots.get(&client.to_string())?));
        let slots: Slots = (0..shares.len() as u64).filter_map(slot).collect();
        gpu.ledger.set_slots(slots.in_cycles_of(gangs.cycle_ns));
    }
    let (from, to) = (2 * S, 22 * S);
    let has_grants = sharing != Sharing::TimeSlices;
    let steps = |gpus: &[Gpu], training: usize| {
        let finished = gpus.iter().map(|gpu| gpu.ranks[training].finished).min().unwrap();
        finished / STEP.len() as u64
    };
    // Steps at `from`, steps so far, when the last one ended, the longest time between two.
    let mut counts = vec![(0, 0, from, 0); shares.len()];
    for now in (0..to).step_by(usize::try_from(TICK_NS).unwrap()) {
        for gpu in &mut gpus {
            if has_grants {
                gpu.request_and_return(now);
                gpu.decide(now);
            }
            for rank in &mut gpu.ranks {
                let late = gpu.chance.below(launch_ns / 2);
                rank.launch(now, has_grants, launch_ns + late);
            }
        }
        let owners: Vec<Option<usize>> = gpus.iter_mut().map(|gpu| gpu.schedule(now)).collect();
        let runs =
            |(gpu, owner): (&Gpu, &Option<usize>)| owner.map(|rank| (rank, gpu.ranks[rank].collective()));
        let running: Vec<Option<(usize, Option<u64>)>> = gpus.iter().zip(&owners).map(runs).collect();
        for (gpu, own) in gpus.iter_mut().zip(&running) {
            let Some((rank, collective)) = *own else { continue };
            if collective.is_none() || running.iter().all(|other| other == own) {
                gpu.ranks[rank].run();
            }
        }
        for (training, (first, last, at, longest)) in counts.iter_mut().enumerate() {
            let made = steps(&gpus, training);
            if now <= from {
                (*first, *last) = (made, made);
            } else if made > *last {
                (*last, *longest, *at) = (made, (*longest).max(now - *at), now);
            }
        }
    }
    let alone = (to - from) as f64 / STEP_NS as f64;
    let made = |(first, last, at, longest): (u64, u64, u64, u64)| Made {
        part: (last - first) as f64 / alone,
        longest_ns: longest.max(to - at),
    };
    counts.into_iter().map(made).collect()
}

fn sum(made: &[Made]) -> f64 {
    made.iter().map(|made| made.part).sum()
}

/// How long the hosts take for a launch: an eighth of the time that the GPU takes for the work, and seven eighths. The sums that the trainings reach at least:
/// slower hosts differ more in what they have launched when a slot ends.
const HOSTS: [(u64, f64); 2] = [(MS / 7, 0.88), (MS, 0.72)];

#[test]
fn trainings_by_grants_make_more_than_by_time_slicing_and_none_stops() {
    for (launch_ns, least) in HOSTS {
        let slices = train(&[0.3, 0.7], Sharing::TimeSlices, launch_ns);
        println!("time slices, launches of {launch_ns} ns: {slices:.3?}, sum {:.3}", sum(&slices));
        for shares in [[0.3, 0.7], [0.5, 0.5]] {
            let made = train(&shares, Sharing::Grants, launch_ns);
            println!("{shares:?}, launches of {launch_ns} ns: {made:.3?}, sum {:.3}", sum(&made));
            assert!(sum(&made) >= least.max(sum(&slices) + 0.05), "{made:?}, {slices:?} by time slicing");
            assert!(made.iter().all(|made| made.longest_ns < S), "{made:?}");
        }
    }
}

/// What the longer cycle is for: the work of two steps takes longer than a slot of 60 ms, so both trainings have work all the time.
#[test]
fn in_short_cycles_trainings_by_grants_make_no_more_than_by_time_slicing() {
    let made = train(&[0.3, 0.7], Sharing::GrantsInShortCycles, HOSTS[0].0);
    println!("short cycles: {made:.3?}, sum {:.3}", sum(&made));
    assert!(sum(&made) < 0.8, "{made:?}");
}
