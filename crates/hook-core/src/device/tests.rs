//! Fixtures of the device's tests.

mod activity;
mod counter;
mod deadline_polling;
mod deadlines;
mod environment;
mod grants;
mod hardware_waits;
mod host_bound;
mod idleness;
mod kernel_copies;
mod latency;
mod measurement;
mod silence;
mod ungated_work;
mod waiting_commands;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::*;
use crate::fakes::{FakeDriver, FakeLink, ManualClock};
use crate::lock;
use crate::outcome::Outcome;
use crate::streams::WaitTarget;

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
    fn spin(&self) {
        (**self).spin();
    }
    fn can_order_all_threads(&self) -> bool {
        (**self).can_order_all_threads()
    }
    fn order_all_threads(&self) -> bool {
        (**self).order_all_threads()
    }
}

impl<D: Driver, L: TokenLink, C: Clock> Device<'_, D, L, C> {
    /// Lets one launch pass, after waiting for a grant if there is none: the two steps of the exported functions.
    fn launch(&self, stream: Stream, thread: &ThreadState) -> Outcome<LaunchPass<'_>> {
        match self.try_launch(stream, thread) {
            Ok(pass) => Outcome::Governed(pass),
            Err(pass) => self.acquire(stream, thread, pass),
        }
    }
}

type TestDevice<'p> = Device<'p, FakeDriver, FakeLink, Arc<ManualClock>>;

/// The clock, captures, counters and settings of a device under test.
struct Fixture {
    clock: Arc<ManualClock>,
    captures: Captures,
    counters: Counters,
    settings: Settings,
}

impl Fixture {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        clock.set(1000 * MS);
        Self { clock, captures: Captures::new(), counters: Counters::zero(), settings: Settings::default() }
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

fn is_governed(outcome: &Outcome<LaunchPass<'_>>) -> bool {
    matches!(outcome, Outcome::Governed(_))
}

/// A device under an unlimited grant, with one contender.
fn unlimited(fixture: &Fixture) -> TestDevice<'_> {
    let device = fixture.detached();
    device.link.unlimited.store(true, SeqCst);
    device.link.contenders.store(1, SeqCst);
    device.track();
    device
}

/// Submits one launch and makes the stream busy until it is drained.
fn launch(device: &TestDevice<'_>, thread: &ThreadState, handle: u64) -> bool {
    let governed = is_governed(&device.launch(stream(handle), thread));
    lock(&device.driver.busy).push(handle);
    governed
}

/// The program waits for a stream and the GPU has finished.
fn wait_for(device: &TestDevice<'_>, handle: u64) {
    let wait = device.begin_wait(WaitTarget::Stream(7, stream(handle)), 1);
    lock(&device.driver.busy).retain(|busy| *busy != handle);
    device.end_wait(wait, true);
}

/// Checks that with `fail_closed` launches wait while the manager is absent, and pass when it is back.
fn check_launches_wait_with_fail_closed(absent: fn(&FakeLink) -> &AtomicBool) {
    let fixture = Fixture::new();
    let device = fixture.device();
    device.link.closed.store(true, SeqCst);
    check_launches_wait(&fixture, &device, absent);
    assert_eq!(fixture.counters.bypassed(Bypass::ManagerGone), 0);
}

/// Checks that launches wait while the manager is absent or has no room, and pass when that is over.
fn check_launches_wait(fixture: &Fixture, device: &TestDevice<'_>, absent: fn(&FakeLink) -> &AtomicBool) {
    absent(&device.link).store(true, SeqCst);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| is_governed(&device.launch(stream(100), &ThreadState::empty())));
        while !matches!(device.lock().phase, state::Phase::Lost { .. }) {
            std::thread::yield_now();
        }
        for _ in 0..5 {
            device.track();
            fixture.clock.advance(1000 * MS);
        }
        assert!(!held.is_finished());
        absent(&device.link).store(false, SeqCst);
        device.track();
        assert!(held.join().expect("the launch returns"));
    });
}

fn used(device: &TestDevice<'_>, at: usize) -> (f64, f64) {
    let used = device.link.sent()[at].0.expect("a report of the grant");
    (used.used_ms, used.overuse_ms)
}

/// Ends the grant at its deadline; each wait for an event takes `drain_ns`.
fn end_grant(fixture: &Fixture, device: &TestDevice<'_>, drain_ns: u64) {
    fixture.clock.advance(100 * MS);
    device.driver.drain_ns.store(drain_ns, SeqCst);
    device.track();
    device.track();
}

/// Ends the grant and checks its report, in milliseconds: GPU time and overrun. All events are returned.
fn check_end_of_grant(fixture: &Fixture, device: &TestDevice<'_>, drain_ns: u64, report: (f64, f64)) {
    end_grant(fixture, device, drain_ns);
    assert_eq!(used(device, 1), report);
    assert_eq!(device.driver.live_marks.load(SeqCst), 0);
}

/// The activity that was reported, without the times.
fn reported(device: &TestDevice<'_>) -> Vec<bool> {
    lock(&device.link.activity).iter().map(|(busy, _)| *busy).collect()
}
