//! Work that passes no gate, and programs that ask whether it is done.

use super::*;

/// A device whose process runs as it likes, with company.
fn standing(bench: &Bench) -> TestDevice<'_> {
    let device = bench.detached();
    device.link.standing.store(true, SeqCst);
    device.link.company.store(1, SeqCst);
    device.track();
    device
}

/// What the manager was told, without the times.
fn told(device: &TestDevice<'_>) -> Vec<bool> {
    lock(&device.link.activity).iter().map(|(busy, _)| *busy).collect()
}

/// A copy is submitted, and stays under way.
fn copy(device: &TestDevice<'_>, thread: &ThreadState, handle: u64) {
    let noted = device.needs_note(stream(handle), thread) && device.begin_work(stream(handle), thread);
    lock(&device.driver.busy).push(handle);
    if noted {
        device.end_submission();
    }
}

#[test]
fn a_copy_is_work_until_its_stream_is_idle() {
    let bench = Bench::new();
    let (device, thread) = (standing(&bench), ThreadState::new());
    copy(&device, &thread, 100);
    assert_eq!(told(&device), [true]);
    assert_eq!(device.link.wakeups.load(SeqCst), 1);
    device.track();
    assert_eq!(told(&device), [true], "the copy is under way");
    wait_for(&device, 100);
    assert_eq!(told(&device), [true, false]);
    copy(&device, &thread, 100);
    assert_eq!(told(&device), [true, false, true], "the next one is told of as well");
    assert_eq!(device.launches(), 0);
}

#[test]
fn copies_that_follow_one_another_are_noted_once_and_the_first_launch_is_noted_all_the_same() {
    let bench = Bench::new();
    let (device, thread) = (standing(&bench), ThreadState::new());
    copy(&device, &thread, 100);
    assert!(!device.needs_note(stream(100), &thread));
    assert!(device.needs_note(stream(101), &thread));
    assert!(device.try_launch(stream(100), &thread).is_err(), "a request begins with it");
    assert!(launch(&device, &thread, 101));
    assert!(!device.needs_note(stream(101), &thread), "the launch has told of the stream");
}

#[test]
fn work_that_is_being_submitted_is_not_found_to_be_over() {
    let bench = Bench::new();
    let (device, thread) = (standing(&bench), ThreadState::new());
    assert!(device.begin_work(stream(100), &thread));
    bench.clock.advance(50 * MS);
    device.track();
    assert_eq!(told(&device), [true]);
    device.end_submission();
    device.track();
    assert_eq!(told(&device), [true, false], "the driver refused it");
}

#[test]
fn a_program_that_asks_in_vain_has_work_until_it_is_done_or_the_program_gives_up() {
    let bench = Bench::new();
    let device = standing(&bench);
    for _ in 0..20 {
        device.poll_found_unfinished();
        bench.clock.advance(2 * MS);
        device.track();
    }
    assert_eq!(told(&device), [true]);
    device.poll_found_finished();
    assert_eq!(told(&device), [true, false]);
    device.poll_found_unfinished();
    bench.clock.advance(20 * MS);
    device.track();
    assert_eq!(told(&device), [true, false, true, false]);
}

/// Looks for so long, as often as the tracker would; how often it looked, and how often at the connection.
fn look_for(bench: &Bench, device: &TestDevice<'_>, ms: u64) -> (u32, usize) {
    let (end, asked, mut looks) = (bench.clock.now_ns() + ms * MS, device.link.alive_asked.load(SeqCst), 0);
    while let NextStep::At(at) = device.track()
        && at < end
    {
        looks += 1;
        bench.clock.set(at);
    }
    (looks, device.link.alive_asked.load(SeqCst) - asked)
}

#[test]
fn a_standing_grant_without_work_is_seldom_looked_at_and_with_work_as_often_as_ever() {
    let bench = Bench::new();
    let (device, thread) = (standing(&bench), ThreadState::new());
    let (looks, asked) = look_for(&bench, &device, 1000);
    assert!(looks <= 130 && asked <= 5, "{looks} looks, {asked} at the connection");
    launch(&device, &thread, 100);
    let (looks, asked) = look_for(&bench, &device, 1000);
    assert!(looks >= 480 && asked <= 5, "{looks} looks, {asked} at the connection");
    // It ends without anybody waiting for it.
    lock(&device.driver.busy).clear();
    look_for(&bench, &device, 10);
    assert_eq!(told(&device), [true, false]);
    device.link.dead.store(true, SeqCst);
    bench.clock.advance(250 * MS);
    assert_eq!(device.track(), NextStep::Immediately, "the end of the connection is seen");
}

#[test]
fn asking_for_work_that_is_known_says_nothing_more() {
    let bench = Bench::new();
    let (device, thread) = (standing(&bench), ThreadState::new());
    launch(&device, &thread, 100);
    device.poll_found_unfinished();
    wait_for(&device, 100);
    assert_eq!(told(&device), [true, false], "it is idle at once, not when it has stopped asking");
}

#[test]
fn under_a_token_only_launches_are_work() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    assert!(launch(&device, &thread, 100));
    wait_for(&device, 100);
    let before = told(&device);
    assert!(!device.needs_note(stream(100), &thread));
    device.poll_found_unfinished();
    assert_eq!(told(&device), before);
}

#[test]
fn while_a_thread_waits_the_driver_is_asked_nothing() {
    let bench = Bench::new();
    let (device, thread) = (standing(&bench), ThreadState::new());
    assert!(launch(&device, &thread, 100));
    device.track();
    let wait = device.begin_wait(WaitTarget::Created(stream(100)));
    let asked = device.driver.asked.load(SeqCst);
    (0..3).for_each(|_| _ = device.track());
    assert_eq!(device.driver.asked.load(SeqCst), asked);
    // One that was in vain tells nothing, and then the driver has to say it.
    device.end_wait(wait, false);
    lock(&device.driver.busy).clear();
    device.track();
    assert!(device.driver.asked.load(SeqCst) > asked);
    assert_eq!(told(&device), [true, false]);
}

#[test]
fn a_wait_that_lasts_long_may_be_for_something_else() {
    let bench = Bench::new();
    let (device, thread) = (standing(&bench), ThreadState::new());
    assert!(launch(&device, &thread, 100));
    let _never_ends = device.begin_wait(WaitTarget::Created(stream(101)));
    device.track();
    lock(&device.driver.busy).clear();
    bench.clock.advance(20 * MS);
    device.track();
    device.track();
    assert!(device.link.busy_ns.load(SeqCst) >= 20 * MS);
    let used = device.link.busy_ns.load(SeqCst);
    bench.clock.advance(1000 * MS);
    device.track();
    assert_eq!(device.link.busy_ns.load(SeqCst), used, "what is not used is not counted");
}

#[test]
fn the_first_look_after_a_wait_for_an_event_finds_what_has_ended() {
    let bench = Bench::new();
    let (device, thread) = (standing(&bench), ThreadState::new());
    assert!(launch(&device, &thread, 100));
    device.begin_blocking();
    device.track();
    lock(&device.driver.busy).clear();
    device.end_blocking();
    device.track();
    assert_eq!(told(&device).last(), Some(&false));
}
