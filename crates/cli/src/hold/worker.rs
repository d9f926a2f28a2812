//! The process that makes the controls. It lets everybody go when its input ends, when the time is over and when anything fails.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};
use sluice_load::checkpoint;
use sluice_load::driver::Driver;
use sluice_nvrm::outside::{Tenant, newest_client};

use super::Arguments;
use super::grip::Grip;
use super::program::Program;
use super::turns::{Turns, end_of_input};

/// Time between two looks at whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// When it is over.
struct End {
    at: Option<Instant>,
    input: Arc<AtomicBool>,
}

/// Lets everybody go when it is dropped.
struct Held<T: Holdable>(Vec<T>);

/// Who can be let go.
trait Holdable {
    fn number(&self) -> i32;
    fn has_gone(&self) -> bool;
    fn let_go(&self) -> Result<(), String>;
}

impl Holdable for Program {
    fn number(&self) -> i32 {
        self.pid()
    }

    fn has_gone(&self) -> bool {
        self.has_ended()
    }

    fn let_go(&self) -> Result<(), String> {
        self.let_run().map_err(|why| why.to_string())
    }
}

impl<T: Holdable> Held<T> {
    /// Lets everybody go, also those behind one that could not be.
    ///
    /// # Errors
    /// Who is still held, and why. One that has ended is nobody's any more, whatever its driver says.
    fn let_go(&mut self) -> anyhow::Result<()> {
        let mut failed = Vec::new();
        for tenant in self.0.drain(..) {
            if let Err(why) = tenant.let_go()
                && !tenant.has_gone()
            {
                failed.push(format!("process {} could not be let go: {why}", tenant.number()));
            }
        }
        if failed.is_empty() { Ok(()) } else { bail!(failed.join("\n")) }
    }
}

impl<T: Holdable> Drop for Held<T> {
    fn drop(&mut self) {
        if let Err(why) = self.let_go() {
            eprintln!("sluice: {why:#}");
        }
    }
}

/// Does what the arguments say.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let input = end_of_input();
    let after =
        arguments.seconds.map(Duration::try_from_secs_f64).transpose().context("--seconds is not a time")?;
    let end = End { at: after.map(|after| Instant::now() + after), input };
    match arguments.pids.as_slice() {
        [pid] if arguments.shares.is_empty() => hold(*pid, arguments, &end),
        pids => take_turns(pids, arguments, &end),
    }
}

/// Lets programs go that were left held.
pub(super) fn release(pids: &[i32], simulated: bool) -> anyhow::Result<()> {
    let newest = newest(simulated);
    let mut failed = Vec::new();
    for pid in pids {
        let started = find(*pid, simulated, newest).and_then(|tenant| Ok(tenant.start()?));
        let unlocked = Driver::open().and_then(|driver| checkpoint::unlock(&driver, *pid));
        match (started, unlocked) {
            (Err(groups), Err(lock)) => failed.push(format!("process {pid}: {groups:#}; {lock}")),
            _ => say(&json!({ "hold": "released", "pid": pid }))?,
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!(failed.join("\n")) }
}

fn hold(pid: i32, arguments: &Arguments, end: &End) -> anyhow::Result<()> {
    let mut grip = Grip::on(pid, arguments)?;
    let mut kept = say(&grip.describe());
    while kept.is_ok() && !end.is_over() && !grip.has_ended() {
        thread::sleep(LOOK_EVERY);
        kept = grip.search_again();
    }
    let gone = grip.has_ended();
    grip.let_go()?;
    if !gone {
        kept?;
    }
    say(&json!({ "hold": if gone { "gone" } else { "released" }, "pid": pid }))
}

fn take_turns(pids: &[i32], arguments: &Arguments, end: &End) -> anyhow::Result<()> {
    let found: anyhow::Result<Vec<_>> =
        pids.iter().map(|pid| Program::find(*pid, arguments.simulated)).collect();
    let mut held = Held(found?);
    let mut turns = Turns::new(&arguments.shares);
    let (mut at, mut length) = turns.next();
    for (other, program) in held.0.iter_mut().enumerate() {
        if other != at {
            program.stop().with_context(|| format!("process {}", program.pid()))?;
        }
    }
    say(&json!({ "hold": "turns", "pids": pids, "shares": arguments.shares }))?;
    let mut handovers = 0_u64;
    let mut since = Instant::now();
    while !end.is_over() {
        thread::sleep(length.min(end.left()));
        if held.0.iter().any(Program::has_ended) {
            break;
        }
        for program in &mut held.0 {
            program.search_again()?;
        }
        let (next, long) = {
            turns.ran(at, since.elapsed());
            turns.next()
        };
        since = Instant::now();
        length = long;
        if next != at {
            // Stop before start: never two at once.
            let Ok([from, to]) = held.0.get_disjoint_mut([at, next]) else { bail!("a turn of nobody") };
            from.stop().with_context(|| format!("process {}", from.pid()))?;
            turns.ran(at, since.elapsed());
            to.start().with_context(|| format!("process {}", to.pid()))?;
            since = Instant::now();
            handovers += 1;
            at = next;
        }
    }
    let times: Vec<f64> = turns.times().map(|time| time.as_secs_f64()).collect();
    held.let_go()?;
    say(&json!({ "hold": "released", "pids": pids, "seconds": times, "handovers": handovers }))
}

impl End {
    fn is_over(&self) -> bool {
        self.input.load(Ordering::Acquire) || self.at.is_some_and(|at| Instant::now() >= at)
    }

    fn left(&self) -> Duration {
        self.at.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }
}

pub(super) fn find(pid: i32, simulated: bool, newest: Option<u32>) -> anyhow::Result<Tenant> {
    Tenant::find(pid, simulated, newest).map_err(|why| anyhow!(why))
}

/// Without an answer only the first clients of this boot are looked at.
pub(super) fn newest(simulated: bool) -> Option<u32> {
    if simulated { None } else { newest_client().inspect_err(|why| eprintln!("sluice: {why}")).ok() }
}

fn say(what: &Value) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{what}")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A program that has ended or not, and may refuse to be let go.
    struct Program<'a> {
        number: i32,
        gone: bool,
        stuck: bool,
        let_go: &'a Cell<u32>,
    }

    impl Holdable for Program<'_> {
        fn number(&self) -> i32 {
            self.number
        }

        fn has_gone(&self) -> bool {
            self.gone
        }

        fn let_go(&self) -> Result<(), String> {
            self.let_go.set(self.let_go.get() + 1);
            if self.stuck || self.gone { Err("the driver says no".to_owned()) } else { Ok(()) }
        }
    }

    #[test]
    fn who_could_not_be_let_go_is_named_and_those_behind_him_are_let_go() {
        let let_go = Cell::new(0);
        let program = |number, gone, stuck| Program { number, gone, stuck, let_go: &let_go };
        let said = Held(vec![program(1, false, true), program(2, true, false), program(3, false, false)])
            .let_go()
            .unwrap_err()
            .to_string();
        assert_eq!(said, "process 1 could not be let go: the driver says no");
        assert_eq!(let_go.get(), 3);
        Held(vec![program(2, true, false), program(3, false, false)]).let_go().unwrap();
        assert_eq!(let_go.get(), 5, "nobody is let go twice");
    }
}
