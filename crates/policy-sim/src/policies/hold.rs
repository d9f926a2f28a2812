//! Automatic holds ahead of requests at a steady pace: the hook's arrival predictor decides when the GPU changes to a
//! latency-critical client before its work arrives.

use super::Demand;
use sluice_hook_core::hold_kernel::ArrivalPredictor;

/// A request that is late is waited for at least this long, as by the hook.
const LATENESS_NS: f64 = 400_000.0;

/// The holds of one client. Each is planned for one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds {
    predictor: ArrivalPredictor,
    /// When the last request arrived, for which the predictor has learned.
    learned: Option<u64>,
    /// Beginning and end of the planned hold.
    planned: Option<(u64, u64)>,
}

impl Holds {
    /// Learns from a request that has arrived, and plans the next hold. `switch_ns` is the time of a switch to the client.
    pub(super) fn update(&mut self, demand: &Demand, switch_ns: u64) {
        if !demand.ready || self.learned == Some(demand.arrived) {
            return;
        }
        self.learned = Some(demand.arrived);
        self.predictor.learn(demand.arrived);
        self.planned = self.predictor.next().map(|expected| {
            let latest_ns = expected.mean_ns + expected.margin_ns.max(LATENESS_NS);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the conversion saturates"
            )]
            let latest_ns = latest_ns as u64;
            (expected.earliest_ns().saturating_sub(switch_ns), latest_ns)
        });
    }

    /// Whether a hold keeps the GPU: it has begun, and neither has its request come nor its time passed.
    pub(super) fn is_active(&self, now: u64, demand: &Demand) -> bool {
        !demand.ready && self.planned.is_some_and(|(from, to)| (from..to).contains(&now))
    }

    /// When a hold begins or ends next.
    pub(super) fn next_event(&self, now: u64) -> Option<u64> {
        let (from, to) = self.planned?;
        [from, to].into_iter().find(|at| *at > now)
    }
}
