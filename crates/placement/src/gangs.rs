//! Gangs of a node: pods that run at the same time on several of its GPUs, and whether there is such a time.
//!
//! A gang runs in one slot of each cycle, the same on all of its GPUs, as long as its quota (docs/design/gangs.md). Two gangs with a common
//! GPU have different slots. Their quotas fit there, because those of a GPU add up to at most 1. Three gangs of which each two have a common
//! GPU need three different slots, even if no GPU has all three: together they must not ask for more than 1.

use std::sync::Arc;

use sluice_units::WHOLE_PPM;

use super::demand::Demand;

/// A pod with several GPUs, or the pods of a node with the same `sluice.dev/gang`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Gang {
    /// Namespace and name; `None`: one pod.
    name: Option<Arc<str>>,
    gpus: Vec<Arc<str>>,
    /// The largest quota of its pods, parts per million of a GPU.
    ppm: u64,
}

impl Gang {
    fn shares_gpu(&self, other: &Self) -> bool {
        self.gpus.iter().any(|gpu| other.gpus.contains(gpu))
    }
}

/// The gangs of a node that need slots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Gangs(Vec<Gang>);

impl Gangs {
    /// Adds a pod. Only gangs need slots; a latency-critical one runs at any time, and whole GPUs have one client.
    pub(crate) fn add(&mut self, gpus: &[Arc<str>], demand: &Demand) {
        if !needs_slot(demand) {
            return;
        }
        let gang = self.with(gpus, demand);
        self.0.retain(|other| other.name.is_none() || other.name != gang.name);
        self.0.push(gang);
    }

    /// If the pod's gang had no slot on these GPUs beside those of two others, the quotas of the three together, parts per million.
    pub(crate) fn excess(&self, gpus: &[Arc<str>], demand: &Demand) -> Option<u64> {
        if !needs_slot(demand) {
            return None;
        }
        let gang = self.with(gpus, demand);
        let is_other = |other: &&Gang| other.name.is_none() || other.name != gang.name;
        let beside: Vec<&Gang> =
            self.0.iter().filter(is_other).filter(|other| other.shares_gpu(&gang)).collect();
        let pairs = beside
            .iter()
            .enumerate()
            .flat_map(|(at, one)| beside.iter().skip(at + 1).map(move |other| (one, other)));
        let sums = pairs
            .filter(|(one, other)| one.shares_gpu(other))
            .map(|(one, other)| gang.ppm + one.ppm + other.ppm);
        sums.max().filter(|sum| *sum > u64::from(WHOLE_PPM))
    }

    /// The gang of the pod with the pod.
    fn with(&self, gpus: &[Arc<str>], demand: &Demand) -> Gang {
        let known = self.0.iter().find(|other| other.name.is_some() && other.name == demand.gang);
        let mut gang = known.cloned().unwrap_or(Gang { name: demand.gang.clone(), gpus: Vec::new(), ppm: 0 });
        gang.gpus.extend(gpus.iter().cloned());
        gang.ppm = gang.ppm.max(u64::from(demand.share.ppm()));
        gang
    }
}

fn needs_slot(demand: &Demand) -> bool {
    (demand.gpus > 1 || demand.gang.is_some()) && !demand.latency_critical && !demand.is_whole()
}
