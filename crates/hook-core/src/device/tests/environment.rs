//! What happens around a grant: captures, destroyed handles, lost managers, forks.

use super::*;

#[test]
fn launches_into_a_capture_pass_and_no_stream_of_it_is_touched() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    bench.captures.begin(100);
    device.prepare_capture();
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
    let (device, thread) = (bench.device(), ThreadState::new());
    launch(&device, &thread, 100);
    bench.captures.begin(100);
    device.prepare_capture();
    lock(&device.driver.capturing).push(100);
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::Capture)));
}

#[test]
fn a_destroyed_stream_is_drained_without_its_handle() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
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
fn a_context_that_might_have_ended_and_did_not_is_still_answered_for() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    launch(&device, &thread, 100);
    drop(device.lock_contexts());
    bench.clock.advance(100 * MS);
    device.driver.drain_ns.store(3 * MS, SeqCst);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (103.0, 3.0));
    assert_eq!(device.driver.live_marks.load(SeqCst), 0);
}

#[test]
fn nothing_of_a_destroyed_context_is_touched() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    launch(&device, &thread, 100);
    drop(device.forget_stream(stream(100)));
    launch(&device, &thread, 101);
    let guards = device.lock_contexts();
    device.forget_context(7);
    drop(guards);
    let taken_along = device.driver.live_marks.load(SeqCst);
    lock(&device.driver.marked).clear();
    bench.clock.advance(200 * MS);
    device.track();
    device.track();
    assert_eq!(*lock(&device.driver.marked), [0u64; 0]);
    assert_eq!(device.driver.live_marks.load(SeqCst), taken_along, "not even discarded");
}

#[test]
fn the_default_stream_of_a_thread_is_drained_with_its_context() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    assert!(is_governed(&device.launch(Stream::new(0, true, thread.id()), &thread)));
    lock(&device.driver.marked).clear();
    bench.clock.advance(100 * MS);
    device.track();
    device.track();
    assert_eq!(*lock(&device.driver.drained), [7]);
    assert_eq!(*lock(&device.driver.marked), [0u64; 0]);
}

#[test]
fn a_lost_manager_lets_launches_pass_until_it_returns() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
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
        let held = scope.spawn(|| is_governed(&device.launch(stream(100), &ThreadState::new())));
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
        let NextStep::At(at) = device.track() else { panic!("a lost manager is not asked at once") };
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
    assert!(is_governed(&device.launch(stream(100), &ThreadState::new())));
    assert_eq!(device.link.sent().len(), 0, "a standing grant is not asked for");
    device.link.dead.store(true, SeqCst);
    device.track();
    assert!(matches!(device.lock().phase, state::Phase::Lost { .. }));
}

#[test]
fn a_gemini_manager_is_told_of_the_overrun_with_the_next_question_and_of_nothing_else() {
    let bench = Bench::new();
    let (device, thread) = (bench.detached(), ThreadState::new());
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
    let (device, thread) = (bench.device(), ThreadState::new());
    launch(&device, &thread, 100);
    bench.clock.advance(100 * MS);
    device.track();
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::DrainStalled)));
}

#[test]
fn a_thread_without_a_context_goes_to_the_driver_to_hear_so() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    device.driver.no_context.store(true, SeqCst);
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::NoContext)));
}

#[test]
fn after_a_fork_the_parents_grant_lets_nothing_through_as_governed() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    launch(&device, &thread, 100);
    device.abandon();
    assert!(matches!(device.launch(stream(100), &thread), Outcome::Bypassed(Bypass::Forked)));
}

#[test]
fn news_are_asked_for_at_each_look_while_there_is_a_manager_and_not_without() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    let asked = || device.link.asked_for_news.swap(0, SeqCst);
    assert_eq!(asked(), 0, "what was known at the attachment went with it");
    device.track();
    assert_eq!(asked(), 1, "without a grant");
    launch(&device, &thread, 100);
    device.track();
    assert_eq!(asked(), 1, "under a grant");
    device.link.dead.store(true, SeqCst);
    bench.clock.advance(200 * MS);
    device.track();
    device.track();
    asked();
    device.track();
    assert_eq!(asked(), 0, "there is nobody to tell");
}

#[test]
fn a_manager_that_cannot_be_told_is_lost_and_connected_to_again() {
    let bench = Bench::new();
    let device = bench.device();
    device.link.refuses_news.store(true, SeqCst);
    device.track();
    assert_eq!(device.bypass_reason(), Some(Bypass::ManagerGone));
    device.link.refuses_news.store(false, SeqCst);
    bench.clock.advance(100 * MS);
    device.track();
    assert_eq!((device.bypass_reason(), device.link.connects.load(SeqCst)), (None, 2));
}

/// What the manager was told of activity, without the times.
fn told(device: &TestDevice<'_>) -> Vec<bool> {
    lock(&device.link.activity).iter().map(|(busy, _)| *busy).collect()
}

#[test]
fn the_manager_is_told_when_there_is_work_and_when_it_is_known_to_have_finished() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    assert_eq!(told(&device), []);
    launch(&device, &thread, 100);
    launch(&device, &thread, 101);
    assert_eq!(told(&device), [true]);
    wait_for(&device, 100);
    assert_eq!(told(&device), [true], "another stream has work");
    bench.clock.advance(MS);
    wait_for(&device, 101);
    let last = lock(&device.link.activity).last().copied();
    assert_eq!(last, Some((false, bench.clock.now_ns())));
    launch(&device, &thread, 100);
    assert_eq!(told(&device), [true, false, true]);
}

#[test]
fn a_thread_that_waits_for_the_gpu_counts_as_work_whatever_it_waits_for() {
    let bench = Bench::new();
    let device = bench.device();
    device.begin_blocking();
    let wait = device.begin_wait(WaitTarget::Context(7));
    assert_eq!(told(&device), [true]);
    device.end_wait(wait, true);
    assert_eq!(told(&device), [true], "the other one still waits");
    device.end_blocking();
    assert_eq!(told(&device), [true, false]);
}

#[test]
fn under_a_standing_grant_nothing_is_drained_or_measured_and_the_tracker_finds_out_when_work_has_finished() {
    let bench = Bench::new();
    let (device, thread) = (bench.detached(), ThreadState::new());
    device.link.standing.store(true, SeqCst);
    device.link.company.store(1, SeqCst);
    device.track();
    launch(&device, &thread, 100);
    assert_eq!(device.link.wakeups.load(SeqCst), 1);
    for _ in 0..3 {
        bench.clock.advance(2 * MS);
        assert_eq!(device.track(), NextStep::At(bench.clock.now_ns() + 2 * MS));
    }
    assert_eq!(told(&device), [true]);
    lock(&device.driver.busy).clear();
    bench.clock.advance(2 * MS);
    device.track();
    assert_eq!(told(&device), [true, false]);
    assert_eq!(lock(&device.driver.marked).len(), 0);
    assert_eq!(device.link.sent(), []);
}

#[test]
fn a_grant_that_becomes_standing_is_not_given_back_and_one_that_is_taken_back_is_asked_for_again() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    launch(&device, &thread, 100);
    wait_for(&device, 100);
    device.link.set_deadline(u64::MAX);
    bench.clock.advance(500 * MS);
    device.track();
    device.track();
    assert_eq!(device.link.sent().len(), 1);
    assert!(launch(&device, &thread, 100));
    assert_eq!(device.link.sent().len(), 1);
    device.link.set_deadline(0);
    lock(&device.driver.busy).clear();
    device.track();
    device.track();
    assert!(launch(&device, &thread, 100));
    assert_eq!(device.link.sent().len(), 3, "returned, and asked for");
}

#[test]
fn a_manager_that_comes_back_is_told_of_work_that_runs() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    launch(&device, &thread, 100);
    device.begin_blocking();
    lock(&device.link.activity).clear();
    device.link.dead.store(true, SeqCst);
    bench.clock.advance(200 * MS);
    device.track();
    device.track();
    device.link.dead.store(false, SeqCst);
    bench.clock.advance(100 * MS);
    device.track();
    assert_eq!(told(&device).last(), Some(&true));
    device.end_blocking();
}

#[test]
fn hints_are_armed_when_the_work_has_finished_and_told_whether_that_was_seen() {
    use crate::hold_kernel::{Settings, Trigger};
    let mut bench = Bench::new();
    bench.settings.hold_kernels = Settings { automatic: true, ..Settings::default() };
    let (device, thread) = (bench.detached(), ThreadState::new());
    device.link.standing.store(true, SeqCst);
    device.track();
    let hints = device.hold_kernels();
    hints.set_contenders(1);
    let request = |ms: u64| {
        let held = hints.begin_request(Trigger::Copy, bench.clock.now_ns(), 0).is_ok();
        launch(&device, &thread, 100);
        hints.launch_submitted(bench.clock.now_ns());
        assert!(!hints.is_armed(), "work is out");
        bench.clock.advance(if held { 2 * ms } else { ms });
        wait_for(&device, 100);
        assert!(hints.is_armed(), "it has finished");
        held
    };
    request(MS);
    // The waits say when each request ended, so that holds which make them slower are found out.
    let held = (0..100).filter(|_| request(MS)).count();
    assert!(held < 50, "{held} were held");
    device.abandon();
    assert!(!hints.is_armed());
}
