//! Ranking of the places that fit: one GPU for a share, or the set of free GPUs with the most NVLinks.

use std::cmp::Reverse;

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
pub(crate) type Rank = [u64; 5];

/// Rank of one GPU for a share of it. `free_gpus`: GPUs of the node without pods.
///
/// A latency-critical pod goes to a GPU with as few others of its kind as possible: each waits for the requests of the others. A
/// GPU with best-effort pods is as good as a free one, because they give way.
pub(crate) fn of_share(strategy: Strategy, slot: &GpuState, demand: &Demand, free_gpus: u64) -> Rank {
    let used = &slot.used;
    let pods = u64::from(used.pods);
    let left_memory = slot.free_memory().saturating_sub(demand.memory_on(slot.memory_bytes));
    let critical = if demand.latency_critical { u64::from(used.critical) } else { 0 };
    let [first, second, third, fourth] = match (strategy, demand.amount) {
        // A pod without a quota uses time that others leave: it goes to a GPU in use, to the one that leaves the most.
        (Strategy::Binpack, Amount::Share(Share::ZERO)) => {
            [u64::from(slot.is_free()), pods, used.ppm, left_memory]
        }
        (Strategy::Binpack, _) => [slot.free_ppm(), left_memory, free_gpus, u64::from(slot.ordinal)],
        (Strategy::Spread, Amount::Share(Share::ZERO)) => {
            [pods, used.ppm, used.memory_bytes, u64::MAX - free_gpus]
        }
        (Strategy::Spread, _) => [used.ppm, pods, used.memory_bytes, u64::MAX - free_gpus],
    };
    [critical, first, second, third, fourth]
}

/// Latency-critical pods that a pod of this kind meets in a place with this rank.
pub(crate) fn critical_pods(rank_of_share: &Rank) -> u64 {
    rank_of_share[0]
}

/// Rank of a set of whole GPUs: missing links, then GPUs of the node that stay free.
pub(crate) fn of_whole(strategy: Strategy, links_missing: u64, free_gpus_left: u64) -> Rank {
    let left = match strategy {
        Strategy::Binpack => free_gpus_left,
        Strategy::Spread => u64::MAX - free_gpus_left,
    };
    [links_missing, left, 0, 0, 0]
}

/// GPUs of a node as bits by their position. A node has 16 at most; positions beyond the bits count as not linked.
pub(crate) type Mask = u128;

/// The bit of a position.
pub(crate) fn bit(position: usize) -> Mask {
    u32::try_from(position).ok().and_then(|place| Mask::checked_shl(1, place)).unwrap_or(0)
}

/// A set of GPUs, by position in the node, and how far it is from being fully linked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) positions: Vec<usize>,
    /// Pairs without a direct link.
    pub(crate) links_missing: u64,
}

/// The best set of `count` GPUs out of `free`, or `None` if there are too few.
///
/// From each GPU as a start, the set grows by the GPU with the most links into it. Among equals, the one with the
/// fewest links to free GPUs outside is taken, which keeps other linked sets together. The first fully linked set ends
/// the search.
pub(crate) fn best_set(slots: &[GpuState], free: &[usize], count: usize) -> Option<Set> {
    if count == 0 || free.len() < count {
        return None;
    }
    let mut best: Option<Set> = None;
    for &start in free {
        let set = grow(slots, free, start, count);
        let is_complete = set.links_missing == 0;
        if best.as_ref().is_none_or(|best| set.links_missing < best.links_missing) {
            best = Some(set);
        }
        if is_complete {
            break;
        }
    }
    best
}

fn grow(slots: &[GpuState], free: &[usize], start: usize, count: usize) -> Set {
    let all: Mask = free.iter().fold(0, |mask, &one| mask | bit(one));
    let (mut positions, mut inside) = (vec![start], bit(start));
    let mut linked = 0;
    while positions.len() < count {
        let outside = free.iter().copied().filter(|&one| !positions.contains(&one));
        let best = outside.max_by_key(|&one| {
            let peers = slots.get(one).map_or(0, |slot| slot.peers);
            ((peers & inside).count_ones(), Reverse((peers & all & !inside).count_ones()), Reverse(one))
        });
        let Some(next) = best else { break };
        linked += slots.get(next).map_or(0, |slot| u64::from((slot.peers & inside).count_ones()));
        inside |= bit(next);
        positions.push(next);
    }
    positions.sort_unstable();
    let pairs = (positions.len() * (positions.len() - 1) / 2) as u64;
    Set { links_missing: pairs.saturating_sub(linked), positions }
}
