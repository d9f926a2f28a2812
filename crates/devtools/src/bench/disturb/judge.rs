//! The figures of a run beside their bars. Pure functions.

use serde::Serialize;

use super::exported::largest;
use super::measure::Measured;
use super::scenario::{Bar, Scenario};

/// Points of accuracy of shares in windows of a second, of shares over a whole span, and of exported figures. A window may be off by
/// a quantum in any case, and by the time for which the host delayed a thread of this program: the manager's is delayed alike.
const WINDOW_POINTS: f64 = 2.0;
const SPAN_POINTS: f64 = 1.0;
const EXPORTED_POINTS: f64 = 1.0;
/// Longest time in which work stands, and memory is awaited.
const LIVE_MS: f64 = 250.0;
/// Longest time until a level is regained.
const REGAINED_S: f64 = 10.0;
/// Largest part of the GPU's time that is lost.
const IDLE_PERCENT: f64 = 3.0;
/// Permitted delay of a request beyond that without a limit: a tenth, and the host's jitter.
const DELAY: f64 = 0.1;
const JITTER_MS: f64 = 1.0;

/// A measured value, and the value that it is to reach.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Figure {
    pub(super) what: &'static str,
    /// Absent if it could not be measured, because it never came.
    pub(super) measured: Option<f64>,
    pub(super) bar: f64,
    pub(super) is_least: bool,
    pub(super) passed: bool,
}

impl Figure {
    fn new(what: &'static str, measured: Option<f64>, bar: f64, is_least: bool) -> Self {
        let passed = measured.is_some_and(|value| if is_least { value >= bar } else { value <= bar });
        Self { what, measured, bar, is_least, passed }
    }

    fn at_most(what: &'static str, measured: impl Into<Option<f64>>, bar: f64) -> Self {
        Self::new(what, measured.into(), bar, false)
    }

    fn at_least(what: &'static str, measured: impl Into<Option<f64>>, bar: f64) -> Self {
        Self::new(what, measured.into(), bar, true)
    }
}

/// The figure of the issue first, then the others of the scenario, then the exported ones.
pub(super) fn figures(scenario: &Scenario, measured: &Measured) -> Vec<Figure> {
    let mut figures = of_bar(scenario, measured);
    let exported = measured.exported.as_deref().map(largest);
    let (rate, share) = exported.map_or((None, None), |(rate, share)| (Some(rate), Some(share)));
    figures.push(Figure::at_most("exported GPU seconds off by, points", rate, EXPORTED_POINTS));
    figures.push(Figure::at_most("sluice_share off by, points", share, EXPORTED_POINTS));
    figures
}

fn of_bar(scenario: &Scenario, measured: &Measured) -> Vec<Figure> {
    let quantum = scenario.scheduling.quantum().as_secs_f64();
    let seen = &measured.observed;
    match scenario.bar {
        Bar::EntitledEverySecond => {
            let worst = measured.worst.as_ref().map(|worst| worst.off_points);
            let bar = WINDOW_POINTS.max(100.0 * quantum) + measured.host.latest_wakeup_ms / 10.0;
            vec![Figure::at_most("worst second off by, points", worst, bar)]
        }
        Bar::Entitled => {
            let off = measured.shares.iter().zip(&measured.entitled).map(|(share, due)| (share - due).abs());
            let bar = SPAN_POINTS.max(100.0 * quantum / measured.seconds);
            vec![Figure::at_most("share off by, points", 100.0 * off.fold(0.0, f64::max), bar)]
        }
        Bar::Share(share) => beside_critical(share, scenario, measured),
        Bar::ShareAtMost(share) => {
            let got = measured.shares_10_s.first().map(|share| 100.0 * share);
            vec![Figure::at_most("share of the LC client, %", got, 100.0 * share)]
        }
        Bar::RequestsNotDelayed => {
            let before = seen.latency_ms.unwrap_or(0.0);
            let more = measured.latency_ms.map(|ms| ms - before);
            vec![Figure::at_most("requests delayed by, ms", more, DELAY * before + JITTER_MS)]
        }
        Bar::NothingLostToStopped => {
            let kept = (0..scenario.clients.len()).filter(|client| scenario.is_active(*client));
            let kept: f64 = kept.map(|client| measured.shares[client]).sum();
            let lost = 1e3 * (1.0 - kept - measured.switching);
            vec![Figure::at_most("lost to stopped processes, ms a second", lost, 1e3 * quantum)]
        }
        Bar::Live => {
            let stood = seen.stood_ms.iter().copied().reduce(f64::max);
            let started = seen.start_ms.map(|(usual, meanwhile)| meanwhile - usual);
            vec![
                Figure::at_most("processes stood for, ms", stood, LIVE_MS),
                Figure::at_most("an allocation took, ms", seen.allocation_ms, LIVE_MS),
                Figure::at_most("a start to the first allocation took longer by, ms", started, LIVE_MS),
            ]
        }
        Bar::LevelRegained => vec![Figure::at_most("level regained after, s", seen.regained_s, REGAINED_S)],
    }
}

/// The last client's share beside the first one, which is latency-critical: at least `share`, or what the first one leaves if it uses
/// no more than its request, context switches not counted.
fn beside_critical(share: f64, scenario: &Scenario, measured: &Measured) -> Vec<Figure> {
    let used = measured.shares.first().copied().unwrap_or(0.0);
    let request = scenario.clients.first().map_or(0.0, |client| client.terms.request);
    let left = 100.0 * (1.0 - used.min(request) - measured.switching) - IDLE_PERCENT;
    let got = measured.shares.last().map(|share| 100.0 * share);
    vec![
        Figure::at_least("share of the BE client, %", got, left.min(100.0 * share)),
        Figure::at_most("idle, %", 100.0 * measured.idle, IDLE_PERCENT),
    ]
}

#[cfg(test)]
mod tests;
