//! Holds processes by the driver's lock on behalf of a pod-manager, and lets all of them go when its input ends: the manager may be
//! killed at any time, and what a driver does to whoever loads it stays out of the manager.
//!
//! A line in, a line out: `lock PID MILLISECONDS`, `unlock PID`, `held PID` of one that another may hold, `freed PID` of one that it holds no more,
//! and `open` to load the driver beforehand; `ok`, or `timeout` or `refused` and why.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};

use sluice_load::checkpoint;
use sluice_load::driver::{Driver, Error};

/// What is held, and by what.
#[derive(Default)]
struct Locks {
    driver: Option<Driver>,
    held: BTreeSet<i32>,
}

/// Serves until the input ends.
pub(super) fn serve() -> anyhow::Result<()> {
    let mut locks = Locks::default();
    let served = io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| {
        let answer = match locks.obey(&line) {
            None => "refused: no such command".to_owned(),
            Some(Ok(())) => "ok".to_owned(),
            Some(Err(why)) if why.is_not_ready() => "timeout".to_owned(),
            Some(Err(why)) => format!("refused: {why}"),
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}").and_then(|()| out.flush())
    });
    for pid in std::mem::take(&mut locks.held) {
        // Who has ended meanwhile is held by nothing.
        let _ = locks.unlock(pid);
    }
    Ok(served?)
}

impl Locks {
    /// `None`: it is no command.
    fn obey(&mut self, line: &str) -> Option<Result<(), Error>> {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["lock", pid, ms] => Some(self.lock(pid.parse().ok()?, ms.parse().ok()?)),
            ["open"] => Some(self.driver().map(drop)),
            ["freed", pid] => {
                self.held.remove(&pid.parse().ok()?);
                Some(Ok(()))
            }
            ["held", pid] => {
                self.held.insert(pid.parse().ok()?);
                Some(Ok(()))
            }
            ["unlock", pid] => Some(self.unlock(pid.parse().ok()?)),
            _ => None,
        }
    }

    fn driver(&mut self) -> Result<&Driver, Error> {
        if self.driver.is_none() {
            self.driver = Some(Driver::open()?);
        }
        self.driver.as_ref().ok_or(Error::NoFunction("cuInit"))
    }

    fn lock(&mut self, pid: i32, ms: u32) -> Result<(), Error> {
        // Left so by one before us.
        if !checkpoint::is_locked(self.driver()?, pid)? {
            checkpoint::lock(self.driver()?, pid, ms)?;
        }
        self.held.insert(pid);
        Ok(())
    }

    fn unlock(&mut self, pid: i32) -> Result<(), Error> {
        if checkpoint::is_locked(self.driver()?, pid)? {
            checkpoint::unlock(self.driver()?, pid)?;
        }
        self.held.remove(&pid);
        Ok(())
    }
}
