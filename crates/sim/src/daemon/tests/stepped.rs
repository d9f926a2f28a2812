//! A daemon whose clock stands still until it is advanced.

use super::*;
use crate::params::{COPY_LATENCY_NS, LOAD_NS, MEM_OP_NS, SUBMIT_NS};

/// From the submission of the first kernel of an idle GPU until the kernel begins.
const BEGIN_NS: u64 = SUBMIT_NS + LOAD_NS;

fn stepped() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let config = DaemonConfig { clock: Clock::STEPPED, ..DaemonConfig::at(dir.path().join("gpu")) };
    Bench { handle: spawn_thread(config).unwrap(), _dir: dir }
}

impl Bench {
    fn now(&self) -> u64 {
        client::ledger(self.handle.socket()).unwrap().gpu.now_ns
    }

    fn advance(&self, ns: u64) {
        client::advance(self.handle.socket(), ns).unwrap();
    }
}

#[test]
fn time_stands_still_without_an_advance() {
    let bench = stepped();
    let begin = bench.now();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::NonBlocking);
    let mark = stream.submit(process.kernel(10), None).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!process.gpu.is_done(mark), "a query moves no time");
    assert_eq!((bench.now(), bench.row("me").kernels_completed), (begin, 0));
    bench.advance(0);
    assert_eq!((bench.now(), bench.row("me").kernels_completed), (begin, 0));
    bench.advance(1_000_000);
    assert_eq!((bench.now(), bench.row("me").kernels_completed), (begin + 1_000_000, 1));
    assert!(process.gpu.is_done(mark));
}

#[test]
fn kernel_completes_exactly_at_its_end() {
    let bench = stepped();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::NonBlocking);
    let begin = bench.now();
    stream.submit(process.kernel(100), None).unwrap();
    bench.advance(BEGIN_NS + 100_000 - 1);
    assert_eq!(bench.row("me").kernels_completed, 0);
    bench.advance(1);
    let row = bench.row("me");
    let times = (row.first_kernel_ns, row.last_kernel_ns);
    assert_eq!(times, (Some(begin + BEGIN_NS), Some(begin + BEGIN_NS + 100_000)));
    assert_eq!(row.kernels_completed, 1);
}

#[test]
fn command_is_submitted_at_the_present_however_far_the_machines_clock_is() {
    let bench = stepped();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::NonBlocking);
    stream.submit(process.kernel(100), None).unwrap();
    bench.advance(1_000_000);
    // At first the clock is behind CLOCK_MONOTONIC, unless the machine has just started; then it is ahead.
    for begin in [bench.now(), monotonic_ns() + 3_600_000_000_000] {
        bench.advance(begin - bench.now());
        let mark = stream.submit(process.kernel(100), None).unwrap();
        bench.advance(SUBMIT_NS + 100_000 - 1);
        assert!(!process.gpu.is_done(mark));
        bench.advance(1);
        assert!(process.gpu.is_done(mark));
        assert_eq!(bench.row("me").last_kernel_ns, Some(bench.now()));
    }
}

#[test]
fn one_advance_computes_all_events_in_their_order() {
    let bench = stepped();
    let process = bench.process("me");
    let (first, second) = (process.stream(StreamKind::NonBlocking), process.stream(StreamKind::NonBlocking));
    let events: Vec<usize> = (0..2).map(|_| process.gpu.open_event().unwrap()).collect();
    let begin = bench.now();
    let copy = StreamCommand::Work(Work::Copy { engine: CopyEngine::ToHost, bytes: 0 });
    first.submit(process.kernel(300), None).unwrap();
    let produced = first.submit(StreamCommand::Record(Some(events[0])), None).unwrap();
    second.submit(StreamCommand::Wait(produced), None).unwrap();
    second.submit(copy, None).unwrap();
    second.submit(StreamCommand::Record(Some(events[1])), None).unwrap();
    bench.advance(1_000_000_000);
    process.gpu.wait_for(second.mark()).unwrap();
    let times: Vec<u64> = events.iter().map(|event| process.gpu.event_time(*event) - begin).collect();
    assert_eq!(times, [BEGIN_NS + 300_000, BEGIN_NS + 300_000 + COPY_LATENCY_NS]);
}

#[test]
fn change_of_a_word_applies_at_the_present() {
    let bench = stepped();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::NonBlocking);
    let event = process.gpu.open_event().unwrap();
    let condition = Condition { address: 8, value: 1, compare: Compare::AtLeast, is_wide: false };
    stream.submit(StreamCommand::MemOp(Some(condition)), None).unwrap();
    let reached = stream.submit(StreamCommand::Record(Some(event)), None).unwrap();
    bench.advance(1_000_000);
    assert!(!process.gpu.is_done(reached));
    let changed = bench.now();
    process.gpu.set_word(8, 1);
    bench.advance(1_000_000);
    assert!(process.gpu.is_done(reached));
    assert_eq!(process.gpu.event_time(event), changed + MEM_OP_NS);
}

#[test]
fn an_advance_beyond_a_locks_time_limit_locks_only_a_process_that_was_idle_within_it() {
    let bench = stepped();
    let process = bench.process("me");
    let stream = process.stream(StreamKind::NonBlocking);
    let pid = bench.row("me").pid;
    let lock = |timeout_ms| {
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| client::lock(bench.handle.socket(), pid, timeout_ms).unwrap());
            while client::is_locked(bench.handle.socket(), pid).unwrap() != Some(true) {
                std::thread::yield_now();
            }
            assert!(!asked.is_finished(), "a lock takes time");
            bench.advance(1_000_000_000);
            asked.join().unwrap()
        })
    };
    // The kernel ends within the advance, but after the limit.
    stream.submit(process.kernel(5_000), None).unwrap();
    assert_eq!(lock(2), Err(client::LockFailure::NotInTime));
    stream.submit(process.kernel(5_000), None).unwrap();
    assert_eq!(lock(10), Ok(()));
}

#[test]
fn a_real_clock_is_not_advanced() {
    let bench = daemon();
    let refused = client::advance(bench.handle.socket(), 1).unwrap_err().to_string();
    assert!(refused.contains("only a stepped clock is advanced"), "{refused}");
    assert!(bench.now() <= monotonic_ns());
}
