//! What this machine's processors did during a measurement: a busy host delays processes, which the figures then show.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;

/// Parts of the time of all processors, and the latest wake-up of a thread that slept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(in super::super) struct HostLoad {
    /// Part of the processors' time in which they were idle.
    pub(in super::super) idle: f64,
    /// Part in which only processes of low priority ran, which do not delay others.
    pub(in super::super) background: f64,
    /// Part that the hypervisor gave to other machines.
    pub(in super::super) steal: f64,
    /// Longest time by which the measuring thread was woken late.
    pub(in super::super) latest_wakeup_ms: f64,
}

impl HostLoad {
    /// Part of the time in which the processors could not run this measurement at once.
    pub(in super::super) fn busy(&self) -> f64 {
        1.0 - self.idle - self.background
    }
}

/// The first line of /proc/stat: time of all processors in ticks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ticks {
    all: u64,
    nice: u64,
    idle: u64,
    steal: u64,
}

/// Observes the host from a moment on.
pub(in super::super) struct HostWatch {
    begin: Ticks,
    latest: Duration,
}

impl HostWatch {
    pub(in super::super) fn begin() -> anyhow::Result<Self> {
        Ok(Self { begin: read()?, latest: Duration::ZERO })
    }

    /// Sleeps, and records how late the thread was woken.
    pub(in super::super) fn sleep(&mut self, time: Duration) {
        let due = Instant::now() + time;
        std::thread::sleep(time);
        self.latest = self.latest.max(due.elapsed());
    }

    pub(in super::super) fn end(&self) -> anyhow::Result<HostLoad> {
        let end = read()?;
        let all = end.all.saturating_sub(self.begin.all).max(1) as f64;
        let part = |of: fn(&Ticks) -> u64| of(&end).saturating_sub(of(&self.begin)) as f64 / all;
        Ok(HostLoad {
            idle: part(|ticks| ticks.idle),
            background: part(|ticks| ticks.nice),
            steal: part(|ticks| ticks.steal),
            latest_wakeup_ms: self.latest.as_secs_f64() * 1e3,
        })
    }
}

fn read() -> anyhow::Result<Ticks> {
    let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    parse(&stat).context("/proc/stat does not begin with the processors' times")
}

/// user, nice, system, idle, iowait, irq, softirq, steal; the times of guests are contained in the first two.
fn parse(stat: &str) -> Option<Ticks> {
    let numbers = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let numbers: Vec<u64> = numbers.take(8).map_while(|number| number.parse().ok()).collect();
    let at = |place: usize| numbers.get(place).copied();
    Some(Ticks { all: numbers.iter().sum(), nice: at(1)?, idle: at(3)? + at(4)?, steal: at(7)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_time_is_not_counted_twice() {
        let stat = "cpu  10 1 5 70 4 0 2 8 10 1\ncpu0 1 2\n";
        assert_eq!(parse(stat), Some(Ticks { all: 100, nice: 1, idle: 74, steal: 8 }));
        assert_eq!(parse("cpu0 1 2"), None);
    }
}
