//! Which of the places that fit is best.

use super::demand::{Demand, Take};
use super::slot::Slot;

/// How pods are laid over GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Fill GPUs one after the other: free ones stay free for pods that need them whole.
    #[default]
    Binpack,
    /// As few pods on a GPU as possible.
    Spread,
}

/// Rank of a place: the smallest is the best. Compared from left to right.
pub(crate) type Rank = [u64; 4];

/// Rank of one GPU for a share of it. `free_gpus`: GPUs of the node that nobody uses.
pub(crate) fn of_share(strategy: Strategy, slot: &Slot, demand: &Demand, free_gpus: u64) -> Rank {
    let used = &slot.used;
    let pods = u64::from(used.pods);
    let left_memory = slot.free_memory().saturating_sub(demand.memory_on(slot.memory_bytes));
    match (strategy, demand.take) {
        // Without a quota a pod lives on what others leave: on a GPU in use, but on one that leaves the most.
        (Strategy::Binpack, Take::Share { quota_milli: 0 }) => {
            [u64::from(slot.is_free()), pods, used.milli, left_memory]
        }
        (Strategy::Binpack, _) => [slot.free_milli(), left_memory, free_gpus, u64::from(slot.ordinal)],
        (Strategy::Spread, Take::Share { quota_milli: 0 }) => {
            [pods, used.milli, used.memory_bytes, u64::MAX - free_gpus]
        }
        (Strategy::Spread, _) => [used.milli, pods, used.memory_bytes, u64::MAX - free_gpus],
    }
}

/// Rank of a set of whole GPUs: links that it lacks, then what it leaves of the node.
pub(crate) fn of_whole(strategy: Strategy, links_missing: u64, free_gpus_left: u64) -> Rank {
    let left = match strategy {
        Strategy::Binpack => free_gpus_left,
        Strategy::Spread => u64::MAX - free_gpus_left,
    };
    [links_missing, left, 0, 0]
}
