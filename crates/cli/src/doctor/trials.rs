//! Driver controls tried on two busy programs of the doctor, judged by the kernels that they complete.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sluice_nvrm::ControlError;
use sluice_nvrm::self_test::{self, Effect};

use super::child::LockOutcome;
use super::groups::{ControlledGroups, Group};
use super::manager::Manager;
use super::workspace::{BusyProgram, Workspace, answer};

/// Kernels that a program has in flight: a tenth of a second of work, so that a program that waits so long for a processor keeps the
/// GPU busy. Without that, time slices change no share, and the trial is inconclusive.
pub(super) const DEPTH: usize = 96;
/// Time of each: long enough that a slow machine keeps the GPU busy.
pub(super) const KERNEL: Duration = Duration::from_millis(1);

/// Slices of a trial, in microseconds: 1 : 4, and above 1 ms, because two groups with shorter slices livelock the GPU.
const SHORT_US: u64 = 2_000;
const LONG_US: u64 = 8_000;
/// Kernels of both programs in a measurement of shares: many periods of the two slices.
const FOR_SHARES: u64 = 600;
/// Kernels of the running program in a measurement of a stopped one.
const FOR_STOPPED: u64 = 200;
/// Kernels that prove that a program runs: more than it had in flight.
const FOR_RUNNING: u64 = 2 * DEPTH as u64;
/// How long a window may take; on an idle machine it is less than a second.
const WINDOW: Duration = Duration::from_millis(3500);
/// Time between two polls of the counts.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// Effects of the controls of channel groups.
#[derive(Debug)]
pub(super) struct Controls {
    pub(super) slices: Effect,
    pub(super) stops: Effect,
    pub(super) counts: Effect,
}

/// Two busy programs.
#[derive(Debug)]
pub(super) struct Trials {
    pub(super) first: BusyProgram,
    pub(super) second: BusyProgram,
    /// Deadline of the doctor.
    pub(super) end: Instant,
}

impl Trials {
    /// Whether a program without a grant stops beside a program with one, and runs once it has a grant.
    pub(super) fn withheld(&mut self, manager: &Manager) -> anyhow::Result<Effect> {
        let pid = self.first.pid();
        self.second.go()?;
        self.first.go()?;
        if !manager.is_waiting(pid, self.until(WINDOW)) {
            let [completed, _] = self.counts()?;
            manager.release(pid);
            return Ok(match completed {
                0 => Effect::inconclusive("the program has neither requested a grant nor run"),
                _ => Effect::NoEffect,
            });
        }
        let [before, beside] = self.counts()?;
        let [now, now_beside] = self.until_counts(|[_, second]| second >= beside + FOR_STOPPED)?;
        manager.release(pid);
        let after = self.resumes(now)?;
        Ok(self_test::enable_effect(
            self_test::disable_effect(now - before, now_beside - beside),
            after,
            FOR_RUNNING,
        ))
    }

    pub(super) fn both_run(&mut self, until: Instant) -> anyhow::Result<()> {
        while self.counts()?.contains(&0) {
            if Instant::now() >= until {
                bail!("the programs complete nothing");
            }
            thread::sleep(POLL_EVERY);
        }
        Ok(())
    }

    /// Tries all controls on the groups of both running programs, and restores them.
    pub(super) fn controls(&mut self, first: Vec<Group>, second: Vec<Group>) -> Controls {
        let (mut first, mut second) = (ControlledGroups::new(first), ControlledGroups::new(second));
        let before = first.stats();
        let slices = tried(self.slices(&mut first, &mut second));
        let counts = match (before, first.stats()) {
            (Ok(before), Ok(after)) => self_test::switch_count_effect(before, after),
            (Err(why), _) | (_, Err(why)) => control_result(Err(why)).err().unwrap_or(Effect::NoEffect),
        };
        Controls { slices, counts, stops: tried(self.disable(&mut first)) }
    }

    /// Slices of 1 : 4 and of 4 : 1.
    fn slices(
        &mut self,
        first: &mut ControlledGroups,
        second: &mut ControlledGroups,
    ) -> anyhow::Result<Effect> {
        let mut shares = [[0; 2]; 2];
        for (share, (a, b)) in shares.iter_mut().zip([(SHORT_US, LONG_US), (LONG_US, SHORT_US)]) {
            if let Err(effect) = control_result(first.set_slice(a).and_then(|()| second.set_slice(b))) {
                return Ok(effect);
            }
            *share = self.window(FOR_SHARES)?;
        }
        let restored = control_result(first.restore_slices().and_then(|()| second.restore_slices()));
        let [short_first, long_first] = shares;
        Ok(restored.err().unwrap_or_else(|| self_test::time_slice_effect(short_first, long_first)))
    }

    /// Disables the first program's groups while the second one runs, and enables them again.
    fn disable(&mut self, first: &mut ControlledGroups) -> anyhow::Result<Effect> {
        if let Err(effect) = control_result(first.disable()) {
            return Ok(effect);
        }
        let stopped = self.is_stopped()?;
        let [now, _] = self.counts()?;
        if let Err(effect) = control_result(first.enable()) {
            return Ok(effect);
        }
        Ok(self_test::enable_effect(stopped, self.resumes(now)?, FOR_RUNNING))
    }

    /// Stops the first program by the driver's lock and releases it.
    pub(super) fn lock(&mut self, workspace: &Workspace) -> anyhow::Result<Effect> {
        let mut helper = workspace.helper("lock", &["lock", &self.first.pid().to_string()])?;
        match answer(&mut helper, self.end)? {
            LockOutcome::Locked => {}
            LockOutcome::Refused(why) => return Ok(Effect::refused(why)),
            LockOutcome::Released => return Ok(Effect::refused("released before it was locked")),
        }
        let stopped = self.is_stopped()?;
        let [now, _] = self.counts()?;
        helper.process.send_line("release")?;
        answer::<LockOutcome>(&mut helper, self.end)?;
        Ok(self_test::enable_effect(stopped, self.resumes(now)?, FOR_RUNNING))
    }

    /// Whether the first program is stopped: the kernels that it completes while the second one runs.
    fn is_stopped(&mut self) -> anyhow::Result<Effect> {
        let [first, second] = self.window(FOR_STOPPED)?;
        Ok(self_test::disable_effect(first, second))
    }

    /// Kernels that both complete in the same window, until their sum is `enough`. Kernels in flight before it are not counted.
    fn window(&mut self, enough: u64) -> anyhow::Result<[u64; 2]> {
        let [first, second] = self.counts()?;
        let settled = first + second + FOR_RUNNING;
        let [first, second] = self.until_counts(|[a, b]| a + b >= settled)?;
        let [a, b] = self.until_counts(|[a, b]| a + b >= first + second + enough)?;
        Ok([a - first, b - second])
    }

    /// Kernels that the first program completes beyond `before`, in a time in which it should complete some.
    fn resumes(&mut self, before: u64) -> anyhow::Result<u64> {
        let [now, _] = self.until_counts(|[first, _]| first >= before + FOR_RUNNING)?;
        Ok(now - before)
    }

    /// The counts as soon as `enough` accepts them, or at the end of the window.
    fn until_counts(&mut self, enough: impl Fn([u64; 2]) -> bool) -> anyhow::Result<[u64; 2]> {
        let until = self.until(WINDOW);
        loop {
            let counts = self.counts()?;
            if enough(counts) || Instant::now() >= until {
                return Ok(counts);
            }
            thread::sleep(POLL_EVERY);
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

/// A trial that failed is inconclusive.
pub(super) fn tried(effect: anyhow::Result<Effect>) -> Effect {
    effect.unwrap_or_else(|why| Effect::inconclusive(format!("{why:#}")))
}

/// The effect of a control that the driver refused.
fn control_result(control: Result<(), ControlError>) -> Result<(), Effect> {
    control.map_err(|error| match error {
        ControlError::Refused(status) => Effect::refused(status),
        other => Effect::inconclusive(other),
    })
}
