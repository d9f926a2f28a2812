//! `sluice-dev bench token`: time from one client's YIELD until another client, which sleeps, may launch.
//!
//! Three cases: two clients without the hook, in processes of their own, of which the first returns its grant at the deadline; the
//! same, long before the deadline; a client without the hook and a process whose launch call waits in the hook. Time stamps are
//! CLOCK_MONOTONIC, which all processes share. With `--clients` it measures what many clients cost instead.

pub(super) mod crowd;

use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use serde::{Deserialize, Serialize};
use sluice_comm::RequestBody;
use sluice_load::memory::DeviceBuffer;
use sluice_load::record::write_line;
use sluice_load::samples::Samples;
use sluice_load::session::Session;
use sluice_sys::clock::monotonic_ns;

use super::wire_client::WireClient;
use super::{Common, Percentiles, start_bed, worker_command};
use sluice_test_bed::{Interrupts, TestBed, Worker};

const CLIENTS: [&str; 2] = ["bench-a", "bench-b"];
/// How long a client keeps a token that it returns early: the other client sleeps by then.
const HOLD: Duration = Duration::from_millis(2);
/// Length of all grants: short, so that there are many of them.
const GRANT_MS: &str = "5";
/// Pause after an early return, as of a client that became idle.
const AWAY: Duration = Duration::from_millis(1);
/// How long each case is measured.
const SECONDS: &str = "6";
/// A launch that took longer has waited for the token.
const WAITED_NS: u64 = 300_000;
/// How long a client may take to end.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Flags of a client without the hook.
#[derive(Debug, Args)]
pub(crate) struct PeerArguments {
    /// Socket of the manager
    #[arg(long)]
    manager: PathBuf,
    /// Its name
    #[arg(long)]
    name: String,
    /// Return the token at the deadline
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
    /// Between two clients without the hook, at the deadline: the case in which all clients have work.
    handover_us: Percentiles,
    handovers: usize,
    /// Between two clients without the hook, long before the deadline: the case in which a client becomes idle.
    early_handover_us: Percentiles,
    early_handovers: usize,
    /// From a client without the hook to a launch call that waits in the hook, until the call returns.
    hooked_handover_us: Percentiles,
    hooked_handovers: usize,
}

/// Stamps of one process, nanoseconds.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stamps {
    /// Just before a YIELD was written.
    yielded: Vec<u64>,
    /// When the launch gate was found open after a wait.
    opened: Vec<u64>,
}

/// Measures and prints the figures.
pub(crate) fn measure(common: &Common, interrupts: &Interrupts) -> anyhow::Result<TokenFigures> {
    let clients = CLIENTS.map(|name| (name, 0.5, 1.0, 1 << 30));
    let mut options = common.options(&clients);
    for flag in ["--base-quota-ms", "--min-quota-ms", "--max-quota-ms"] {
        options.manager_flags.extend([flag.to_owned(), GRANT_MS.to_owned()]);
    }
    let bed = start_bed(options, || interrupts.pause())?;
    let both_ways = |mode| -> anyhow::Result<Samples> {
        let stamps = passes(&bed, [mode, mode], interrupts)?;
        Ok(handoffs(&stamps[0], &stamps[1]).chain(handoffs(&stamps[1], &stamps[0])).collect())
    };
    let (deadline, early) = (both_ways(ReturnMode::AtDeadline)?, both_ways(ReturnMode::Early)?);
    let hooked = passes(&bed, [ReturnMode::AtDeadline, ReturnMode::Hooked], interrupts)?;
    let hooked: Samples = handoffs(&hooked[0], &hooked[1]).collect();
    if deadline.is_empty() || early.is_empty() || hooked.is_empty() {
        bail!("the token was never handed over while a client waited");
    }
    let figures = TokenFigures {
        handover_us: Percentiles::of(&deadline, 1e3),
        handovers: deadline.len(),
        early_handover_us: Percentiles::of(&early, 1e3),
        early_handovers: early.len(),
        hooked_handover_us: Percentiles::of(&hooked, 1e3),
        hooked_handovers: hooked.len(),
    };
    figures.print()?;
    Ok(figures)
}

impl TokenFigures {
    fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "from YIELD until the next client may launch   p50      p99   hand-offs")?;
        for (case, percentiles, count) in [
            ("without the hook, at the deadline, µs", self.handover_us, self.handovers),
            ("without the hook, early, µs", self.early_handover_us, self.early_handovers),
            ("to a launch that waits in the hook, µs", self.hooked_handover_us, self.hooked_handovers),
        ] {
            writeln!(out, "  {case:42} {:8.1} {:8.1}   {count:10}", percentiles.p50, percentiles.p99)?;
        }
        Ok(())
    }
}

/// How a client returns its grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReturnMode {
    /// Without the hook, at the deadline.
    AtDeadline,
    /// Without the hook, before the deadline.
    Early,
    /// By launching under the hook.
    Hooked,
}

/// The time from each YIELD of `from` to the next opening at `to`, if that came before the next YIELD of `from`.
fn handoffs<'a>(from: &'a Stamps, to: &'a Stamps) -> impl Iterator<Item = u64> + 'a {
    from.yielded.iter().enumerate().filter_map(|(place, yielded)| {
        let until = from.yielded.get(place + 1).copied().unwrap_or(u64::MAX);
        let opened = to.opened.iter().find(|opened| *opened > yielded)?;
        (*opened < until).then(|| opened - yielded)
    })
}

/// Lets two clients pass the token to each other.
fn passes(bed: &TestBed, modes: [ReturnMode; 2], interrupts: &Interrupts) -> anyhow::Result<[Stamps; 2]> {
    let start = |name: &str, mode| {
        let hooked = mode == ReturnMode::Hooked;
        let mut command = worker_command(if hooked { "token-launcher" } else { "token-peer" })?;
        if hooked {
            bed.set_gpu(&mut command, name);
            bed.set_hook(&mut command, name);
        } else {
            command.args(["--name", name, "--manager"]).arg(bed.manager_socket());
            command.args((mode == ReturnMode::AtDeadline).then_some("--to-deadline"));
        }
        command.args(["--seconds", SECONDS]);
        Worker::start(name, command, bed.path())
    };
    let mut first = start(CLIENTS[0], modes[0])?;
    let mut second = start(CLIENTS[1], modes[1])?;
    let deadline = Instant::now() + TIMEOUT;
    let first_stamps = first.answer(deadline, || {
        // A client that waits for a failed one would wait until the deadline.
        match second.process.exit_status()? {
            Some(status) if !status.success() => second.process.check_running(),
            _ => interrupts.check(),
        }
    })?;
    Ok([first_stamps, second.answer(deadline, || interrupts.check())?])
}

/// Takes the token, keeps it for a moment and returns it, until the time is over.
pub(crate) fn run_peer(arguments: &PeerArguments) -> anyhow::Result<()> {
    let mut wire = WireClient::connect(&arguments.manager, &arguments.name)?;
    wire.attach()?;
    let end = Instant::now() + Duration::from_secs_f64(arguments.seconds);
    let mut stamps = Stamps::default();
    while Instant::now() < end {
        let asked = monotonic_ns();
        wire.ask(RequestBody::Quota { overuse_ms: 0.0, next_burst_ms: 0.0 })?;
        let answered = monotonic_ns();
        let deadline = wire.deadline_ns();
        if deadline == 0 {
            bail!("the grant was announced while the launch gate was closed");
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
    Ok(write_line(&stamps, &mut io::stdout())?)
}

/// Launches as a tenant does, and records when a launch that had to wait returned.
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
    Ok(write_line(&stamps, &mut io::stdout())?)
}

#[cfg(test)]
mod tests;
