use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::*;
use crate::fakes::{FakeDriver, FakeLink, ManualClock, lock};
use crate::streams::Waited;

const MS: u64 = 1_000_000;

impl Clock for Arc<ManualClock> {
    fn now_ns(&self) -> u64 {
        (**self).now_ns()
    }
    fn ticks(&self) -> u64 {
        (**self).ticks()
    }
    fn pause(&self, ns: u64) {
        (**self).pause(ns);
    }
}

type TestDevice<'p> = Device<'p, FakeDriver, FakeLink, Arc<ManualClock>>;

/// A device, its clock, and what stands around it.
struct Bench {
    clock: Arc<ManualClock>,
    captures: Captures,
    counters: Counters,
    settings: Settings,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        clock.set(1000 * MS);
        Self { clock, captures: Captures::new(), counters: Counters::new(), settings: Settings::default() }
    }

    /// A device with a manager that grants 100 ms, attached.
    fn device(&self) -> TestDevice<'_> {
        let device = self.detached();
        device.track();
        device
    }

    fn detached(&self) -> TestDevice<'_> {
        let (driver, link) = (FakeDriver::default(), FakeLink::default());
        *lock(&driver.clock) = Some(self.clock.clone());
        *lock(&link.clock) = Some(self.clock.clone());
        link.quota_ms.store(100, SeqCst);
        Device::new(0, (driver, link, self.clock.clone()), (&self.captures, &self.counters), self.settings)
    }
}

fn stream(handle: u64) -> Stream {
    Stream::new(handle, false, 1)
}

fn is_governed(outcome: &Outcome<Pass<'_>>) -> bool {
    matches!(outcome, Outcome::Governed(_))
}

/// Submits one launch, and has the stream busy until it is drained.
fn launch(device: &TestDevice<'_>, thread: &Thread, handle: u64) -> bool {
    let governed = is_governed(&device.launch(stream(handle), thread));
    lock(&device.driver.busy).push(handle);
    governed
}

/// The program waits for a stream and the GPU has finished.
fn wait_for(device: &TestDevice<'_>, handle: u64) {
    let epoch = device.wait_begins();
    lock(&device.driver.busy).retain(|busy| *busy != handle);
    device.wait_ended(Waited::Stream(7, stream(handle)), epoch);
}

fn used(device: &TestDevice<'_>, at: usize) -> (f64, f64) {
    let used = device.link.sent()[at].0.expect("a report of the grant");
    (used.used_ms, used.overuse_ms)
}

#[test]
fn the_first_launch_asks_once_and_later_ones_pass_without_asking() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    assert!(launch(&device, &thread, 100));
    assert_eq!(device.link.sent().len(), 1);
    assert!(device.launch_at_once(stream(100), &thread).is_ok());
    assert_eq!(device.link.sent().len(), 1);
    assert!(device.launch_at_once(stream(101), &thread).is_err(), "another stream has to be noted first");
}

#[test]
fn a_launch_after_the_deadline_is_held_until_the_last_grant_has_drained() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    launch(&device, &thread, 100);
    bench.clock.advance(100 * MS);
    assert!(device.launch_at_once(stream(100), &thread).is_err());
    std::thread::scope(|scope| {
        let held = scope.spawn(|| is_governed(&device.launch(stream(100), &Thread::new())));
        while device.lock().wanting == 0 {
            std::thread::yield_now();
        }
        assert_eq!(device.link.sent().len(), 1, "nothing is asked while work of the last grant runs");
        device.driver.drain_ns.store(3 * MS, SeqCst);
        device.track();
        assert!(held.join().expect("the launch returns"));
    });
    let sent = device.link.sent();
    assert_eq!(sent.len(), 2, "report and question are one message");
    assert_eq!(used(&device, 1), (103.0, 3.0));
    let ask = sent[1].1.expect("a question with the report");
    assert_eq!((ask.overuse_ms, ask.next_burst_ms), (3.0, 206.0), "it never paused, so the burst was cut");
}

#[test]
fn a_grant_that_nobody_wants_any_more_is_given_back_at_its_deadline() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    launch(&device, &thread, 100);
    bench.clock.advance(10 * MS);
    wait_for(&device, 100);
    bench.clock.advance(200 * MS);
    device.track();
    device.track();
    let sent = device.link.sent();
    assert_eq!(
        used(&device, 1),
        (10.0, 0.0),
        "the idle part of the grant is not charged, nor the late wake-up"
    );
    assert_eq!(sent[1].1, None);
    assert!(
        lock(&device.driver.marked).iter().filter(|mark| **mark == 100).count() == 1,
        "only the first mark"
    );
}

#[test]
fn only_the_busy_time_of_several_bursts_is_charged() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    for _ in 0..3 {
        launch(&device, &thread, 100);
        bench.clock.advance(2 * MS);
        wait_for(&device, 100);
        bench.clock.advance(5 * MS);
    }
    bench.clock.advance(100 * MS);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (6.0, 0.0));
}

#[test]
fn events_measure_a_grant_that_was_one_burst() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    launch(&device, &thread, 100);
    bench.clock.advance(100 * MS);
    device.driver.drain_ns.store(7 * MS, SeqCst);
    device.driver.elapsed_ns.store(104 * MS, SeqCst);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (104.0, 4.0), "GPU time, not the time at which the tracker woke up");
    assert_eq!(device.driver.live_marks.load(SeqCst), 0, "every event comes back");
}

#[test]
fn an_idle_holder_gives_the_token_back_when_others_wait() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    launch(&device, &thread, 100);
    bench.clock.advance(MS);
    wait_for(&device, 100);
    bench.clock.advance(10 * MS);
    device.track();
    assert_eq!(device.link.sent().len(), 1, "nobody else wants it");
    device.link.contended.store(true, SeqCst);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (1.0, 0.0));
    assert!(device.launch_at_once(stream(100), &thread).is_err(), "what was given back is not used");
}

#[test]
fn a_holder_that_was_idle_for_a_moment_only_keeps_the_token() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    device.link.contended.store(true, SeqCst);
    launch(&device, &thread, 100);
    bench.clock.advance(MS);
    wait_for(&device, 100);
    bench.clock.advance(bench.settings.idle_ns - 1);
    device.track();
    device.track();
    assert_eq!(device.link.sent().len(), 1);
    bench.clock.advance(1);
    device.track();
    device.track();
    assert_eq!(device.link.sent().len(), 2);
}

#[test]
fn a_program_known_for_long_pauses_gives_the_token_back_at_once() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    for _ in 0..4 {
        launch(&device, &thread, 100);
        bench.clock.advance(MS);
        wait_for(&device, 100);
        bench.clock.advance(9 * MS);
    }
    device.link.contended.store(true, SeqCst);
    launch(&device, &thread, 100);
    wait_for(&device, 100);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (4.0, 0.0));
}

#[test]
fn a_program_that_never_waits_is_found_idle_by_asking_the_driver() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    device.link.contended.store(true, SeqCst);
    launch(&device, &thread, 100);
    bench.clock.advance(MS);
    device.track();
    bench.clock.advance(MS);
    device.track();
    assert_eq!(device.link.sent().len(), 1, "the stream has work");
    lock(&device.driver.busy).clear();
    device.track();
    bench.clock.advance(MS);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (2.0, 0.0));
}

#[test]
fn a_burst_that_does_not_fit_any_more_asks_before_it_begins() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    for _ in 0..4 {
        launch(&device, &thread, 100);
        bench.clock.advance(20 * MS);
        wait_for(&device, 100);
    }
    bench.clock.advance(10 * MS);
    // 10 ms are left of the grant, somebody waits, and the program's bursts take 20.
    device.link.contended.store(true, SeqCst);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| launch(&device, &thread_of_its_own(), 100));
        while device.lock().wanting == 0 {
            std::thread::yield_now();
        }
        device.track();
        assert!(held.join().expect("the launch returns"));
    });
    assert_eq!(used(&device, 1), (80.0, 0.0));
    assert_eq!(bench.counters.grants.load(SeqCst), 2);
}

fn thread_of_its_own() -> Thread {
    Thread::new()
}

#[test]
fn a_burst_that_fits_no_quota_does_not_ask_for_ever() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    launch(&device, &thread, 100);
    bench.clock.advance(99 * MS);
    wait_for(&device, 100);
    device.link.quota_ms.store(50, SeqCst);
    bench.clock.advance(100 * MS);
    device.track();
    device.track();
    assert!(launch(&device, &thread, 100), "bursts take 99 ms and the quota is 50");
    assert_eq!(device.link.sent().len(), 3);
}

#[test]
fn launches_into_a_capture_pass_and_no_stream_of_it_is_touched() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    bench.captures.begin(100);
    device.capture_begins();
    lock(&device.driver.capturing).push(100);
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::Capture)));
    assert_eq!(device.link.sent().len(), 0, "a captured launch needs no grant");
    assert!(is_governed(&device.launch(stream(0), &thread)), "the legacy stream is not being captured");
    bench.clock.advance(200 * MS);
    device.track();
    device.track();
    assert_eq!(
        *lock(&device.driver.marked),
        [0u64; 0],
        "an event on the legacy stream would end the capture"
    );
}

#[test]
fn a_capture_that_begins_is_noticed_by_a_thread_that_knows_its_stream() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    launch(&device, &thread, 100);
    bench.captures.begin(100);
    device.capture_begins();
    lock(&device.driver.capturing).push(100);
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::Capture)));
}

#[test]
fn a_destroyed_stream_is_drained_without_its_handle() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    launch(&device, &thread, 100);
    drop(device.forget_stream(stream(100)));
    lock(&device.driver.marked).clear();
    device.driver.drain_ns.store(MS, SeqCst);
    bench.clock.advance(100 * MS);
    device.track();
    device.track();
    assert_eq!(*lock(&device.driver.marked), [0u64; 0]);
    assert_eq!(used(&device, 1), (101.0, 1.0), "its work was waited for");
    assert_eq!(device.driver.live_marks.load(SeqCst), 0);
}

#[test]
fn nothing_of_a_destroyed_context_is_touched() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    launch(&device, &thread, 100);
    drop(device.forget_stream(stream(100)));
    launch(&device, &thread, 101);
    drop(device.forget_context(7));
    lock(&device.driver.marked).clear();
    bench.clock.advance(200 * MS);
    device.track();
    device.track();
    assert_eq!(*lock(&device.driver.marked), [0u64; 0]);
    assert_eq!(device.driver.live_marks.load(SeqCst), 0);
}

#[test]
fn the_default_stream_of_a_thread_is_drained_with_its_context() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    assert!(is_governed(&device.launch(Stream::new(0, true, thread.id()), &thread)));
    lock(&device.driver.marked).clear();
    bench.clock.advance(100 * MS);
    device.track();
    device.track();
    assert_eq!(*lock(&device.driver.drained), [7]);
    assert_eq!(*lock(&device.driver.marked), [0u64; 0]);
}

#[test]
fn the_drain_waits_for_a_launch_that_had_passed_the_gate() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    let pass = device.launch(stream(100), &thread);
    bench.clock.advance(100 * MS);
    device.track();
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| device.track());
        let began = bench.clock.now_ns();
        while bench.clock.now_ns() < began + MS {
            std::thread::yield_now();
        }
        assert_eq!(device.link.sent().len(), 1, "the launch is still being submitted");
        drop(pass);
        drain.join().expect("the drain ends");
    });
    assert_eq!(device.link.sent().len(), 2);
}

#[test]
fn a_lost_manager_lets_launches_pass_until_it_returns() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    device.link.dead.store(true, SeqCst);
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::ManagerGone)));
    device.track();
    device.link.dead.store(false, SeqCst);
    bench.clock.advance(2000 * MS);
    device.track();
    assert!(is_governed(&device.launch(stream(100), &thread)));
}

#[test]
fn a_lost_manager_holds_launches_when_it_wanted_so() {
    let bench = Bench::new();
    let device = bench.device();
    device.link.closed.store(true, SeqCst);
    device.link.dead.store(true, SeqCst);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| is_governed(&device.launch(stream(100), &Thread::new())));
        while !matches!(device.lock().phase, state::Phase::Lost { .. }) {
            std::thread::yield_now();
        }
        for _ in 0..5 {
            device.track();
            bench.clock.advance(1000 * MS);
        }
        assert!(!held.is_finished());
        device.link.dead.store(false, SeqCst);
        device.track();
        assert!(held.join().expect("the launch returns"));
    });
    assert_eq!(bench.counters.bypassed(Bypass::ManagerGone), 0);
}

#[test]
fn attempts_to_connect_grow_apart_up_to_a_second() {
    let bench = Bench::new();
    let device = bench.detached();
    device.link.dead.store(true, SeqCst);
    let mut pauses = Vec::new();
    device.track();
    for _ in 0..8 {
        let Pause::Until(at) = device.track() else { panic!("a lost manager is not asked at once") };
        pauses.push((at - bench.clock.now_ns()) / MS);
        bench.clock.set(at);
        device.track();
    }
    assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000]);
}

#[test]
fn a_manager_that_went_away_quietly_is_noticed_by_a_holder_of_a_standing_grant() {
    let bench = Bench::new();
    let device = bench.detached();
    device.link.standing.store(true, SeqCst);
    device.track();
    assert!(is_governed(&device.launch(stream(100), &Thread::new())));
    assert_eq!(device.link.sent().len(), 0, "a standing grant is not asked for");
    device.link.dead.store(true, SeqCst);
    device.track();
    assert!(matches!(device.lock().phase, state::Phase::Lost { .. }));
}

#[test]
fn a_standing_grant_rings_when_work_arrives_and_not_for_each_launch() {
    let bench = Bench::new();
    let device = bench.detached();
    let thread = Thread::new();
    device.link.standing.store(true, SeqCst);
    device.track();
    for _ in 0..3 {
        launch(&device, &thread, 100);
        launch(&device, &thread, 100);
        bench.clock.advance(MS);
        wait_for(&device, 100);
    }
    assert_eq!(device.link.rings.load(SeqCst), 3);
    assert_eq!(device.link.busy_ns.load(SeqCst), 3 * MS);
}

#[test]
fn a_gemini_manager_is_told_of_the_overrun_with_the_next_question_and_of_nothing_else() {
    let bench = Bench::new();
    let (device, thread) = (bench.detached(), Thread::new());
    device.link.legacy.store(true, SeqCst);
    device.track();
    launch(&device, &thread, 100);
    bench.clock.advance(100 * MS);
    device.driver.drain_ns.store(4 * MS, SeqCst);
    device.track();
    device.track();
    launch(&device, &thread, 100);
    let sent = device.link.sent();
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|(used, _)| used.is_none()));
    assert_eq!(sent[1].1.map(|ask| ask.overuse_ms), Some(4.0));
}

#[test]
fn a_launch_that_the_drain_may_be_waiting_for_is_let_through_in_the_end() {
    let mut bench = Bench::new();
    bench.settings.stall_ns = 0;
    let (device, thread) = (bench.device(), Thread::new());
    launch(&device, &thread, 100);
    bench.clock.advance(100 * MS);
    device.track();
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::DrainStalled)));
}

#[test]
fn a_thread_without_a_context_goes_to_the_driver_to_hear_so() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    device.driver.no_context.store(true, SeqCst);
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::NoContext)));
}

#[test]
fn after_a_fork_the_parents_grant_lets_nothing_through_as_governed() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), Thread::new());
    launch(&device, &thread, 100);
    device.abandon();
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::Forked)));
}

#[test]
fn a_thousand_threads_share_one_question() {
    let bench = Bench::new();
    let device = bench.device();
    let governed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..1000)
            .map(|at| {
                scope.spawn({
                    let device = &device;
                    move || launch(device, &Thread::new(), 100 + at)
                })
            })
            .collect();
        threads
            .into_iter()
            .filter(|_| true)
            .map(|thread| thread.join())
            .filter(|done| matches!(done, Ok(true)))
            .count()
    });
    assert_eq!(governed, 1000);
    assert_eq!(device.link.sent().len(), 1);
}
