//! Collective kernels of ranks on several GPUs: when they end, what the ledger charges, and what a rank without the GPU does to the others.

use sluice_sim::engine::{
    Access, CollectiveRank, Command, Control, Engine, GroupId, Interconnect, OwnerId, StreamId, StreamKind,
    Work,
};
use sluice_sim::params;

const MS: u64 = 1_000_000;
/// Time from a launch on an idle GPU until its first kernel begins.
const BEGIN: u64 = params::SUBMIT_NS + params::LOAD_NS;
const TRANSFER: u64 = 300_000;

/// A process with one context and one stream on the GPU with this index.
struct Process {
    gpu: usize,
    owner: OwnerId,
    group: GroupId,
    stream: StreamId,
}

/// GPUs of one node at time 0.
struct Node {
    engines: Vec<Engine>,
    interconnect: Interconnect,
    /// Each completed command: its GPU, its stream, and the time.
    completed: Vec<(usize, StreamId, u64)>,
}

impl Node {
    fn new(gpus: usize) -> Self {
        let engines = (0..gpus).map(|_| Engine::new(params::MEMORY_BYTES, 0)).collect();
        Self { engines, interconnect: Interconnect::default(), completed: Vec::new() }
    }

    fn process(&mut self, gpu: usize) -> Process {
        let engine = &mut self.engines[gpu];
        let owner = engine.account_mut().open(0, "");
        engine.account_mut().name(owner, "kernel");
        let group = engine.add_group(owner, params::TIMESLICE_NS);
        let stream = engine.add_stream(group, StreamKind::NonBlocking, 0, 0);
        Process { gpu, owner, group, stream }
    }

    /// A process for each of these GPUs.
    fn job<const RANKS: usize>(&mut self, gpus: [usize; RANKS]) -> [Process; RANKS] {
        gpus.map(|gpu| self.process(gpu))
    }

    fn submit(&mut self, process: &Process, at: u64, work: Work) {
        let submitted = self.engines[process.gpu].submit(process.stream, at, Command::Work(work));
        assert!(submitted.is_some(), "the stream is open");
    }

    fn compute(&mut self, process: &Process, at: u64, ns: u64) {
        self.submit(process, at, Work::Kernel { ns, sms: params::SMS, name: 0 });
    }

    fn run_to(&mut self, to: u64) {
        loop {
            let mut engines: Vec<&mut Engine> = self.engines.iter_mut().collect();
            let next = self.interconnect.next_event(&mut engines).filter(|at| *at <= to);
            let at = next.unwrap_or(to);
            self.interconnect.advance(&mut engines, at);
            for (gpu, engine) in self.engines.iter_mut().enumerate() {
                let advanced = engine.take_advanced().into_iter();
                self.completed.extend(advanced.map(|advanced| (gpu, advanced.stream, at)));
            }
            if next.is_none() {
                return;
            }
        }
    }

    /// The times at which the commands of a process were completed.
    fn times(&self, of: &Process) -> Vec<u64> {
        let mine = self.completed.iter().filter(|(gpu, stream, _)| (*gpu, *stream) == (of.gpu, of.stream));
        mine.map(|(.., at)| *at).collect()
    }

    fn set_access(&mut self, of: &Process, access: Access) {
        self.engines[of.gpu].control(of.group, Control::Access(access));
    }

    fn gpu_ns(&self, of: &Process) -> u64 {
        self.engines[of.gpu].ledger().processes[of.owner.0].gpu_ns
    }

    fn kernel_ns(&self, of: &Process) -> u64 {
        self.engines[of.gpu].ledger().processes[of.owner.0].kernel_ns
    }
}

fn all_reduce(communicator: u64, rank: u32, ranks: u32) -> Work {
    in_parts(CollectiveRank { communicator, rank, ranks, parts: 1 })
}

fn in_parts(rank: CollectiveRank) -> Work {
    Work::Collective { rank, ns: TRANSFER, sms: 24, name: 0 }
}

#[test]
fn first_rank_spins_until_the_last_one_begins_and_both_end_together() {
    let mut node = Node::new(2);
    let [early, late] = node.job([0, 1]);
    node.submit(&early, 0, all_reduce(1, 0, 2));
    node.submit(&late, 5 * MS, all_reduce(1, 1, 2));
    node.run_to(20 * MS);
    let end = 5 * MS + BEGIN + TRANSFER;
    assert_eq!((node.times(&early), node.times(&late)), (vec![end], vec![end]));
    // The GPU was the spinning kernel's, and the ledger charges it as any kernel.
    assert_eq!((node.gpu_ns(&early), node.gpu_ns(&late)), (5 * MS + TRANSFER, TRANSFER));
    assert_eq!((node.kernel_ns(&early), node.kernel_ns(&late)), (5 * MS + TRANSFER, TRANSFER));
}

#[test]
fn kernel_of_a_rank_alone_never_ends() {
    let mut node = Node::new(2);
    let [first, second] = node.job([0, 1]);
    node.submit(&first, 0, all_reduce(1, 0, 2));
    // Neither its own second kernel nor the other rank of another job is the missing rank.
    node.submit(&first, 0, all_reduce(1, 0, 2));
    node.submit(&second, 0, all_reduce(2, 1, 2));
    node.run_to(1_000 * MS);
    assert!(node.completed.is_empty(), "{:?}", node.completed);
    assert_eq!(node.gpu_ns(&first), 1_000 * MS - BEGIN);
}

#[test]
fn each_round_waits_for_the_same_round_of_every_rank() {
    let mut node = Node::new(3);
    let ranks = node.job([0, 1, 2]);
    // Rank 0 has launched all rounds at once; ranks 1 and 2 compute before each round, by turns the longer time.
    for round in 0..4 {
        for (rank, process) in (0..).zip(&ranks) {
            if rank > 0 {
                node.compute(process, 0, if round % 2 == rank % 2 { 3 * MS } else { MS });
            }
            node.submit(process, 0, all_reduce(1, rank, 3));
        }
    }
    node.run_to(100 * MS);
    let ends: Vec<u64> = (1..=4).map(|round| BEGIN + round * (3 * MS + TRANSFER)).collect();
    assert_eq!(node.times(&ranks[0]), ends);
    for process in &ranks[1..] {
        let rounds: Vec<u64> = node.times(process).into_iter().skip(1).step_by(2).collect();
        assert_eq!(rounds, ends);
    }
}

#[test]
fn stopped_rank_does_not_arrive_and_the_others_spin() {
    let mut node = Node::new(2);
    let [running, stopped] = node.job([0, 1]);
    node.compute(&stopped, 0, MS);
    node.submit(&stopped, 0, all_reduce(1, 1, 2));
    node.submit(&running, 0, all_reduce(1, 0, 2));
    node.run_to(MS / 2);
    node.set_access(&stopped, Access::Stopped);
    node.run_to(50 * MS);
    assert!(node.times(&running).is_empty());
    assert_eq!(node.gpu_ns(&running), 50 * MS - BEGIN);
    node.set_access(&stopped, Access::Enabled);
    node.run_to(60 * MS);
    // The rest of the kernel in whose middle it was stopped comes first.
    let end = node.times(&running);
    assert_eq!(end, node.times(&stopped)[1..]);
    let least = 50 * MS + MS / 2 + TRANSFER;
    assert!((least..least + MS / 5).contains(&end[0]), "{end:?}");
}

#[test]
fn rank_that_is_stopped_while_it_spins_has_arrived() {
    let mut node = Node::new(2);
    let [first, second] = node.job([0, 1]);
    node.submit(&first, 0, all_reduce(1, 0, 2));
    node.run_to(MS);
    node.set_access(&first, Access::Stopped);
    node.submit(&second, 2 * MS, all_reduce(1, 1, 2));
    node.run_to(40 * MS);
    // Its data lie in the buffers, so the other one ends. It has not made its own transfer.
    assert_eq!((node.times(&second), node.times(&first)), (vec![2 * MS + BEGIN + TRANSFER], vec![]));
    node.set_access(&first, Access::Enabled);
    node.run_to(50 * MS);
    let end = node.times(&first);
    assert!(end.len() == 1 && (40 * MS + TRANSFER..41 * MS).contains(&end[0]), "{end:?}");
}

#[test]
fn rank_that_is_stopped_between_two_parts_keeps_the_others_at_the_next_part() {
    let mut node = Node::new(2);
    let ranks = node.job([0, 1]);
    for (rank, process) in (0..).zip(&ranks) {
        node.submit(process, 0, in_parts(CollectiveRank { communicator: 1, rank, ranks: 2, parts: 3 }));
    }
    // In the middle of the second of three parts.
    node.run_to(BEGIN + TRANSFER / 2);
    node.set_access(&ranks[1], Access::Stopped);
    node.run_to(40 * MS);
    assert!(node.completed.is_empty(), "{:?}", node.completed);
    node.set_access(&ranks[1], Access::Enabled);
    node.run_to(50 * MS);
    let ends = ranks.each_ref().map(|process| node.times(process)[0]);
    // Half a part of the stopped one, and the third part of both.
    assert_eq!(ends[0], ends[1]);
    assert!((40 * MS + TRANSFER / 2..41 * MS).contains(&ends[0]), "{ends:?}");
    assert_eq!(node.gpu_ns(&ranks[0]), ends[0] - BEGIN);
}

#[test]
fn parts_of_ranks_that_run_take_no_longer_than_the_whole() {
    let mut node = Node::new(2);
    let ranks = node.job([0, 1]);
    for (rank, process) in (0..).zip(&ranks) {
        node.submit(process, 0, in_parts(CollectiveRank { communicator: 1, rank, ranks: 2, parts: 6 }));
    }
    node.run_to(MS);
    for process in &ranks {
        assert_eq!((node.times(process), node.kernel_ns(process)), (vec![BEGIN + TRANSFER], TRANSFER));
    }
}

#[test]
fn spinning_rank_takes_its_time_slices_from_a_neighbour() {
    let mut node = Node::new(2);
    let [spinning, other] = node.job([0, 1]);
    let neighbour = node.process(0);
    node.compute(&neighbour, 0, 1_000 * MS);
    node.submit(&spinning, 0, all_reduce(1, 0, 2));
    node.run_to(400 * MS);
    let shares = [&spinning, &neighbour].map(|process| node.gpu_ns(process) as f64 / (400 * MS) as f64);
    // Half of the time each, but for a tenth that the switches take.
    assert!(shares.iter().all(|share| (0.44..0.47).contains(share)), "{shares:?}");
    node.submit(&other, 400 * MS, all_reduce(1, 1, 2));
    node.run_to(410 * MS);
    assert_eq!(node.times(&other), [400 * MS + BEGIN + TRANSFER]);
    let end = node.times(&spinning);
    let slice_and_switches = params::TIMESLICE_NS + MS / 2;
    assert!(end.len() == 1 && end[0] <= 400 * MS + BEGIN + TRANSFER + slice_and_switches, "{end:?}");
}

#[test]
fn two_jobs_that_alternate_on_two_gpus_both_progress() {
    let mut node = Node::new(2);
    let jobs = [1u64, 2].map(|communicator| (communicator, node.job([0, 1])));
    for (communicator, ranks) in &jobs {
        for (rank, process) in (0..).zip(ranks) {
            for _ in 0..20 {
                node.compute(process, 0, 10 * MS);
                node.submit(process, 0, all_reduce(*communicator, rank, 2));
            }
        }
    }
    node.run_to(450 * MS);
    for (communicator, ranks) in &jobs {
        let rounds = ranks.each_ref().map(|process| node.times(process).len() / 2);
        // 20 ms a round and 10 % for switches, and now and then most of the other job's slice.
        assert!(rounds.iter().all(|rounds| (16..=20).contains(rounds)), "job {communicator}: {rounds:?}");
    }
}
