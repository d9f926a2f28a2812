//! The event loop's time: a clock, the time-stamp counter beside it, and a timer that wakes the loop.

use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use sluice_sys::{clock, tsc};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// How long a calibration of the counter against the clock is used, nanoseconds.
const CALIBRATION_LIFE_NS: u64 = 1_000_000_000;

/// The same while the counter's rate is not certain, because the counter was set.
const UNCERTAIN_LIFE_NS: u64 = 20_000_000;

/// A monotonic clock with a timer.
pub trait Clock: Send {
    /// Nanoseconds; never goes back. Processes compare the deadlines on their pages with the same clock: CLOCK_MONOTONIC.
    fn now_ns(&self) -> u64;
    /// The time-stamp counter's value at a time; `None` where the counter cannot be used.
    fn ticks_at(&mut self, ns: u64) -> Option<u64>;
    /// Readable once the time last armed has come.
    fn timer(&self) -> BorrowedFd<'_>;
    /// Wakes the loop at `at` (at once if it has passed), or not at all.
    /// Errors: what the system call returns.
    fn arm(&mut self, at: Option<u64>) -> io::Result<()>;
    /// Makes the timer unreadable until it is armed again or its time comes.
    fn acknowledge(&mut self);
}

/// CLOCK_MONOTONIC, a timerfd, and the TSC where it is good.
#[derive(Debug)]
pub struct SystemClock {
    timer: TimerFd,
    armed: Option<u64>,
    calibration: Option<tsc::Calibration>,
    calibrated_at: u64,
}

impl SystemClock {
    /// Opens the timer and measures the TSC (20 ms).
    /// Errors: what timerfd_create returns.
    pub fn new() -> io::Result<Self> {
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        let calibration = tsc::Calibration::measure();
        Ok(Self { timer, armed: None, calibration, calibrated_at: clock::monotonic_ns() })
    }
}

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        clock::monotonic_ns()
    }

    fn ticks_at(&mut self, ns: u64) -> Option<u64> {
        let calibration = self.calibration.as_mut()?;
        let now = clock::monotonic_ns();
        let life_ns = if calibration.is_rate_uncertain() { UNCERTAIN_LIFE_NS } else { CALIBRATION_LIFE_NS };
        if now.saturating_sub(self.calibrated_at) > life_ns {
            calibration.refresh();
            self.calibrated_at = now;
        }
        Some(calibration.ticks_at(ns))
    }

    fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    fn arm(&mut self, at: Option<u64>) -> io::Result<()> {
        // A timer that fires too early costs one round of the loop; setting it costs a system call each time.
        match (at, self.armed) {
            (None, _) => return Ok(()),
            (Some(at), Some(armed)) if armed <= at => return Ok(()),
            _ => {}
        }
        let at_ns = at.unwrap_or(0).max(1);
        let spec = TimeSpec::nanoseconds(i64::try_from(at_ns).unwrap_or(i64::MAX));
        self.timer.set(Expiration::OneShot(spec), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        self.armed = Some(at_ns);
        Ok(())
    }

    fn acknowledge(&mut self) {
        self.armed = None;
        let mut count = [0; 8];
        // Nothing to read means that it was armed anew meanwhile.
        let _ = nix::unistd::read(&self.timer, &mut count);
    }
}
