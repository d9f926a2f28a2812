//! Grants: requested, used, measured, returned.

use super::*;

#[test]
fn first_launch_requests_a_grant_and_later_ones_pass() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    assert!(launch(&device, &thread, 100));
    assert_eq!(device.link.sent().len(), 1);
    assert!(device.try_launch(stream(100), &thread).is_ok());
    assert_eq!(device.link.sent().len(), 1);
    assert!(device.try_launch(stream(101), &thread).is_err(), "another stream has to be noted first");
}

#[test]
fn launch_after_the_deadline_waits_until_the_last_grant_has_drained() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    launch(&device, &thread, 100);
    fixture.clock.advance(100 * MS);
    assert!(device.try_launch(stream(100), &thread).is_err());
    std::thread::scope(|scope| {
        let held = scope.spawn(|| is_governed(&device.launch(stream(100), &ThreadState::new())));
        while device.lock().waiting_launches == 0 {
            std::thread::yield_now();
        }
        assert_eq!(device.link.sent().len(), 1, "no request while work of the last grant runs");
        device.driver.drain_ns.store(3 * MS, SeqCst);
        device.track();
        assert!(held.join().expect("the launch returns"));
    });
    let sent = device.link.sent();
    assert_eq!(sent.len(), 2, "report and request are one message");
    assert_eq!(used(&device, 1), (103.0, 3.0));
    let ask = sent[1].1.expect("a request with the report");
    assert_eq!((ask.overuse_ms, ask.next_burst_ms), (3.0, 206.0), "it never paused, so the burst was cut");
}

#[test]
fn unused_grant_is_returned_at_its_deadline() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    launch(&device, &thread, 100);
    fixture.clock.advance(10 * MS);
    wait_for(&device, 100);
    fixture.clock.advance(200 * MS);
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
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    for _ in 0..3 {
        launch(&device, &thread, 100);
        fixture.clock.advance(2 * MS);
        wait_for(&device, 100);
        fixture.clock.advance(5 * MS);
    }
    fixture.clock.advance(100 * MS);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (6.0, 0.0));
}

#[test]
fn events_measure_a_grant_that_was_one_burst() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    launch(&device, &thread, 100);
    fixture.clock.advance(100 * MS);
    device.driver.drain_ns.store(7 * MS, SeqCst);
    device.driver.elapsed_ns.store(104 * MS, SeqCst);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (104.0, 4.0), "GPU time, not the time at which the tracker woke up");
    assert_eq!(device.driver.live_marks.load(SeqCst), 0, "every event is returned");
}

#[test]
fn delay_of_the_host_at_the_end_of_a_burst_is_not_charged() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    device.driver.elapsed_ns.store(4 * MS, SeqCst);
    // Bursts of 4 ms on the GPU whose end the host notices after 5 ms. Most of them are not measured.
    for _ in 0..15 {
        launch(&device, &thread, 100);
        fixture.clock.advance(5 * MS);
        wait_for(&device, 100);
    }
    fixture.clock.advance(100 * MS);
    device.track();
    device.track();
    let (used_ms, _) = used(&device, 1);
    assert!((60.0..63.0).contains(&used_ms), "{used_ms} ms for 60 ms of GPU time in 75 ms");
    assert_eq!(device.driver.live_marks.load(SeqCst), 0);
}

#[test]
fn short_bursts_are_measured_rarely() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    for _ in 0..90 {
        launch(&device, &thread, 100);
        wait_for(&device, 100);
        fixture.clock.advance(MS);
    }
    // Nor does each wait of one burst record an event.
    launch(&device, &thread, 100);
    for _ in 0..90 {
        let wait = device.begin_wait(WaitTarget::Stream(7, stream(100)));
        device.end_wait(wait, false);
    }
    let events = lock(&device.driver.marked).len();
    assert!((10..=20).contains(&events), "{events} events in 90 ms");
}

#[test]
fn measurement_applies_to_its_own_burst_only() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    device.driver.elapsed_ns.store(50 * MS, SeqCst);
    // The wait for two streams leaves the burst unmeasured, and the next begins too soon to be measured.
    launch(&device, &thread, 100);
    launch(&device, &thread, 101);
    fixture.clock.advance(MS);
    wait_for(&device, 100);
    lock(&device.driver.busy).clear();
    device.end_wait(device.begin_wait(WaitTarget::Context(7)), true);
    fixture.clock.advance(2 * MS);
    launch(&device, &thread, 100);
    fixture.clock.advance(97 * MS);
    device.driver.drain_ns.store(2 * MS, SeqCst);
    device.track();
    device.track();
    let (used_ms, overuse_ms) = used(&device, 1);
    assert_eq!(overuse_ms, 2.0);
    assert!(used_ms > 90.0, "{used_ms}");
}

#[test]
fn a_wait_that_fails_ends_no_burst() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    launch(&device, &thread, 100);
    fixture.clock.advance(MS);
    let wait = device.begin_wait(WaitTarget::Stream(7, stream(100)));
    device.end_wait(wait, false);
    assert!(device.lock().is_busy());
}

#[test]
fn idle_holder_returns_the_token_when_other_clients_wait() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    launch(&device, &thread, 100);
    fixture.clock.advance(MS);
    wait_for(&device, 100);
    fixture.clock.advance(10 * MS);
    device.track();
    assert_eq!(device.link.sent().len(), 1, "no other client waits");
    device.link.contended.store(true, SeqCst);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (1.0, 0.0));
    assert!(device.try_launch(stream(100), &thread).is_err(), "a returned grant is not used");
}

#[test]
fn holder_keeps_the_token_below_the_idle_time() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    device.link.contended.store(true, SeqCst);
    launch(&device, &thread, 100);
    fixture.clock.advance(MS);
    wait_for(&device, 100);
    fixture.clock.advance(fixture.settings.idle_ns - 1);
    device.track();
    device.track();
    assert_eq!(device.link.sent().len(), 1);
    fixture.clock.advance(1);
    device.track();
    device.track();
    assert_eq!(device.link.sent().len(), 2);
}

#[test]
fn program_with_long_windows_returns_the_token_at_once() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    for _ in 0..4 {
        launch(&device, &thread, 100);
        fixture.clock.advance(MS);
        wait_for(&device, 100);
        fixture.clock.advance(9 * MS);
    }
    device.link.contended.store(true, SeqCst);
    launch(&device, &thread, 100);
    wait_for(&device, 100);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (4.0, 0.0));
}

#[test]
fn idleness_without_waits_is_found_by_querying_the_driver() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    device.link.contended.store(true, SeqCst);
    launch(&device, &thread, 100);
    fixture.clock.advance(MS);
    device.track();
    fixture.clock.advance(MS);
    device.track();
    assert_eq!(device.link.sent().len(), 1, "the stream has work");
    fixture.clock.advance(5 * MS);
    lock(&device.driver.busy).clear();
    device.track();
    fixture.clock.advance(MS);
    device.track();
    device.track();
    assert_eq!(used(&device, 1), (7.0, 0.0));
}

#[test]
fn driver_is_not_queried_while_launches_go_on() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    device.link.contended.store(true, SeqCst);
    for _ in 0..10 {
        launch(&device, &thread, 100);
        fixture.clock.advance(MS);
        device.track();
    }
    assert_eq!(device.driver.queries.load(SeqCst), 0);
}

#[test]
fn burst_that_barely_fits_renews_the_grant_early_once() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    launch(&device, &thread, 100);
    fixture.clock.advance(99 * MS + MS / 2);
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
    assert!(fixture.counters.grants.load(SeqCst) <= 3);
}

#[test]
fn burst_beyond_the_rest_of_the_grant_renews_it_first() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    for _ in 0..4 {
        launch(&device, &thread, 100);
        fixture.clock.advance(20 * MS);
        wait_for(&device, 100);
    }
    fixture.clock.advance(10 * MS);
    // 10 ms are left of the grant, another client waits, and the program's bursts take 20 ms.
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
    assert_eq!(fixture.counters.grants.load(SeqCst), 2);
}

#[test]
fn burst_that_fits_no_quota_begins_all_the_same() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    launch(&device, &thread, 100);
    fixture.clock.advance(99 * MS);
    wait_for(&device, 100);
    device.link.quota_ms.store(50, SeqCst);
    fixture.clock.advance(100 * MS);
    device.track();
    device.track();
    assert!(launch(&device, &thread, 100), "bursts take 99 ms and the quota is 50");
    assert_eq!(device.link.sent().len(), 3);
}

#[test]
fn drain_waits_for_a_launch_in_flight() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    let pass = device.launch(stream(100), &thread);
    fixture.clock.advance(100 * MS);
    device.track();
    // Each check of the drain advances the clock, so the drain ends by its timeout.
    let began = fixture.clock.now_ns();
    device.track();
    assert!(fixture.clock.now_ns() - began >= 10 * MS, "the launch was not waited for");
    drop(pass);
    assert_eq!(device.link.sent().len(), 2);
}

#[test]
fn unlimited_grant_wakes_the_manager_per_burst_and_not_per_launch() {
    let fixture = Fixture::new();
    let device = fixture.detached();
    let thread = ThreadState::new();
    device.link.unlimited.store(true, SeqCst);
    device.track();
    for _ in 0..3 {
        launch(&device, &thread, 100);
        launch(&device, &thread, 100);
        fixture.clock.advance(MS);
        wait_for(&device, 100);
    }
    assert_eq!(device.link.wakeups.load(SeqCst), 3);
    device.track();
    assert_eq!(device.link.busy_ns.load(SeqCst), 3 * MS);
}

#[test]
fn unlimited_grant_keeps_no_burst_records() {
    for unlimited in [true, false] {
        let fixture = Fixture::new();
        let (device, thread) = (fixture.detached(), ThreadState::new());
        device.link.unlimited.store(unlimited, SeqCst);
        device.link.quota_ms.store(1000, SeqCst);
        device.track();
        for _ in 0..3 {
            assert!(launch(&device, &thread, 100));
            fixture.clock.advance(MS);
            wait_for(&device, 100);
            fixture.clock.advance(MS);
        }
        let now = fixture.clock.now_ns();
        let known = device.lock().burst.predict_single(now) > 0.0;
        assert_eq!(known, !unlimited);
    }
}

#[test]
fn thousand_threads_share_one_grant_request() {
    let fixture = Fixture::new();
    let device = fixture.device();
    device.link.withholds_answers.store(true, SeqCst);
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
        device.link.withholds_answers.store(false, SeqCst);
        threads.into_iter().map(|thread| thread.join()).filter(|done| matches!(done, Ok(true))).count()
    });
    assert_eq!(governed, 1000);
    assert_eq!(device.link.sent().len(), 1);
    assert_eq!(device.link.received.load(SeqCst), 1, "one thread reads the answer for all");
}

#[test]
fn grant_that_opens_just_before_the_tracker_sleeps_wakes_it() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::new());
    let (now, polls) = (fixture.clock.now_ns(), std::sync::atomic::AtomicU64::new(0));
    let began = std::time::Instant::now();
    device.run_tracker(
        || polls.load(SeqCst) == 2,
        || {
            if polls.fetch_add(1, SeqCst) == 0 {
                assert!(launch(&device, &thread, 100));
                // Makes a sleep that is not interrupted longer than a second.
                fixture.clock.set(now - 900 * MS);
            } else {
                fixture.clock.set(now + 1000 * MS);
            }
        },
    );
    assert!(began.elapsed().as_millis() < 900, "slept for {:?}", began.elapsed());
}
