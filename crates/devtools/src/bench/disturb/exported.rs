//! What the pod-manager exports about each client's use of the GPU, compared with the simulator's ledger. Pure functions.

use serde::Serialize;

/// The manager's figures of one client at one moment, and the ledger's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Exported {
    /// `sluice_gpu_seconds_total` and the time of hold kernels, which it leaves out.
    pub(super) seconds: f64,
    /// `sluice_hold_seconds_total`.
    pub(super) hold_seconds: f64,
    /// `sluice_share`, which leaves out hold kernels.
    pub(super) share: f64,
    /// The ledger's GPU time.
    pub(super) ledger_seconds: f64,
    /// The ledger's share of the same window, hold kernels included.
    pub(super) ledger_share: f64,
}

/// One reading of all clients, in their order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    /// The GPU's clock.
    pub(super) at_ns: u64,
    pub(super) clients: Vec<Exported>,
}

/// Differences of one client, in hundredths of the GPU's time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Difference {
    /// Rate of the exported seconds less the rate of the ledger's.
    pub(super) rate_points: f64,
    /// `sluice_share` with the hold kernels of its window, less the ledger's share of the same window.
    pub(super) share_points: f64,
}

/// The window of `sluice_share`.
pub(super) const SHARE_WINDOW_NS: u64 = 10_000_000_000;
/// Fewest samples of a comparison.
const FEWEST: usize = 9;
/// Samples whose mean is compared as `sluice_share`: at one moment the share of a window contains half of a quantum or none.
const LAST: usize = 5;

/// Compares the samples with the ledger; `None` if there are too few. The exported seconds grow when a grant ends, so the difference to
/// the ledger at one moment is up to a grant. Therefore the mean difference of the last third of the samples is compared with that of
/// the first third.
pub(super) fn compare(samples: &[Sample]) -> Option<Vec<Difference>> {
    if samples.len() < FEWEST {
        return None;
    }
    let third = samples.len() / 3;
    let (first, last) = (&samples[..third], &samples[samples.len() - third..]);
    let at = |part: &[Sample]| mean(part.iter().map(|sample| sample.at_ns as f64 / 1e9));
    let ahead = |part: &[Sample], client: usize| {
        mean(part.iter().map(|sample| sample.clients[client].seconds - sample.clients[client].ledger_seconds))
    };
    let newest = &samples[samples.len() - LAST..];
    let share_ahead = |sample: &Sample, client: usize| {
        let Exported { share, ledger_share, .. } = sample.clients[client];
        share + hold_share(samples, sample, client) - ledger_share
    };
    let of_client = |client| Difference {
        rate_points: 100.0 * (ahead(last, client) - ahead(first, client)) / (at(last) - at(first)).max(1e-9),
        share_points: 100.0 * mean(newest.iter().map(|sample| share_ahead(sample, client))),
    };
    Some((0..samples[0].clients.len()).map(of_client).collect())
}

/// Part of a sample's window in which hold kernels of a client ran: from the first sample in the window on.
fn hold_share(samples: &[Sample], sample: &Sample, client: usize) -> f64 {
    let begin = sample.at_ns.saturating_sub(SHARE_WINDOW_NS);
    let first = samples.iter().find(|first| (begin..sample.at_ns).contains(&first.at_ns));
    first.map_or(0.0, |first| {
        let held = sample.clients[client].hold_seconds - first.clients[client].hold_seconds;
        held * 1e9 / (sample.at_ns - first.at_ns) as f64
    })
}

/// Rate of the exported seconds less the rate of the ledger's between two samples, in points, by client.
pub(super) fn gained(first: &Sample, last: &Sample) -> Vec<f64> {
    let seconds = (last.at_ns.saturating_sub(first.at_ns).max(1)) as f64 / 1e9;
    let ahead = |client: &Exported| client.seconds - client.ledger_seconds;
    let pairs = first.clients.iter().zip(&last.clients);
    pairs.map(|(first, last)| 100.0 * (ahead(last) - ahead(first)) / seconds).collect()
}

/// The largest difference of the rate, and of the share.
pub(super) fn largest(differences: &[Difference]) -> (f64, f64) {
    let largest =
        |of: fn(&Difference) -> f64| differences.iter().map(|each| of(each).abs()).fold(0.0, f64::max);
    (largest(|each| each.rate_points), largest(|each| each.share_points))
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

#[cfg(test)]
mod tests;
