//! `sluice lock-helper`, the lock helper of a pod-manager: makes the driver's lock calls, and unlocks all locked processes when its
//! input ends. So the manager may be killed at any time, and does not load the driver itself.
//!
//! The protocol is one line in and one line out:
//!
//! | command | effect |
//! |---|---|
//! | `open` | loads the driver in advance |
//! | `lock PID MILLISECONDS` | locks a process; it has this time to finish its submitted work |
//! | `unlock PID` | unlocks a process |
//! | `held PID` | another helper has locked this process, or may have |
//! | `freed PID` | this process is not locked any more |
//!
//! The answer is `ok`, `timeout`, or `refused` and the reason.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};

use sluice_load::checkpoint;
use sluice_load::driver::{Driver, Error};

/// The locked processes, and the driver once it is loaded.
#[derive(Default)]
struct LockServer {
    driver: Option<Driver>,
    locked: BTreeSet<i32>,
}

/// Serves until the input ends.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut server = LockServer::default();
    let served = io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| {
        let answer = match server.execute(&line) {
            None => "refused: no such command".to_owned(),
            Some(Ok(())) => "ok".to_owned(),
            Some(Err(why)) if why.is_not_ready() => "timeout".to_owned(),
            Some(Err(why)) => format!("refused: {why}"),
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}").and_then(|()| out.flush())
    });
    for pid in std::mem::take(&mut server.locked) {
        // An error means that the process has ended.
        let _ = server.unlock(pid);
    }
    Ok(served?)
}

impl LockServer {
    /// Executes a command; `None` if it is malformed.
    fn execute(&mut self, line: &str) -> Option<Result<(), Error>> {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["lock", pid, ms] => Some(self.lock(pid.parse().ok()?, ms.parse().ok()?)),
            ["open"] => Some(self.driver().map(drop)),
            ["freed", pid] => {
                self.locked.remove(&pid.parse().ok()?);
                Some(Ok(()))
            }
            ["held", pid] => {
                self.locked.insert(pid.parse().ok()?);
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
        // An earlier helper may have left it locked.
        if !checkpoint::is_locked(self.driver()?, pid)? {
            checkpoint::lock(self.driver()?, pid, ms)?;
        }
        self.locked.insert(pid);
        Ok(())
    }

    fn unlock(&mut self, pid: i32) -> Result<(), Error> {
        if checkpoint::is_locked(self.driver()?, pid)? {
            checkpoint::unlock(self.driver()?, pid)?;
        }
        self.locked.remove(&pid);
        Ok(())
    }
}
