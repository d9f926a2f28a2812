//! Policies: which client has the GPU, and until when that is reviewed.

mod credit;
mod edf;
mod fair;
mod gemini;
mod hold;
mod priority;
mod runlist;
mod slices;
mod sluice;

use crate::policy_name::PolicyName;
use crate::scenario::Scenario;
use sluice_core::resources::ClientEntry;

/// What the thread that serves a client's requests does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HostPhase {
    /// It makes no calls: it waits for a request, or takes one that has waited.
    #[default]
    Away,
    /// It has made the first call of a request, such as a copy, and will launch.
    Preparing,
    /// A burst waits for the GPU or runs, or the host works between two bursts.
    Working,
    /// The work has ended, and its wait has not returned.
    Returning,
}

/// The work of a client, as a policy sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// A burst waits for the GPU or runs.
    pub(crate) ready: bool,
    /// Since when that is so or not.
    pub(crate) since: u64,
    /// The burst has run already.
    pub(crate) started: bool,
    /// When the request of the burst arrived.
    pub(crate) arrived: u64,
    /// What its thread does.
    pub(crate) host: HostPhase,
    /// Requests whose first call was made, and the time of the last one.
    pub(crate) calls: (u64, u64),
    /// Requests whose wait has returned, and the time of the last one.
    pub(crate) returns: (u64, u64),
}

/// What a policy has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The client that is to have the GPU.
    pub(crate) client: Option<usize>,
    /// When the policy is to decide again if nothing happens before.
    pub(crate) review_at: u64,
    /// A hold kernel of that client runs while the client has no work: the GPU is not idle.
    pub(crate) is_held: bool,
}

impl Decision {
    /// A decision that holds until something happens.
    pub(crate) const fn until_event(client: Option<usize>) -> Self {
        Self { client, review_at: u64::MAX, is_held: false }
    }
}

/// A policy of one GPU. Time is an argument.
pub(crate) trait Policy {
    /// Decides. Called after each event, and at the time of the last decision's review.
    fn decide(&mut self, now: u64, demands: &[Demand]) -> Decision;

    /// A client has executed.
    fn ran(&mut self, client: usize, from: u64, to: u64);

    /// The policy was not asked from `since` until `now`.
    fn resume(&mut self, _since: u64, _now: u64) {}
}

/// The policy of this name for each GPU of a node. `gpus`: what each has of the scenario.
pub(crate) fn build(name: PolicyName, gpus: &[Scenario]) -> Vec<Box<dyn Policy>> {
    let each = |build: &dyn Fn(&Scenario) -> Box<dyn Policy>| gpus.iter().map(build).collect();
    match name {
        PolicyName::Sluice => sluice::for_node(gpus, false),
        PolicyName::SluiceWithHolds => sluice::for_node(gpus, true),
        PolicyName::Gemini => each(&|gpu| Box::new(gemini::Gemini::new(&gpu.clients))),
        PolicyName::Credit => each(&|gpu| Box::new(credit::Credit::new(&gpu.clients))),
        PolicyName::Fair => each(&|gpu| Box::new(fair::Fair::new(&gpu.clients, gpu.gpu.slice_ns))),
        PolicyName::Edf => each(&|gpu| Box::new(edf::EarliestDeadline::new(&gpu.clients))),
        PolicyName::Priority => {
            each(&|gpu| Box::new(priority::StrictPriority::new(&gpu.clients, gpu.gpu.slice_ns)))
        }
        PolicyName::Exponential => each(&|gpu| Box::new(slices::Slices::exponential(&gpu.clients))),
        PolicyName::TimeSlicing => {
            each(&|gpu| Box::new(slices::Slices::equal(&gpu.clients, gpu.gpu.slice_ns)))
        }
    }
}

/// Weights of the clients: their requests, at least one hundredth.
fn weights(clients: &[ClientEntry]) -> Vec<u64> {
    clients.iter().map(|client| u64::from(client.request.ppm()).max(10_000)).collect()
}
