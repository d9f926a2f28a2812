//! Controls tried on two busy programs of the doctor's own, and judged by what they complete.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sluice_nvrm::ControlError;
use sluice_nvrm::selftest::{self, Effect};

use super::groups::{Group, Steered};
use super::helper::Busy;
use super::manager::Manager;

/// Kernels that a program has in flight.
pub(super) const DEPTH: usize = 24;
/// Time of each: long enough that a slow machine keeps the GPU busy.
pub(super) const KERNEL: Duration = Duration::from_millis(1);

/// Slices of a trial, in microseconds: 1 : 4, and far from the tiny ones of which only one may run.
const SHORT_US: u64 = 2_000;
const LONG_US: u64 = 8_000;
/// Kernels of both together by which shares are measured: many periods of the two slices.
const FOR_SHARES: u64 = 600;
/// Kernels of the one that goes on, by which standing is measured.
const FOR_STANDING: u64 = 200;
/// Kernels that show that somebody goes on: more than it had in flight.
const FOR_GOING_ON: u64 = 2 * DEPTH as u64;
/// How long a window may take; on an idle machine it is less than a second.
const WINDOW: Duration = Duration::from_millis(3500);
/// Time between two looks at the counts.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What came of the controls of channel groups.
#[derive(Debug)]
pub(super) struct Controls {
    pub(super) slices: Effect,
    pub(super) stops: Effect,
    pub(super) counts: Effect,
}

/// Two busy programs.
#[derive(Debug)]
pub(super) struct Trials {
    pub(super) first: Busy,
    pub(super) second: Busy,
    /// When the doctor has to be done.
    pub(super) end: Instant,
}

impl Trials {
    /// A program without a grant, beside one that has one: whether it stands, and goes on once it is granted.
    pub(super) fn withheld(&mut self, manager: &Manager) -> anyhow::Result<Effect> {
        let pid = self.first.0.pid();
        self.second.0.tell("go")?;
        self.first.0.tell("go")?;
        if !manager.is_asking(pid, self.until(WINDOW)) {
            let [completed, _] = self.counts()?;
            manager.release(pid);
            return Ok(match completed {
                0 => Effect::inconclusive("the program has neither asked for a grant nor run"),
                _ => Effect::NoEffect,
            });
        }
        let [before, beside] = self.counts()?;
        let [now, now_beside] = self.until_counts(|[_, second]| second >= beside + FOR_STANDING)?;
        manager.release(pid);
        let after = self.goes_on(now)?;
        Ok(selftest::goes_on(selftest::stands(now - before, now_beside - beside), after, FOR_GOING_ON))
    }

    /// Waits until both complete kernels.
    pub(super) fn both_run(&mut self, until: Instant) -> anyhow::Result<()> {
        while self.counts()?.contains(&0) {
            if Instant::now() >= until {
                bail!("the programs complete nothing");
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Everything that can be done to the groups of both, which run. They are left as they were found.
    pub(super) fn controls(&mut self, first: Vec<Group>, second: Vec<Group>) -> Controls {
        let (mut first, mut second) = (Steered::new(first), Steered::new(second));
        let before = first.stats();
        let slices = tried(self.slices(&mut first, &mut second));
        let counts = match (before, first.stats()) {
            (Ok(before), Ok(after)) => selftest::switches(before, after),
            (Err(why), _) | (_, Err(why)) => made(Err(why)).err().unwrap_or(Effect::NoEffect),
        };
        Controls { slices, counts, stops: tried(self.stop(&mut first)) }
    }

    /// Slices of 1 : 4 and of 4 : 1.
    fn slices(&mut self, first: &mut Steered, second: &mut Steered) -> anyhow::Result<Effect> {
        let mut shares = [[0; 2]; 2];
        for (share, (a, b)) in shares.iter_mut().zip([(SHORT_US, LONG_US), (LONG_US, SHORT_US)]) {
            if let Err(effect) = made(first.set_slice(a).and_then(|()| second.set_slice(b))) {
                return Ok(effect);
            }
            *share = self.window(FOR_SHARES)?;
        }
        let restored = made(first.restore_slices().and_then(|()| second.restore_slices()));
        let [short_first, long_first] = shares;
        Ok(restored.err().unwrap_or_else(|| selftest::slices(short_first, long_first)))
    }

    /// The first is stopped while the second goes on, and started again.
    fn stop(&mut self, first: &mut Steered) -> anyhow::Result<Effect> {
        if let Err(effect) = made(first.stop()) {
            return Ok(effect);
        }
        let stood = self.stands()?;
        let [now, _] = self.counts()?;
        if let Err(effect) = made(first.start()) {
            return Ok(effect);
        }
        Ok(selftest::goes_on(stood, self.goes_on(now)?, FOR_GOING_ON))
    }

    /// The first is held by `hold`, which says what came of it, and let go by `release`.
    pub(super) fn held<T>(
        &mut self,
        hold: impl FnOnce(i32) -> anyhow::Result<Result<T, String>>,
        release: impl FnOnce(T) -> anyhow::Result<()>,
    ) -> anyhow::Result<Effect> {
        let held = match hold(self.first.0.pid())? {
            Ok(held) => held,
            Err(why) => return Ok(Effect::refused(why)),
        };
        let stood = self.stands()?;
        let [now, _] = self.counts()?;
        release(held)?;
        Ok(selftest::goes_on(stood, self.goes_on(now)?, FOR_GOING_ON))
    }

    /// Whether the first stands: what it completes while the second goes on.
    fn stands(&mut self) -> anyhow::Result<Effect> {
        let [first, second] = self.window(FOR_STANDING)?;
        Ok(selftest::stands(first, second))
    }

    /// What both complete in the same window, until it is so much together; what was under way before is not counted.
    fn window(&mut self, enough: u64) -> anyhow::Result<[u64; 2]> {
        let [first, second] = self.counts()?;
        let settled = first + second + FOR_GOING_ON;
        let [first, second] = self.until_counts(|[a, b]| a + b >= settled)?;
        let [a, b] = self.until_counts(|[a, b]| a + b >= first + second + enough)?;
        Ok([a - first, b - second])
    }

    /// What the first completes, beyond the `before` that it had completed, in a time in which it should do something.
    fn goes_on(&mut self, before: u64) -> anyhow::Result<u64> {
        let [now, _] = self.until_counts(|[first, _]| first >= before + FOR_GOING_ON)?;
        Ok(now - before)
    }

    /// The counts as soon as they are enough, or when the window's time is over.
    fn until_counts(&mut self, enough: impl Fn([u64; 2]) -> bool) -> anyhow::Result<[u64; 2]> {
        let until = self.until(WINDOW);
        loop {
            let counts = self.counts()?;
            if enough(counts) || Instant::now() >= until {
                return Ok(counts);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn counts(&mut self) -> anyhow::Result<[u64; 2]> {
        let until = self.until(WINDOW);
        if Instant::now() >= self.end {
            bail!("no time is left");
        }
        let first = self.first.completed(until).context("counting kernels")?;
        Ok([first, self.second.completed(until).context("counting kernels")?])
    }

    fn until(&self, time: Duration) -> Instant {
        self.end.min(Instant::now() + time)
    }
}

/// A trial that could not be brought to its end tells nothing.
pub(super) fn tried(effect: anyhow::Result<Effect>) -> Effect {
    effect.unwrap_or_else(|why| Effect::inconclusive(format!("{why:#}")))
}

/// What a refusal says of a control.
fn made(control: Result<(), ControlError>) -> Result<(), Effect> {
    control.map_err(|error| match error {
        ControlError::Refused(status) => Effect::refused(status),
        other => Effect::inconclusive(other),
    })
}
