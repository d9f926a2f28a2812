//! Grants: requested, renewed, drained, and woken for.

use super::*;

#[test]
fn first_launch_requests_a_grant_and_later_ones_pass() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    assert!(launch(&device, &thread, 100));
    assert_eq!(device.link.sent().len(), 1);
    assert!(device.try_launch(stream(100), &thread).is_ok());
    assert_eq!(device.link.sent().len(), 1);
    assert!(device.try_launch(stream(101), &thread).is_err(), "another stream has to be noted first");
}

#[test]
fn launch_after_the_deadline_waits_until_the_last_grant_has_drained() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    fixture.clock.advance(100 * MS);
    assert!(device.try_launch(stream(100), &thread).is_err());
    std::thread::scope(|scope| {
        let held = scope.spawn(|| is_governed(&device.launch(stream(100), &ThreadState::empty())));
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
fn burst_that_barely_fits_renews_the_grant_early_once() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    fixture.clock.advance(99 * MS + MS / 2);
    wait_for(&device, 100);
    device.link.contended.store(true, SeqCst);
    // Each answer takes a millisecond, after which a burst of 99.5 ms does not fit into what is left of 100 ms.
    device.link.delay_ns.store(MS, SeqCst);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| launch(&device, &ThreadState::empty(), 100));
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
    let (device, thread) = (fixture.device(), ThreadState::empty());
    for _ in 0..4 {
        launch(&device, &thread, 100);
        fixture.clock.advance(20 * MS);
        wait_for(&device, 100);
    }
    fixture.clock.advance(10 * MS);
    // 10 ms are left of the grant, another client waits, and the program's bursts take 20 ms.
    device.link.contended.store(true, SeqCst);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| launch(&device, &ThreadState::empty(), 100));
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
    let (device, thread) = (fixture.device(), ThreadState::empty());
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
fn drain_orders_all_threads_once() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    device.gate.set_ordered_by_drain(true);
    launch(&device, &thread, 100);
    fixture.clock.advance(100 * MS);
    device.track();
    assert_eq!(fixture.clock.times_ordered(), 0, "the gate closes first");
    device.track();
    assert_eq!(fixture.clock.times_ordered(), 1);
}

#[test]
fn drain_waits_for_a_launch_in_flight() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
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
fn grant_with_commands_in_queues_of_the_hook_is_returned_when_the_gpu_has_done_them() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    fixture.clock.advance(100 * MS);
    device.driver.queued_until_ns.store(fixture.clock.now_ns() + 40 * MS, SeqCst);
    device.driver.drain_ns.store(3 * MS, SeqCst);
    device.track();
    device.track();
    let (used_ms, overuse_ms) = used(&device, 1);
    assert!((143.0..144.0).contains(&used_ms), "the queued 40 ms and the last 3 ms, not {used_ms}");
    assert!((43.0..44.0).contains(&overuse_ms), "{overuse_ms}");
}

#[test]
fn drain_waits_for_queued_commands_of_a_destroyed_stream() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    drop(device.forget_stream(stream(100)));
    fixture.clock.advance(100 * MS);
    device.driver.queued_until_ns.store(fixture.clock.now_ns() + 40 * MS, SeqCst);
    device.track();
    device.track();
    let (used_ms, _) = used(&device, 1);
    assert!((140.0..141.0).contains(&used_ms), "the queued 40 ms as well, not {used_ms}");
}

#[test]
fn drain_that_waits_for_queued_commands_delays_no_end_of_a_context() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    fixture.clock.advance(100 * MS);
    device.track();
    device.driver.queued_until_ns.store(u64::MAX, SeqCst);
    let began = fixture.clock.now_ns();
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| device.track());
        while fixture.clock.now_ns() < began + MS && !drain.is_finished() {
            std::thread::yield_now();
        }
        // The context ends while the drain waits, and with it what is queued.
        let locks = device.lock_contexts();
        assert!(fixture.clock.now_ns() < began + 2_000 * MS, "the drain waits without the locks");
        device.driver.queued_until_ns.store(0, SeqCst);
        device.forget_context(7);
        drop(locks);
        drain.join().expect("the drain ends");
    });
    assert_eq!(device.link.sent().len(), 2);
}

#[test]
fn drain_does_not_wait_for_queued_commands_longer_than_the_manager_waits_for_the_grant() {
    let fixture = Fixture::new();
    let (device, thread) = (fixture.device(), ThreadState::empty());
    launch(&device, &thread, 100);
    fixture.clock.advance(100 * MS);
    device.driver.queued_until_ns.store(u64::MAX, SeqCst);
    device.track();
    let began = fixture.clock.now_ns();
    device.track();
    let waited = fixture.clock.now_ns() - began;
    assert!((2_000 * MS..2_100 * MS).contains(&waited), "{waited} ns");
    assert_eq!(device.link.sent().len(), 2);
}

#[test]
fn unlimited_grant_wakes_the_manager_per_burst_and_not_per_launch() {
    let fixture = Fixture::new();
    let device = fixture.detached();
    let thread = ThreadState::empty();
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
fn thousand_threads_share_one_grant_request() {
    let fixture = Fixture::new();
    let device = fixture.device();
    device.link.withholds_answers.store(true, SeqCst);
    let governed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..1000)
            .map(|at| {
                let device = &device;
                scope.spawn(move || launch(device, &ThreadState::empty(), 100 + at))
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
    let (device, thread) = (fixture.device(), ThreadState::empty());
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
