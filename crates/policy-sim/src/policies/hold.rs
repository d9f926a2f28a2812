//! Automatic holds: while a request prepares its launch, ahead of requests at a steady pace, and for the linger time after a wait. What
//! the hook learns is learned by the hook's own code.

use super::{Demand, HostPhase};
use crate::scenario::{Gpu, Workload};
use sluice_hook_core::hold_kernel::{ArrivalPredictor, Linger};

/// A request that is late is waited for at least this long, as by the hook.
const LATENESS_NS: f64 = 400_000.0;

/// The holds of one client.
#[derive(Debug)]
pub(super) struct Holds {
    predictor: ArrivalPredictor,
    /// Beginning and end of the hold that is planned for the next request.
    planned: Option<(u64, u64)>,
    linger: Linger,
    /// The linger time of the scenario.
    fixed_linger_ns: Option<u64>,
    /// How long a hold stays after the present or the next wait.
    linger_ns: u64,
    /// Until when it stays after the last wait.
    lingers_until: u64,
    /// Time of a switch to the client, and of one there and back.
    preempt_ns: u64,
    switches_ns: f64,
    calls: u64,
    returns: u64,
}

impl Holds {
    pub(super) fn new(workload: &Workload, gpu: Gpu) -> Self {
        Self {
            predictor: ArrivalPredictor::default(),
            planned: None,
            linger: Linger::default(),
            fixed_linger_ns: workload.linger_ns,
            linger_ns: workload.linger_ns.unwrap_or(0),
            lingers_until: 0,
            preempt_ns: gpu.preempt_ns,
            switches_ns: (gpu.preempt_ns + gpu.switch_ns) as f64,
            calls: 0,
            returns: 0,
        }
    }

    /// Learns from the first call of a request and from the end of its wait.
    pub(super) fn update(&mut self, demand: &Demand) {
        let (returns, returned_at) = demand.returns;
        if self.returns != returns {
            self.returns = returns;
            self.lingers_until = returned_at + self.linger_ns;
        }
        let (calls, called_at) = demand.calls;
        if self.calls != calls {
            self.calls = calls;
            self.plan(demand.arrived);
            if returns > 0 {
                self.linger.learn(called_at - returned_at, self.switches_ns);
            }
            let learned_ns = self.linger.ns(self.switches_ns);
            self.linger_ns = self.fixed_linger_ns.unwrap_or(learned_ns);
        }
    }

    fn plan(&mut self, arrived: u64) {
        self.predictor.learn(arrived);
        self.planned = self.predictor.next().map(|expected| {
            let latest_ns = expected.mean_ns + expected.margin_ns.max(LATENESS_NS);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the conversion saturates"
            )]
            let latest_ns = latest_ns as u64;
            (expected.earliest_ns().saturating_sub(self.preempt_ns), latest_ns)
        });
    }

    /// Whether a hold keeps the GPU while there is no work.
    pub(super) fn is_active(&self, now: u64, demand: &Demand) -> bool {
        match demand.host {
            HostPhase::Preparing => true,
            HostPhase::Working => false,
            HostPhase::Returning => self.linger_ns > 0,
            HostPhase::Away => {
                let is_planned = self.planned.is_some_and(|(from, to)| (from..to).contains(&now));
                is_planned || now < self.lingers_until
            }
        }
    }

    /// When a hold begins or ends next.
    pub(super) fn next_event(&self, now: u64) -> Option<u64> {
        let (from, to) = self.planned.unwrap_or_default();
        [from, to, self.lingers_until].into_iter().filter(|at| *at > now).min()
    }
}
