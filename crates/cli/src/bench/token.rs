//! `sluice bench token`: from one client's YIELD until another one, which waits without using the processor, may launch.
//!
//! Three ways: between two bare clients of the wire, in processes of their own, of which the first gives its grant back at the
//! deadline; the same, long before the deadline; and from a bare client to a process whose launch call waits in the hook.
//! Stamps are CLOCK_MONOTONIC, which all processes share.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use sluice_comm::RequestBody;
use sluice_load::memory::DeviceBuffer;
use sluice_load::samples::Samples;
use sluice_load::session::Session;
use sluice_sys::clock::monotonic_ns;

use super::Common;
use super::figures::Spread;
use super::wire::Wire;
use crate::signals::Interrupts;
use crate::stage::Stage;
use crate::supervise::Process;

/// The two clients.
const CLIENTS: [&str; 2] = ["bench-a", "bench-b"];
/// How long a bare client keeps the token that does not wait for the deadline: the other one has gone to sleep by then.
const HOLD: Duration = Duration::from_millis(2);
/// All grants are this long, so that there are many of them.
const GRANT_MS: &str = "5";
/// How long it stays away after giving it back early, as one does that went idle.
const AWAY: Duration = Duration::from_millis(1);
/// How long each way is measured.
const SECONDS: &str = "6";
/// A launch that took longer had waited for the token.
const WAITED_NS: u64 = 300_000;
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Flags of a bare client.
#[derive(Debug, Args)]
pub(crate) struct PeerArguments {
    /// Socket of the manager
    #[arg(long)]
    manager: PathBuf,
    /// Its name
    #[arg(long)]
    name: String,
    /// Give it back at the deadline
    #[arg(long)]
    to_deadline: bool,
    /// How long to pass the token on
    #[arg(long)]
    seconds: f64,
}

/// Flags of the process under the hook.
#[derive(Debug, Args)]
pub(crate) struct LauncherArguments {
    /// How long to launch
    #[arg(long)]
    seconds: f64,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub(crate) struct TokenFigures {
    /// Between two bare clients, at the deadline: what happens while all have work.
    handover_us: Spread,
    handovers: usize,
    /// Between two bare clients, long before the deadline: what happens when one goes idle.
    early_handover_us: Spread,
    early_handovers: usize,
    /// From a bare client to a launch call that waits in the hook, until the call returns.
    hooked_handover_us: Spread,
    hooked_handovers: usize,
}

/// Stamps of one process, nanoseconds.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stamps {
    /// Just before a YIELD was written.
    yielded: Vec<u64>,
    /// When the gate was seen open after waiting.
    opened: Vec<u64>,
}

/// Measures and tells people.
pub(crate) fn measure(common: &Common, interrupts: &Interrupts) -> anyhow::Result<TokenFigures> {
    let clients = CLIENTS.map(|name| (name, 0.5, 1.0, 1 << 30));
    let mut setting = common.setting(&clients);
    for flag in ["--base-quota-ms", "--min-quota-ms", "--max-quota-ms"] {
        setting.manager_flags.extend([flag.to_owned(), GRANT_MS.to_owned()]);
    }
    let stage = Stage::build(setting, || interrupts.pause())?;
    let both_ways = |way| -> anyhow::Result<Samples> {
        let stamps = passes(&stage, [way, way], interrupts)?;
        Ok(handovers(&stamps[0], &stamps[1]).chain(handovers(&stamps[1], &stamps[0])).collect())
    };
    let (deadline, early) = (both_ways(Way::ToDeadline)?, both_ways(Way::Early)?);
    let hooked = passes(&stage, [Way::ToDeadline, Way::Hooked], interrupts)?;
    let hooked: Samples = handovers(&hooked[0], &hooked[1]).collect();
    if deadline.is_empty() || early.is_empty() || hooked.is_empty() {
        bail!("the token was never handed over while somebody waited");
    }
    let figures = TokenFigures {
        handover_us: Spread::of(&deadline, 1e3),
        handovers: deadline.len(),
        early_handover_us: Spread::of(&early, 1e3),
        early_handovers: early.len(),
        hooked_handover_us: Spread::of(&hooked, 1e3),
        hooked_handovers: hooked.len(),
    };
    figures.tell()?;
    Ok(figures)
}

impl TokenFigures {
    fn tell(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "from YIELD to the next one's go, µs          p50      p99   hand-overs")?;
        for (what, spread, count) in [
            ("between bare clients, at the deadline", self.handover_us, self.handovers),
            ("between bare clients, early", self.early_handover_us, self.early_handovers),
            ("to a launch waiting in the hook", self.hooked_handover_us, self.hooked_handovers),
        ] {
            writeln!(out, "  {what:38} {:8.1} {:8.1}   {count:10}", spread.p50, spread.p99)?;
        }
        Ok(())
    }
}

/// How a client passes the token on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Bare, at the deadline.
    ToDeadline,
    /// Bare, before the deadline.
    Early,
    /// By launching under the hook.
    Hooked,
}

/// The time from each YIELD of `from` to the next opening at `to`, if that came before the next YIELD of `from`.
fn handovers<'a>(from: &'a Stamps, to: &'a Stamps) -> impl Iterator<Item = u64> + 'a {
    from.yielded.iter().enumerate().filter_map(|(place, yielded)| {
        let until = from.yielded.get(place + 1).copied().unwrap_or(u64::MAX);
        let opened = to.opened.iter().find(|opened| *opened > yielded)?;
        (*opened < until).then(|| opened - yielded)
    })
}

/// Lets two clients pass the token to each other.
fn passes(stage: &Stage, ways: [Way; 2], interrupts: &Interrupts) -> anyhow::Result<[Stamps; 2]> {
    let (sender, lines) = channel();
    let mut processes = Vec::<Process>::new();
    for (name, way) in CLIENTS.into_iter().zip(ways) {
        let mut command = stage.program();
        command.arg("bench");
        if way == Way::Hooked {
            command.arg("token-launcher");
            stage.show_gpu(&mut command, name);
            stage.preload(&mut command, name);
        } else {
            command.args(["token-peer", "--name", name, "--manager"]).arg(stage.manager_socket());
            command.args((way == Way::ToDeadline).then_some("--to-deadline"));
        }
        command.args(["--seconds", SECONDS]);
        processes.push(stage.start(name, command, Some(sender.clone()))?);
    }
    let mut stamps: [Option<Stamps>; 2] = [None, None];
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let [Some(first), Some(second)] = &mut stamps {
            return Ok([std::mem::take(first), std::mem::take(second)]);
        }
        interrupts.check()?;
        if let Ok(line) = lines.recv_timeout(LOOK_EVERY) {
            let place = CLIENTS.iter().position(|name| *name == line.from).context("a line from nobody")?;
            stamps[place] = Some(serde_json::from_str(&line.text).with_context(|| line.text.clone())?);
        } else if Instant::now() > deadline {
            bail!("a client does not end{}", processes.iter().map(Process::log_tail).collect::<String>());
        }
        for (process, stamps) in processes.iter_mut().zip(&stamps) {
            if stamps.is_none() && process.has_failed()? {
                process.check_running()?;
            }
        }
    }
}

/// Takes the token, holds it for a moment, gives it back, again and again.
pub(crate) fn run_peer(arguments: &PeerArguments) -> anyhow::Result<()> {
    let mut wire = Wire::connect(&arguments.manager, &arguments.name)?;
    wire.attach()?;
    let end = Instant::now() + Duration::from_secs_f64(arguments.seconds);
    let mut stamps = Stamps::default();
    while Instant::now() < end {
        let asked = monotonic_ns();
        wire.ask(RequestBody::Quota { overuse_ms: 0.0, next_burst_ms: 0.0 })?;
        let answered = monotonic_ns();
        let deadline = wire.deadline_ns();
        if deadline == 0 {
            bail!("the grant was announced while the gate was closed");
        }
        if answered - asked > WAITED_NS {
            stamps.opened.push(answered);
        }
        let hold = Duration::from_nanos(deadline.saturating_sub(monotonic_ns()));
        let hold = if arguments.to_deadline { hold } else { hold.min(HOLD) };
        thread::sleep(hold);
        stamps.yielded.push(monotonic_ns());
        wire.send(RequestBody::Yield { used_ms: hold.as_secs_f64() * 1e3, overuse_ms: 0.0 })?;
        if !arguments.to_deadline {
            thread::sleep(AWAY);
        }
    }
    Ok(writeln!(io::stdout(), "{}", serde_json::to_string(&stamps)?)?)
}

/// Launches as a tenant does and notes when a launch that had to wait went through.
pub(crate) fn run_launcher(arguments: &LauncherArguments) -> anyhow::Result<()> {
    let session = Session::open(0)?;
    let (stream, buffer) = (session.stream()?, DeviceBuffer::with_initial_words(&session, 1)?);
    let end = Instant::now() + Duration::from_secs_f64(arguments.seconds);
    let mut stamps = Stamps::default();
    while Instant::now() < end {
        let called = monotonic_ns();
        stream.launch(&buffer, 1, 0)?;
        let returned = monotonic_ns();
        if returned - called > WAITED_NS {
            stamps.opened.push(returned);
        }
        stream.synchronize()?;
    }
    Ok(writeln!(io::stdout(), "{}", serde_json::to_string(&stamps)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_over_ends_at_the_next_opening_on_the_other_side() {
        let from = Stamps { yielded: vec![100, 200, 300], opened: vec![] };
        let to = Stamps { yielded: vec![], opened: vec![107, 350] };
        assert_eq!(handovers(&from, &to).collect::<Vec<_>>(), [7, 50]);
    }
}
