//! The demo's progress: a block that is redrawn on a terminal, a line now and then elsewhere.

use std::io::{self, IsTerminal, Write};

use super::cast::Player;
use super::plan::Class;
use super::witness::Sight;
use crate::metrics::Metrics;
use crate::quantity::bytes;

/// Cells of a full bar.
const BAR: usize = 30;
/// On something that is no terminal, every this many pictures becomes a line.
const PLAIN_EVERY: u32 = 4;

/// One picture of the run.
#[derive(Debug)]
pub(crate) struct Picture<'a> {
    /// Seconds since the best-effort tenants began, and of how many.
    pub(crate) time: (f64, f64),
    /// The tenants.
    pub(crate) players: &'a [Player],
    /// What the GPU says.
    pub(crate) sight: &'a Sight,
    /// What the manager says, if it was reached.
    pub(crate) metrics: Option<&'a Metrics>,
}

/// Where progress goes: standard output.
#[derive(Debug)]
pub(crate) struct Screen {
    terminal: bool,
    /// Lines of the block that is on the terminal.
    drawn: usize,
    pictures: u32,
}

impl Screen {
    /// Standard output, whatever it is.
    pub(crate) fn new() -> Self {
        Self { terminal: io::stdout().is_terminal(), drawn: 0, pictures: 0 }
    }

    /// Prints lines that stay.
    ///
    /// # Errors
    /// If standard output is gone.
    pub(crate) fn say(&mut self, text: &str) -> io::Result<()> {
        self.drawn = 0;
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()
    }

    /// Shows a picture in place of the last one.
    ///
    /// # Errors
    /// If standard output is gone.
    pub(crate) fn show(&mut self, picture: &Picture<'_>) -> io::Result<()> {
        self.pictures += 1;
        let mut out = io::stdout().lock();
        if self.terminal {
            let block = block(picture);
            if self.drawn > 0 {
                write!(out, "\x1b[{}A\x1b[J", self.drawn)?;
            }
            self.drawn = block.len();
            for line in block {
                writeln!(out, "{line}")?;
            }
        } else if self.pictures.is_multiple_of(PLAIN_EVERY) {
            writeln!(out, "{}", line(picture))?;
        }
        out.flush()
    }
}

fn block(picture: &Picture<'_>) -> Vec<String> {
    let mut lines = vec![format!(
        "  {:2.0} s of {:.0}    the GPU worked {:.0} % of the time",
        picture.time.0,
        picture.time.1,
        picture.sight.busy * 100.0
    )];
    for player in picture.players {
        let share = share(picture, player);
        let seen = picture.sight.of(player.process.pid());
        let promise = match player.tenant.class {
            Class::BestEffort => format!("quota {:2.0} %", player.tenant.quota * 100.0),
            Class::LatencyCritical => "goes first".to_owned(),
        };
        let memory = format!("{} of {}", bytes(seen.memory), bytes(player.tenant.memory_limit));
        lines.push(format!(
            "  {:6} {promise:10}  {:5.1} % {:BAR$}  memory {memory}{}",
            player.tenant.name,
            share * 100.0,
            bar(share),
            refusals(player)
        ));
    }
    lines.extend(
        picture.players.iter().filter(|player| player.tenant.class == Class::LatencyCritical).map(latency),
    );
    lines.extend(picture.metrics.map(|metrics| format!("  metrics: {}", tokens(picture.players, metrics))));
    lines
}

fn line(picture: &Picture<'_>) -> String {
    let mut text = format!("{:4.0} s", picture.time.0);
    for player in picture.players {
        match player.tenant.class {
            Class::BestEffort => {
                let seen = picture.sight.of(player.process.pid());
                text += &format!(
                    "  | {} {:.1} % (quota {:.0} %), {}{}",
                    player.tenant.name,
                    share(picture, player) * 100.0,
                    player.tenant.quota * 100.0,
                    bytes(seen.memory),
                    refusals(player)
                );
            }
            Class::LatencyCritical => {
                let latency = player.lc.latency_us;
                text += &format!(
                    "  | {} p50 {} p99 {}",
                    player.tenant.name,
                    time(latency.p50),
                    time(latency.p99)
                );
            }
        }
    }
    text
}

/// Of the best-effort GPU time for best-effort tenants, of all time for the others.
fn share(picture: &Picture<'_>, player: &Player) -> f64 {
    let gpu_ns = |player: &Player| picture.sight.of(player.process.pid()).gpu_ns as f64;
    let whole = match player.tenant.class {
        Class::BestEffort => {
            picture.players.iter().filter(|p| p.tenant.class == Class::BestEffort).map(gpu_ns).sum::<f64>()
        }
        Class::LatencyCritical => picture.time.0 * 1e9,
    };
    gpu_ns(player) / whole.max(1.0)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=BAR")]
fn bar(share: f64) -> String {
    "#".repeat((share * BAR as f64).round().clamp(0.0, BAR as f64) as usize)
}

fn refusals(player: &Player) -> String {
    match player.denied() {
        0 => String::new(),
        denied => format!(", {denied} requests refused"),
    }
}

fn latency(player: &Player) -> String {
    let q = player.lc.latency_us;
    format!(
        "  {} answered {} requests: p50 {}, p99 {}",
        player.tenant.name,
        player.lc.requests,
        time(q.p50),
        time(q.p99)
    )
}

fn tokens(players: &[Player], metrics: &Metrics) -> String {
    let parts: Vec<String> = players
        .iter()
        .filter(|player| player.tenant.class == Class::BestEffort)
        .filter_map(|player| {
            let name = player.tenant.name;
            let held = metrics.get("sluice_token_held_seconds_total", name)?;
            Some(format!("{name} {:.0} tokens, held {held:.1} s", metrics.get("sluice_grants_total", name)?))
        })
        .collect();
    parts.join("; ")
}

/// Microseconds for people.
pub(crate) fn time(us: f64) -> String {
    if us < 1000.0 { format!("{us:.0} µs") } else { format!("{:.2} ms", us / 1000.0) }
}
