//! The energy of a simulated run (docs/design/energy.md).

use crate::report::Report;

/// What the GPU draws.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerModel {
    /// Without work, watts.
    pub idle_w: f64,
    /// While each client executes, watts.
    pub clients_w: Vec<f64>,
    /// While the context changes, watts.
    pub switch_w: f64,
    /// Energy that a change of the context costs in addition if it interrupts a burst, joules.
    pub preemption_j: f64,
}

impl PowerModel {
    /// Energy of the whole run, joules.
    #[must_use]
    pub fn joules(&self, report: &Report) -> f64 {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let clients = report.clients.iter().zip(&self.clients_w);
        let work: f64 = clients.map(|(client, watts)| client.share * seconds(report.span_ns) * watts).sum();
        let rest = self.idle_w * seconds(report.idle_ns) + self.switch_w * seconds(report.switching_ns);
        work + rest + self.preemption_j * report.preemptions as f64
    }
}
