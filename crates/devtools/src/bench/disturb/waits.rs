//! Waits that a signal ends, in all threads at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use sluice_test_bed::Interrupts;

/// Signals, read by several threads. Each signal is delivered to one reader, which tells the others.
pub(super) struct Waits<'a> {
    interrupts: &'a Interrupts,
    interrupted: AtomicBool,
}

impl<'a> Waits<'a> {
    pub(super) fn new(interrupts: &'a Interrupts) -> Self {
        Self { interrupts, interrupted: AtomicBool::new(false) }
    }

    /// Fails if a signal has come.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.is_interrupted() {
            bail!("interrupted");
        }
        self.interrupts.check().inspect_err(|_| self.interrupted.store(true, Ordering::Release))
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// Sleeps for a moment, then the same as [`Waits::check`].
    pub(super) fn pause(&self) -> anyhow::Result<()> {
        std::thread::sleep(Duration::from_millis(10));
        self.check()
    }

    /// Sleeps for `time`.
    pub(super) fn rest(&self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            std::thread::sleep(left.min(Duration::from_millis(10)));
            self.check()?;
        }
        Ok(())
    }

    /// Polls until `found` returns a value, for `timeout` at most.
    pub(super) fn until<T>(
        &self,
        what: &str,
        timeout: Duration,
        mut found: impl FnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let end = Instant::now() + timeout;
        loop {
            if let Some(value) = found()? {
                return Ok(value);
            }
            if Instant::now() >= end {
                return Err(anyhow!("{what}: not within {:.1} s", timeout.as_secs_f64()));
            }
            self.pause()?;
        }
    }
}
