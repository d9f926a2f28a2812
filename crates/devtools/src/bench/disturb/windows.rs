//! Shares in windows of the simulator's timeline, and the window that is farthest from the entitled shares. Pure functions.

use std::collections::BTreeMap;

use serde::Serialize;
use sluice_sim::ledger::Interval;

/// Width of the windows, nanoseconds.
const SECOND: u64 = 1_000_000_000;
const STEP: usize = 1_000_000_000;

/// A span of the GPU's clock, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Span {
    pub(super) fn seconds(self) -> f64 {
        self.to.saturating_sub(self.from) as f64 / 1e9
    }
}

/// The window and the client whose share is farthest from the entitled one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Worst {
    /// Difference, in hundredths of the GPU's time.
    pub(super) off_points: f64,
    pub(super) client: usize,
    pub(super) share: f64,
    pub(super) entitled: f64,
    /// Begin of the window, seconds after the span's begin.
    pub(super) at_s: f64,
}

/// Part of the span in which kernels of each client ran. `clients` has the clients of the process ids.
pub(super) fn shares(
    timeline: &[Interval],
    clients: &BTreeMap<i32, usize>,
    count: usize,
    span: Span,
) -> Vec<f64> {
    let mut shares = vec![0.0; count];
    let length = span.to.saturating_sub(span.from).max(1) as f64;
    for interval in timeline {
        let (from, to) = (interval.start_ns.max(span.from), interval.end_ns.min(span.to));
        let whole = interval.end_ns.saturating_sub(interval.start_ns);
        if let Some(client) = clients.get(&interval.pid).filter(|_| from < to && whole > 0) {
            shares[*client] += interval.busy_ns as f64 * (to - from) as f64 / whole as f64 / length;
        }
    }
    shares
}

/// All windows of this width within a span, a tenth of the width apart; one window if the span is shorter.
pub(super) fn sliding(span: Span, width: u64) -> impl Iterator<Item = Span> {
    let width = width.min(span.to.saturating_sub(span.from)).max(1);
    let step = (width / 10).max(1);
    let count = (span.to.saturating_sub(span.from) - width) / step;
    (0..=count).map(move |number| {
        let from = span.from + number * step;
        Span { from, to: from + width }
    })
}

/// The first of the worst windows of one second; `None` without clients.
pub(super) fn worst(
    timeline: &[Interval],
    clients: &BTreeMap<i32, usize>,
    entitled: &[f64],
    span: Span,
) -> Option<Worst> {
    let in_window = |window: Span| {
        let shares = shares(timeline, clients, entitled.len(), window);
        let worst =
            shares.into_iter().zip(entitled).enumerate().map(move |(client, (share, entitled))| Worst {
                off_points: 100.0 * (share - entitled).abs(),
                client,
                share,
                entitled: *entitled,
                at_s: Span { from: span.from, to: window.from }.seconds(),
            });
        worst.collect::<Vec<_>>()
    };
    let all = sliding(span, SECOND).flat_map(in_window);
    all.reduce(|worst, next| if next.off_points > worst.off_points { next } else { worst })
}

/// The shares of each whole second of a span.
pub(super) fn by_second(
    timeline: &[Interval],
    clients: &BTreeMap<i32, usize>,
    count: usize,
    span: Span,
) -> Vec<Vec<f64>> {
    let begins = (span.from..span.to.saturating_sub(SECOND - 1)).step_by(STEP);
    begins.map(|from| shares(timeline, clients, count, Span { from, to: from + SECOND })).collect()
}

#[cfg(test)]
mod tests;
