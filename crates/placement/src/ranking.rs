//! Ranking of the places that fit.

use sluice_units::Share;

use super::demand::Demand;
use super::gpu_state::GpuState;
use crate::annotations::Amount;

/// How pods are distributed over GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Fill GPUs one after the other: free GPUs stay free for pods that need whole ones.
    #[default]
    Binpack,
    /// Put as few pods on a GPU as possible.
    Spread,
}

/// Rank of a place: the smallest is the best. Compared from left to right.
pub(crate) type Rank = [u64; 4];

/// Rank of one GPU for a share of it. `free_gpus`: GPUs of the node without pods.
pub(crate) fn of_share(strategy: Strategy, slot: &GpuState, demand: &Demand, free_gpus: u64) -> Rank {
    let used = &slot.used;
    let pods = u64::from(used.pods);
    let left_memory = slot.free_memory().saturating_sub(demand.memory_on(slot.memory_bytes));
    match (strategy, demand.amount) {
        // A pod without a quota uses time that others leave: it goes to a GPU in use, to the one that leaves the most.
        (Strategy::Binpack, Amount::Share(Share::ZERO)) => {
            [u64::from(slot.is_free()), pods, used.ppm, left_memory]
        }
        (Strategy::Binpack, _) => [slot.free_ppm(), left_memory, free_gpus, u64::from(slot.ordinal)],
        (Strategy::Spread, Amount::Share(Share::ZERO)) => {
            [pods, used.ppm, used.memory_bytes, u64::MAX - free_gpus]
        }
        (Strategy::Spread, _) => [used.ppm, pods, used.memory_bytes, u64::MAX - free_gpus],
    }
}

/// Rank of a set of whole GPUs: missing links, then GPUs of the node that stay free.
pub(crate) fn of_whole(strategy: Strategy, links_missing: u64, free_gpus_left: u64) -> Rank {
    let left = match strategy {
        Strategy::Binpack => free_gpus_left,
        Strategy::Spread => u64::MAX - free_gpus_left,
    };
    [links_missing, left, 0, 0]
}
