//! A daemon of two GPUs, and kernels that wait for each other on them.

use super::*;
use crate::engine::CollectiveRank;
use crate::params::{LOAD_NS, SUBMIT_NS};
use std::time::{Duration, Instant};

const BEGIN_NS: u64 = SUBMIT_NS + LOAD_NS;
const TRANSFER_NS: u64 = 300_000;

fn two_gpus(clock: Clock) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let configs = ["0", "1"].map(|gpu| DaemonConfig { clock, ..DaemonConfig::at(dir.path().join(gpu)) });
    Bench { handle: spawn_node_thread(configs.into()).unwrap(), _dir: dir }
}

/// A process on one GPU.
fn process_on(bench: &Bench, gpu: usize) -> Process {
    let gpu = Arc::new(Gpu::connect(bench.handle.socket_of(gpu), "rank").unwrap());
    let group = gpu.open_context(None).unwrap();
    let name = gpu.name("all_reduce").unwrap();
    Process { gpu, group, name }
}

fn all_reduce(process: &Process, rank: u32) -> Work {
    let rank = CollectiveRank { communicator: 1, rank, ranks: 2, parts: 1 };
    Work::Collective { rank, ns: TRANSFER_NS, sms: 24, name: process.name }
}

fn now(bench: &Bench, gpu: usize) -> u64 {
    client::ledger(bench.handle.socket_of(gpu)).unwrap().gpu.now_ns
}

#[test]
fn advance_of_one_gpu_moves_the_clock_of_all() {
    let bench = two_gpus(Clock::STEPPED);
    let [first, second] = [0, 1].map(|gpu| process_on(&bench, gpu));
    let streams = [&first, &second].map(|process| process.stream(StreamKind::NonBlocking));
    let begin = now(&bench, 0);
    let early = streams[0].submit(StreamCommand::Work(all_reduce(&first, 0)), None).unwrap();
    client::advance(bench.handle.socket_of(0), 5_000_000).unwrap();
    assert_eq!((now(&bench, 0), now(&bench, 1)), (begin + 5_000_000, begin + 5_000_000));
    let late = streams[1].submit(StreamCommand::Work(all_reduce(&second, 1)), None).unwrap();
    client::advance(bench.handle.socket_of(1), BEGIN_NS + TRANSFER_NS - 1).unwrap();
    assert!(!first.gpu.is_done(early) && !second.gpu.is_done(late));
    client::advance(bench.handle.socket_of(1), 1).unwrap();
    assert!(first.gpu.is_done(early) && second.gpu.is_done(late));
    let rows = [0, 1].map(|gpu| client::ledger(bench.handle.socket_of(gpu)).unwrap().processes[0].clone());
    assert_eq!(rows.map(|row| row.gpu_ns), [5_000_000 + TRANSFER_NS, TRANSFER_NS]);
}

/// The first rank waits for its kernel; the second one launches `command` and waits for nothing.
fn check_wait(command: impl FnOnce(&Process) -> StreamCommand) {
    let bench = two_gpus(Clock::Real);
    let [waiting, other] = [0, 1].map(|gpu| process_on(&bench, gpu));
    let streams = [&waiting, &other].map(|process| process.stream(StreamKind::NonBlocking));
    let command = command(&other);
    let mark = streams[0].submit(StreamCommand::Work(all_reduce(&waiting, 0)), None).unwrap();
    waiting.gpu.watch(mark);
    // The daemon sleeps: it knows of no event.
    std::thread::sleep(Duration::from_millis(20));
    assert!(!waiting.gpu.is_known_done(mark));
    streams[1].submit(other.kernel(100), None).unwrap();
    streams[1].submit(command, None).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while !waiting.gpu.is_known_done(mark) {
        assert!(Instant::now() < end, "the daemon did not read the other rank's commands");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn rank_that_waits_learns_of_a_launch_that_its_process_does_not_wait_for() {
    check_wait(|process| StreamCommand::Work(all_reduce(process, 1)));
}

#[test]
fn rank_that_waits_learns_of_a_launch_of_a_graph() {
    check_wait(|process| {
        let node = Node { work: all_reduce(process, 1), successors: Vec::new() };
        StreamCommand::Graph(process.gpu.add_graph(vec![node], false).unwrap())
    });
}
