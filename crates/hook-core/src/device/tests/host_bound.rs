use super::*;
use crate::host_bound::{SliceReport, Slices};
use crate::latency::Measured;

/// A step of 300 launches in 3 ms, and a wait of 400 µs; or one launch, and a wait of 3 ms.
fn step(device: &TestDevice<'_>, thread: &ThreadState, clock: &ManualClock, is_host_bound: bool) {
    let (launches, pause_ns, wait_ns) =
        if is_host_bound { (300, 10_000, 400_000) } else { (1, 10_000, 3 * MS) };
    for _ in 0..launches {
        assert!(launch(device, thread, 0x10));
        clock.advance(pause_ns);
    }
    let wait = device.begin_wait(WaitTarget::Stream(7, stream(0x10)), 1);
    clock.advance(wait_ns);
    lock(&device.driver.busy).clear();
    device.end_wait(wait, true);
    clock.advance(50_000);
}

fn wanted(device: &TestDevice<'_>) -> Slices {
    lock(&device.link.slices).wanted
}

/// A process with an unlimited grant beside one contender.
fn attached<'f>(fixture: &'f Fixture, critical: bool) -> TestDevice<'f> {
    let device = fixture.detached();
    device.link.unlimited.store(true, SeqCst);
    device.link.critical.store(critical, SeqCst);
    device.link.contenders.store(1, SeqCst);
    device.track();
    device
}

#[test]
fn host_bound_process_reports_that_it_wants_default_slices_with_the_figures() {
    let fixture = Fixture::new();
    let (device, thread) = (attached(&fixture, true), ThreadState::empty());
    (0..400).for_each(|_| step(&device, &thread, &fixture.clock, true));
    assert_eq!(wanted(&device), Slices::Default);
    assert_eq!(lock(&device.link.slices).medians_ns, (3_400_000, 3_400_000));
    // After another connection the new page has the report, too.
    *lock(&device.link.slices) = SliceReport::default();
    device.link.dead.store(true, SeqCst);
    device.wake_tracker();
    device.track();
    device.link.dead.store(false, SeqCst);
    fixture.clock.advance(1000 * MS);
    device.track();
    assert_eq!(wanted(&device), Slices::Default);
    (0..400).for_each(|_| step(&device, &thread, &fixture.clock, false));
    assert_eq!(wanted(&device), Slices::Short);
}

/// A step takes 3.4 ms. The steps of a request follow each other at once.
#[test]
fn host_bound_process_that_misses_its_latency_goal_wants_short_slices() {
    for (slo_ns, expected) in [(0, Slices::Default), (20 * MS, Slices::Default), (10 * MS, Slices::Short)] {
        let fixture = Fixture::new();
        let (device, thread) = (attached(&fixture, true), ThreadState::empty());
        device.link.slo_ns.store(slo_ns, SeqCst);
        for _ in 0..200 {
            (0..4).for_each(|_| step(&device, &thread, &fixture.clock, true));
            fixture.clock.advance(20 * MS);
            device.track();
        }
        let requests: Vec<Measured> = lock(&device.link.latencies).clone();
        assert!(
            requests.iter().any(|request| matches!(request, Measured::Request(ns) if *ns > 12 * MS)),
            "{requests:?}"
        );
        assert_eq!(wanted(&device), expected, "with a goal of {slo_ns} ns");
    }
}

#[test]
fn best_effort_process_or_one_without_contenders_reports_nothing() {
    for (critical, contenders) in [(false, 1), (true, 0)] {
        let fixture = Fixture::new();
        let (device, thread) = (attached(&fixture, critical), ThreadState::empty());
        device.link.contenders.store(contenders, SeqCst);
        (0..400).for_each(|_| step(&device, &thread, &fixture.clock, true));
        assert_eq!(*lock(&device.link.slices), SliceReport::default());
    }
}

#[test]
fn burst_that_the_tracker_has_cut_is_left_out() {
    let fixture = Fixture::new();
    let (device, thread) = (attached(&fixture, true), ThreadState::empty());
    for _ in 0..400 {
        launch(&device, &thread, 0x10);
        lock(&device.driver.busy).clear();
        // The program pauses for longer than the tracker's polls are apart, or polls for completion itself.
        (0..2).for_each(|_| _ = device.track());
        step(&device, &thread, &fixture.clock, true);
    }
    assert_eq!(*lock(&device.link.slices), SliceReport::default());
}

#[test]
fn process_that_waits_for_the_gpu_reports_nothing() {
    let fixture = Fixture::new();
    let (device, thread) = (attached(&fixture, true), ThreadState::empty());
    (0..400).for_each(|_| step(&device, &thread, &fixture.clock, false));
    assert_eq!(*lock(&device.link.slices), SliceReport::default());
}
