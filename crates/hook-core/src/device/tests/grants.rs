//! Grants: asked for, used, measured, given back.

use super::*;

#[test]
fn the_first_launch_asks_once_and_later_ones_pass_without_asking() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    assert!(launch(&device, &thread, 100));
    assert_eq!(device.link.sent().len(), 1);
    assert!(device.try_launch(stream(100), &thread).is_ok());
    assert_eq!(device.link.sent().len(), 1);
    assert!(device.try_launch(stream(101), &thread).is_err(), "another stream has to be noted first");
}

#[test]
fn a_launch_after_the_deadline_is_held_until_the_last_grant_has_drained() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    launch(&device, &thread, 100);
    bench.clock.advance(100 * MS);
    assert!(device.try_launch(stream(100), &thread).is_err());
    std::thread::scope(|scope| {
        let held = scope.spawn(|| is_governed(&device.launch(stream(100), &ThreadState::new())));
        while device.lock().waiting_launches == 0 {
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
    let (device, thread) = (bench.device(), ThreadState::new());
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
    assert_eq!(lock(&device.driver.marked).len(), 2, "begin and end of the burst, and nothing at the drain");
}

#[test]
fn only_the_busy_time_of_several_bursts_is_charged() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
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
    let (device, thread) = (bench.device(), ThreadState::new());
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
fn what_the_host_takes_to_notice_the_end_of_a_burst_is_not_charged() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    device.driver.elapsed_ns.store(4 * MS, SeqCst);
    // Bursts of 4 ms on the GPU that the host sees end after 5, most of them not measured.
    for _ in 0..15 {
        launch(&device, &thread, 100);
        bench.clock.advance(5 * MS);
        wait_for(&device, 100);
    }
    bench.clock.advance(100 * MS);
    device.track();
    device.track();
    let (used_ms, _) = used(&device, 1);
    assert!((60.0..63.0).contains(&used_ms), "{used_ms} ms for 60 ms of GPU time in 75 ms");
    assert_eq!(device.driver.live_marks.load(SeqCst), 0);
}

#[test]
fn short_bursts_are_not_slowed_down_by_measuring_each() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    for _ in 0..90 {
        launch(&device, &thread, 100);
        wait_for(&device, 100);
        bench.clock.advance(MS);
    }
    // While one burst goes on, neither are its waits.
    launch(&device, &thread, 100);
    for _ in 0..90 {
        let wait = device.begin_wait(WaitTarget::Stream(7, stream(100)));
        device.end_wait(wait, false);
    }
    let events = lock(&device.driver.marked).len();
    assert!((10..=20).contains(&events), "{events} events in 90 ms");
}

#[test]
fn a_measurement_of_one_burst_is_not_taken_for_that_of_another() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    device.driver.elapsed_ns.store(50 * MS, SeqCst);
    // The wait for two streams leaves the burst unmeasured, and the next begins too soon to be measured.
    launch(&device, &thread, 100);
    launch(&device, &thread, 101);
    bench.clock.advance(MS);
    wait_for(&device, 100);
    lock(&device.driver.busy).clear();
    device.end_wait(device.begin_wait(WaitTarget::Context(7)), true);
    bench.clock.advance(2 * MS);
    launch(&device, &thread, 100);
    bench.clock.advance(97 * MS);
    device.driver.drain_ns.store(2 * MS, SeqCst);
    device.track();
    device.track();
    let (used_ms, overuse_ms) = used(&device, 1);
    assert_eq!(overuse_ms, 2.0);
    assert!(used_ms > 90.0, "{used_ms}");
}

#[test]
fn a_wait_that_fails_ends_no_burst() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    launch(&device, &thread, 100);
    bench.clock.advance(MS);
    let wait = device.begin_wait(WaitTarget::Stream(7, stream(100)));
    device.end_wait(wait, false);
    assert!(device.lock().is_busy());
}

#[test]
fn an_idle_holder_gives_the_token_back_when_others_wait() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
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
    assert!(device.try_launch(stream(100), &thread).is_err(), "what was given back is not used");
}

#[test]
fn a_holder_that_was_idle_for_a_moment_only_keeps_the_token() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
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
    let (device, thread) = (bench.device(), ThreadState::new());
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
    let (device, thread) = (bench.device(), ThreadState::new());
    device.link.contended.store(true, SeqCst);
    launch(&device, &thread, 100);
    bench.clock.advance(MS);
    device.track();
    bench.clock.advance(MS);
    device.track();
    assert_eq!(device.link.sent().len(), 1, "the stream has work");
    bench.clock.advance(5 * MS);
    lock(&device.driver.busy).clear();
    device.track();
    bench.clock.advance(MS);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (7.0, 0.0));
}

#[test]
fn the_driver_is_not_asked_about_a_program_that_launches_all_the_time() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    device.link.contended.store(true, SeqCst);
    for _ in 0..10 {
        launch(&device, &thread, 100);
        bench.clock.advance(MS);
        device.track();
    }
    assert_eq!(device.driver.asked.load(SeqCst), 0);
}

#[test]
fn a_burst_that_only_just_fits_a_quota_asks_early_once_and_then_begins() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    launch(&device, &thread, 100);
    bench.clock.advance(99 * MS + MS / 2);
    wait_for(&device, 100);
    device.link.contended.store(true, SeqCst);
    // Each answer takes a millisecond, after which a burst of 99.5 ms does not fit into what is left of 100 ms.
    device.link.delay_ns.store(MS, SeqCst);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| launch(&device, &ThreadState::new(), 100));
        while !held.is_finished() {
            device.track();
        }
        assert!(held.join().expect("the launch returns"));
    });
    assert!(bench.counters.grants.load(SeqCst) <= 3);
}

#[test]
fn a_burst_that_does_not_fit_any_more_asks_before_it_begins() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    for _ in 0..4 {
        launch(&device, &thread, 100);
        bench.clock.advance(20 * MS);
        wait_for(&device, 100);
    }
    bench.clock.advance(10 * MS);
    // 10 ms are left of the grant, somebody waits, and the program's bursts take 20.
    device.link.contended.store(true, SeqCst);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| launch(&device, &ThreadState::new(), 100));
        while device.lock().waiting_launches == 0 {
            std::thread::yield_now();
        }
        device.track();
        assert!(held.join().expect("the launch returns"));
    });
    assert_eq!(used(&device, 1), (80.0, 0.0));
    assert_eq!(bench.counters.grants.load(SeqCst), 2);
}

#[test]
fn a_burst_that_fits_no_quota_does_not_ask_for_ever() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
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
fn the_drain_waits_for_a_launch_that_had_passed_the_gate() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    let pass = device.launch(stream(100), &thread);
    bench.clock.advance(100 * MS);
    device.track();
    // The clock goes on with every look at the launch, so nobody has to let it go: at the end the drain loses patience.
    let began = bench.clock.now_ns();
    device.track();
    assert!(bench.clock.now_ns() - began >= 10 * MS, "the launch was not waited for");
    drop(pass);
    assert_eq!(device.link.sent().len(), 2);
}

#[test]
fn a_standing_grant_rings_when_work_arrives_and_not_for_each_launch() {
    let bench = Bench::new();
    let device = bench.detached();
    let thread = ThreadState::new();
    device.link.standing.store(true, SeqCst);
    device.track();
    for _ in 0..3 {
        launch(&device, &thread, 100);
        launch(&device, &thread, 100);
        bench.clock.advance(MS);
        wait_for(&device, 100);
    }
    assert_eq!(device.link.wakeups.load(SeqCst), 3);
    device.track();
    assert_eq!(device.link.busy_ns.load(SeqCst), 3 * MS);
}

#[test]
fn who_never_asks_keeps_no_records_for_a_question() {
    for standing in [true, false] {
        let bench = Bench::new();
        let (device, thread) = (bench.detached(), ThreadState::new());
        device.link.standing.store(standing, SeqCst);
        device.link.quota_ms.store(1000, SeqCst);
        device.track();
        for _ in 0..3 {
            assert!(launch(&device, &thread, 100));
            bench.clock.advance(MS);
            wait_for(&device, 100);
            bench.clock.advance(MS);
        }
        let now = bench.clock.now_ns();
        let known = device.lock().burst.predict_single(now) > 0.0;
        assert_eq!(known, !standing);
    }
}

#[test]
fn a_thousand_threads_share_one_question() {
    let bench = Bench::new();
    let device = bench.device();
    device.link.holds_answers.store(true, SeqCst);
    let governed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..1000)
            .map(|at| {
                let device = &device;
                scope.spawn(move || launch(device, &ThreadState::new(), 100 + at))
            })
            .collect();
        while device.lock().waiting_launches < 1000 {
            std::thread::yield_now();
        }
        device.link.holds_answers.store(false, SeqCst);
        threads.into_iter().map(|thread| thread.join()).filter(|done| matches!(done, Ok(true))).count()
    });
    assert_eq!(governed, 1000);
    assert_eq!(device.link.sent().len(), 1);
    assert_eq!(device.link.received.load(SeqCst), 1, "one thread waits for the answer, the others for it");
}

#[test]
fn a_grant_that_comes_while_the_tracker_is_on_its_way_to_sleep_is_not_slept_through() {
    let bench = Bench::new();
    let (device, thread) = (bench.device(), ThreadState::new());
    let (now, looks) = (bench.clock.now_ns(), std::sync::atomic::AtomicU64::new(0));
    let began = std::time::Instant::now();
    device.run_tracker(
        || looks.load(SeqCst) == 2,
        || {
            if looks.fetch_add(1, SeqCst) == 0 {
                assert!(launch(&device, &thread, 100));
                // Makes the sleep that nobody ends longer than a second.
                bench.clock.set(now - 900 * MS);
            } else {
                bench.clock.set(now + 1000 * MS);
            }
        },
    );
    assert!(began.elapsed().as_millis() < 900, "slept for {:?}", began.elapsed());
}
