//! A daemon on a thread and clients in the same process.

mod collectives;
mod controls;
mod stepped;

use super::*;
use crate::client::{self, Gpu, GpuError, Stream, StreamCommand};
use crate::engine::{Compare, Condition, CopyEngine, Node, StreamKind, Work};
use crate::ledger::ProcessLedger;
use sluice_sys::clock::monotonic_ns;
use std::sync::Mutex;

struct Bench {
    handle: Handle,
    _dir: tempfile::TempDir,
}

fn daemon() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let handle = spawn_thread(DaemonConfig::at(dir.path().join("gpu"))).unwrap();
    Bench { handle, _dir: dir }
}

impl Bench {
    fn process(&self, label: &str) -> Process {
        let gpu = Arc::new(Gpu::connect(self.handle.socket(), label).unwrap());
        let group = gpu.open_context(None).unwrap();
        let name = gpu.name("spin").unwrap();
        Process { gpu, group, name }
    }

    fn row(&self, label: &str) -> ProcessLedger {
        client::ledger(self.handle.socket()).unwrap().by_label(label).unwrap().clone()
    }
}

struct Process {
    gpu: Arc<Gpu>,
    group: u64,
    name: usize,
}

impl Process {
    fn stream(&self, kind: StreamKind) -> Stream {
        Stream::open(&self.gpu, self.group, kind, 0).unwrap()
    }

    fn kernel(&self, us: u64) -> StreamCommand {
        StreamCommand::Work(Work::Kernel { ns: us * 1_000, sms: 132, name: self.name })
    }
}

#[test]
fn ledger_keeps_the_kernels_of_an_ended_process() {
    let bench = daemon();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::Blocking);
    process.gpu.allocate(1_000).unwrap();
    let effects = Arc::new(Mutex::new(Vec::new()));
    for i in 0..10 {
        let seen = effects.clone();
        stream.submit(process.kernel(100), Some(Box::new(move || seen.lock().unwrap().push(i)))).unwrap();
    }
    process.gpu.wait_for(stream.mark()).unwrap();
    assert_eq!(*effects.lock().unwrap(), (0..10).collect::<Vec<_>>());
    let row = bench.row("me");
    assert_eq!((row.kernels_submitted, row.kernels_completed, row.gpu_ns), (10, 10, 1_000_000));
    assert_eq!((row.memory_bytes, row.ended, row.kernels["spin"]), (1_000, false, 10));
    drop((stream, process));
    let ledger = client::ledger(bench.handle.socket()).unwrap();
    let row = ledger.by_label("me").unwrap();
    assert_eq!((row.memory_bytes, row.memory_peak_bytes, row.ended), (0, 1_000, true));
    assert_eq!(ledger.gpu.memory_used, 0);
}

#[test]
fn memory_is_counted_to_the_byte_across_processes() {
    let bench = daemon();
    let (a, b) = (bench.process("a"), bench.process("b"));
    let (free, total) = a.gpu.memory().unwrap();
    assert_eq!(
        (free, total),
        (crate::params::MEMORY_BYTES - 2 * crate::params::CONTEXT_BYTES, crate::params::MEMORY_BYTES)
    );
    a.gpu.allocate(free - 10).unwrap();
    assert!(matches!(b.gpu.allocate(11), Err(GpuError::OutOfMemory)));
    b.gpu.allocate(10).unwrap();
    a.gpu.free(1).unwrap();
    b.gpu.allocate(1).unwrap();
    assert_eq!(b.gpu.memory().unwrap().0, 0);
    assert_eq!((bench.row("a").memory_bytes, bench.row("b").memory_bytes), (free - 11, 11));
    drop(a);
    assert_eq!(bench.row("b").memory_bytes, 11);
    // The next reading of the ledger shows the end of `a`.
    assert_eq!(b.gpu.memory().unwrap().0, total - crate::params::CONTEXT_BYTES - 11);
}

#[test]
fn reported_memory_of_a_process_includes_context_and_modules_and_whole_blocks() {
    let bench = daemon();
    let process = bench.process("me");
    assert_eq!(bench.row("me").reported_bytes, crate::params::CONTEXT_BYTES);
    process.gpu.load_module(5).unwrap();
    process.gpu.allocate(1).unwrap();
    let row = bench.row("me");
    assert_eq!((row.memory_bytes, row.context_bytes), (1, crate::params::CONTEXT_BYTES + 5));
    assert_eq!(row.reported_bytes, crate::params::CONTEXT_BYTES + 5 + (2 << 20));
    process.gpu.free(1).unwrap();
    process.gpu.unload_module(5).unwrap();
    assert_eq!(bench.row("me").reported_bytes, crate::params::CONTEXT_BYTES);
}

#[test]
fn queued_work_of_a_dead_process_is_dropped_and_others_continue() {
    let bench = daemon();
    let (a, b) = (bench.process("a"), bench.process("b"));
    let (busy, mine) = (a.stream(StreamKind::NonBlocking), b.stream(StreamKind::NonBlocking));
    for _ in 0..100 {
        busy.submit(a.kernel(1_000_000), None).unwrap();
    }
    drop((busy, a));
    mine.submit(b.kernel(100), None).unwrap();
    b.gpu.wait_for(mine.mark()).unwrap();
    let row = bench.row("a");
    assert_eq!((row.ended, row.kernels_completed, row.kernels_submitted), (true, 0, 100));
    assert_eq!(bench.row("b").kernels_completed, 1);
}

#[test]
fn effects_follow_the_event_order_between_streams() {
    let bench = daemon();
    let process = bench.process("me");
    let (first, second) = (process.stream(StreamKind::NonBlocking), process.stream(StreamKind::NonBlocking));
    let order = Arc::new(Mutex::new(Vec::new()));
    let effect = |what: &'static str| {
        let order = order.clone();
        Some(Box::new(move || order.lock().unwrap().push(what)) as client::Effect)
    };
    let copy = StreamCommand::Work(Work::Copy { engine: CopyEngine::ToHost, bytes: 8 });
    first.submit(process.kernel(300), effect("produce")).unwrap();
    let produced = first.submit(StreamCommand::Record(None), None).unwrap();
    second.submit(StreamCommand::Wait(produced), None).unwrap();
    second.submit(copy, effect("consume")).unwrap();
    process.gpu.wait_for(second.mark()).unwrap();
    assert_eq!(*order.lock().unwrap(), ["produce", "consume"]);
}

#[test]
fn event_has_the_time_at_which_its_stream_reached_it() {
    let bench = daemon();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::NonBlocking);
    let events: Vec<usize> = (0..2).map(|_| process.gpu.open_event().unwrap()).collect();
    stream.submit(process.kernel(10), None).unwrap();
    stream.submit(StreamCommand::Record(Some(events[0])), None).unwrap();
    stream.submit(process.kernel(500), None).unwrap();
    stream.submit(StreamCommand::Record(Some(events[1])), None).unwrap();
    process.gpu.wait_for(stream.mark()).unwrap();
    let times: Vec<u64> = events.iter().map(|event| process.gpu.event_time(*event)).collect();
    assert!(times[1] - times[0] >= 500_000, "{times:?}");
}

#[test]
fn full_stream_makes_the_launch_wait_and_loses_nothing() {
    let bench = daemon();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::NonBlocking);
    for _ in 0..5_000 {
        stream.submit(process.kernel(2), None).unwrap();
    }
    process.gpu.wait_for(stream.mark()).unwrap();
    assert_eq!(bench.row("me").kernels_completed, 5_000);
}

#[test]
fn closed_stream_finishes_and_its_slot_is_reused() {
    let bench = daemon();
    let process = bench.process("me");
    for _ in 0..20_000 {
        let stream = process.stream(StreamKind::NonBlocking);
        let mark = stream.submit(process.kernel(2), None).unwrap();
        drop(stream);
        process.gpu.wait_for(mark).unwrap();
    }
    assert_eq!(bench.row("me").kernels_completed, 20_000);
}

#[test]
fn graph_runs_as_one_command_and_counts_its_kernels() {
    let bench = daemon();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::Blocking);
    let work = Work::Kernel { ns: 50_000, sms: 66, name: process.name };
    let nodes = vec![
        Node { work, successors: vec![2] },
        Node { work, successors: vec![2] },
        Node { work, successors: vec![] },
    ];
    let graph = process.gpu.add_graph(nodes, false).unwrap();
    for _ in 0..10 {
        stream.submit(StreamCommand::Graph(graph), None).unwrap();
    }
    process.gpu.wait_for(stream.mark()).unwrap();
    let row = bench.row("me");
    // Two of the three kernels run side by side.
    assert_eq!((row.kernels_completed, row.gpu_ns, row.kernel_ns), (30, 1_000_000, 1_500_000));
    let backwards = vec![Node { work, successors: vec![0] }];
    assert!(matches!(process.gpu.add_graph(backwards, false), Err(GpuError::Refused(_))));
}

#[test]
fn graph_that_relaunches_itself_runs_until_its_process_ends() {
    let bench = daemon();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::Blocking);
    let work = Work::Kernel { ns: 50_000, sms: 66, name: process.name };
    let nodes = vec![Node { work, successors: vec![1] }, Node { work, successors: vec![] }];
    let graph = process.gpu.add_graph(nodes, true).unwrap();
    stream.submit(StreamCommand::Graph(graph), None).unwrap();
    while bench.row("me").kernels_completed < 20 {
        std::thread::yield_now();
    }
    let empty = vec![Node { work: Work::Empty, successors: vec![] }];
    let ends = process.gpu.add_graph(empty, true).unwrap();
    let other = process.stream(StreamKind::NonBlocking);
    other.submit(StreamCommand::Graph(ends), None).unwrap();
    process.gpu.wait_for(other.mark()).unwrap();
}

#[test]
fn many_threads_launch_and_wait_at_the_same_time() {
    let bench = daemon();
    let process = bench.process("me");
    let shared = process.stream(StreamKind::NonBlocking);
    std::thread::scope(|scope| {
        for _ in 0..200 {
            scope.spawn(|| {
                let own = process.stream(StreamKind::NonBlocking);
                for _ in 0..20 {
                    shared.submit(process.kernel(2), None).unwrap();
                    own.submit(process.kernel(2), None).unwrap();
                }
                process.gpu.wait_for(own.mark()).unwrap();
                process.gpu.wait_for(shared.mark()).unwrap();
            });
        }
    });
    assert_eq!(bench.row("me").kernels_completed, 8_000);
}

#[test]
fn host_command_stops_its_stream_until_host_done() {
    let bench = daemon();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::NonBlocking);
    let held = stream.submit(StreamCommand::Host, None).unwrap();
    let after = stream.submit(process.kernel(10), None).unwrap();
    let other = process.stream(StreamKind::NonBlocking);
    let elsewhere = other.submit(process.kernel(10), None).unwrap();
    process.gpu.wait_for(elsewhere).unwrap();
    assert!(!process.gpu.is_done(after));
    stream.host_done(held.seq());
    process.gpu.wait_for(after).unwrap();
}

#[test]
fn notification_applies_from_the_time_of_its_cause() {
    let bench = daemon();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::NonBlocking);
    let event = process.gpu.open_event().unwrap();
    let held = stream.submit(StreamCommand::Host, None).unwrap();
    let condition = Condition { address: 8, value: 1, compare: Compare::AtLeast, is_wide: false };
    stream.submit(StreamCommand::Record(Some(event)), None).unwrap();
    // The daemon has read all commands, and sleeps.
    assert!(!process.gpu.is_done(stream.mark()));
    bench.row("me");
    let before = monotonic_ns();
    stream.host_done(held.seq());
    process.gpu.wait_for(stream.mark()).unwrap();
    let done = process.gpu.event_time(event);
    assert!((before..monotonic_ns()).contains(&done), "done {done}, reported after {before}");
    stream.submit(StreamCommand::MemOp(Some(condition)), None).unwrap();
    stream.submit(StreamCommand::Record(Some(event)), None).unwrap();
    bench.row("me");
    let before = monotonic_ns();
    process.gpu.set_word(8, 1);
    process.gpu.wait_for(stream.mark()).unwrap();
    assert!(process.gpu.event_time(event) >= before);
}

#[test]
fn client_of_an_ended_daemon_gets_an_error_instead_of_waiting() {
    let bench = daemon();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::NonBlocking);
    stream.submit(process.kernel(3_600_000_000), None).unwrap();
    let mark = stream.mark();
    drop(bench);
    assert!(matches!(process.gpu.wait_for(mark), Err(GpuError::Gone(_))));
    assert!(matches!(process.gpu.allocate(1), Err(GpuError::Gone(_))));
    // More than the ring holds, over several streams, so that a call without the daemon would wait for room.
    for _ in 0..20 {
        let stream = process.stream(StreamKind::NonBlocking);
        (0..500).for_each(|_| drop(stream.submit(process.kernel(1), None)));
    }
}

#[test]
fn shares_and_gaps_can_be_read_from_the_timeline() {
    let bench = daemon();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::NonBlocking);
    stream.submit(process.kernel(1_000), None).unwrap();
    process.gpu.wait_for(stream.mark()).unwrap();
    let row = bench.row("me");
    let (first, last) = (row.first_kernel_ns.unwrap(), row.last_kernel_ns.unwrap());
    let window = client::window(bench.handle.socket(), first, last).unwrap();
    assert_eq!((window.busy_ns, window.share_of_busy(row.pid)), (1_000_000, 1.0));
    let half = client::window(bench.handle.socket(), first, first + 500_000).unwrap();
    assert_eq!(half.busy_ns, 500_000);
    let timeline = client::timeline(bench.handle.socket(), 0, u64::MAX).unwrap();
    assert_eq!((timeline.len(), timeline[0].start_ns, timeline[0].pid), (1, first, row.pid));
}

/// The event that a listener has received, without waiting.
fn poll_event(listener: &mut client::Listener) -> Option<client::ListenerEvent> {
    let all = std::slice::from_mut(listener);
    client::wait_any(all, std::time::Duration::ZERO).unwrap().map(|(_, event)| event)
}

#[test]
fn listeners_receive_every_xid_and_program_faults_leave_the_gpu_healthy() {
    let bench = daemon();
    let socket = bench.handle.socket();
    client::inject(socket, 31).unwrap();
    let mut listeners = [client::Listener::open(socket).unwrap(), client::Listener::open(socket).unwrap()];
    let process = bench.process("me");
    client::inject(socket, 13).unwrap();
    client::inject(socket, 94).unwrap();
    for listener in &mut listeners {
        let all: Vec<_> = std::iter::from_fn(|| poll_event(listener)).collect();
        assert_eq!(all, [client::ListenerEvent::Xid(13), client::ListenerEvent::Xid(94)]);
    }
    let fault = client::gpu_info(socket).unwrap().fault.unwrap();
    assert_eq!((fault.xid, fault.recovery_action()), (94, 4));
    process.gpu.allocate(1).unwrap();
    client::heal(socket).unwrap();
    assert_eq!(client::gpu_info(socket).unwrap().fault, None);
}

#[test]
fn lost_gpu_fails_its_processes_and_refuses_new_ones_until_healed() {
    let bench = daemon();
    let socket = bench.handle.socket();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::NonBlocking);
    stream.submit(process.kernel(3_600_000_000), None).unwrap();
    client::inject(socket, 79).unwrap();
    assert!(matches!(process.gpu.wait_for(stream.mark()), Err(GpuError::Gone(_))));
    let Err(GpuError::Refused(why)) = Gpu::connect(socket, "late") else { panic!("must be refused") };
    assert_eq!(why, "out of order since Xid 79");
    // A later, lesser fault does not repair the GPU.
    client::inject(socket, 94).unwrap();
    assert!(Gpu::connect(socket, "late").is_err());
    client::heal(socket).unwrap();
    bench.process("new").gpu.allocate(1).unwrap();
    assert!(bench.row("me").ended);
}

#[test]
fn listener_is_notified_when_the_daemon_ends() {
    let bench = daemon();
    let mut listener = client::Listener::open(bench.handle.socket()).unwrap();
    assert_eq!(poll_event(&mut listener), None);
    drop(bench);
    assert_eq!(poll_event(&mut listener), Some(client::ListenerEvent::Disconnected));
}

#[test]
fn socket_is_usable_by_every_user() {
    use std::os::unix::fs::PermissionsExt;
    let bench = daemon();
    let mode = std::fs::metadata(bench.handle.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
}

#[test]
fn label_sums_its_processes_and_its_peak_is_that_of_the_sum() {
    let bench = daemon();
    let (a, b) = (bench.process("pod"), bench.process("pod"));
    a.gpu.allocate(100).unwrap();
    b.gpu.allocate(50).unwrap();
    a.gpu.free(100).unwrap();
    b.gpu.allocate(30).unwrap();
    for process in [&a, &b] {
        let stream = process.stream(StreamKind::NonBlocking);
        stream.submit(process.kernel(100), None).unwrap();
        process.gpu.wait_for(stream.mark()).unwrap();
    }
    bench.process("other").gpu.allocate(1_000).unwrap();
    drop(a);
    let label = || client::ledger(bench.handle.socket()).unwrap().labels["pod"].clone();
    let now = label();
    assert_eq!((now.memory_bytes, now.memory_peak_bytes), (80, 150));
    assert_eq!((now.gpu_ns, now.kernel_ns, now.kernels_completed), (200_000, 200_000, 2));
    drop(b);
    let after = label();
    assert_eq!((after.memory_bytes, after.memory_peak_bytes, after.processes), (0, 150, 2));
}
