//! Ranking of the places that fit: one GPU, or a set of GPUs of one node.

use std::cmp::Reverse;

use sluice_units::Share;

use super::demand::Demand;
use super::gpu_state::GpuState;

/// How pods are distributed over GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Fill GPUs one after the other: free GPUs stay free for pods that need whole ones.
    #[default]
    Binpack,
    /// Put as few pods on a GPU as possible.
    Spread,
}

/// Rank of a GPU or of a set: the smallest is the best. Compared from left to right: 1 for a pod of a gang on a node without another pod of
/// the gang, latency-critical pods that a latency-critical pod meets, pairs of the set without a direct link, pairs on different NUMA
/// nodes, GPUs whose memory would no longer hold that of all of their pods at once, then the strategy's own criteria.
pub(crate) type Rank = [u64; 9];

/// Rank of one GPU. `free_gpus`: GPUs of the node without pods.
///
/// Memory that leaves and returns takes time, so a GPU that holds the memory of all of its pods is better than one that does not.
/// A latency-critical pod goes to a GPU with as few others of its kind as possible: each waits for the requests of the others. A
/// GPU with best-effort pods is as good as a free one, because they give way.
pub(crate) fn of_gpu(strategy: Strategy, slot: &GpuState, demand: &Demand, free_gpus: u64) -> Rank {
    let used = &slot.used;
    let pods = u64::from(used.pods);
    let memory = used.memory.and(demand.memory_on(slot.memory_bytes), demand.overcommits);
    let left_memory = slot.memory_bytes.saturating_sub(memory.on_gpu());
    let exceeds = u64::from(memory.exceeds(slot.memory_bytes));
    let critical = if demand.latency_critical { u64::from(used.critical) } else { 0 };
    // Ranks of a set are sums, so this number is not the largest of its type.
    let gpus_in_use = u64::from(u32::MAX).saturating_sub(free_gpus);
    let [first, second, third, fourth] = match (strategy, demand.share) {
        // A pod without a quota uses time that others leave: it goes to a GPU in use, to the one that leaves the most.
        (Strategy::Binpack, Share::ZERO) => [u64::from(slot.is_free()), pods, used.ppm, left_memory],
        (Strategy::Binpack, _) => [slot.free_ppm(), left_memory, free_gpus, 0],
        (Strategy::Spread, Share::ZERO) => [pods, used.ppm, used.memory.on_gpu(), gpus_in_use],
        (Strategy::Spread, _) => [used.ppm, pods, used.memory.on_gpu(), gpus_in_use],
    };
    [0, critical, 0, 0, exceeds, first, second, third, fourth]
}

/// Latency-critical pods that a latency-critical pod meets on the GPUs with this rank.
pub(crate) fn critical_pods(rank: &Rank) -> u64 {
    rank[1]
}

/// The rank on a node without another pod of the gang.
pub(crate) fn apart_from_gang(mut rank: Rank) -> Rank {
    rank[0] = 1;
    rank
}

/// Whether the node of this rank has no other pod of the gang.
pub(crate) fn is_apart_from_gang(rank: &Rank) -> bool {
    rank[0] > 0
}

/// GPUs of a node as bits by their position. A node has 16 at most; positions beyond the bits count as not linked.
pub(crate) type Mask = u128;

/// The bit of a position.
pub(crate) fn bit(position: usize) -> Mask {
    u32::try_from(position).ok().and_then(|place| Mask::checked_shl(1, place)).unwrap_or(0)
}

/// A GPU on which the demand fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RankedGpu {
    pub(crate) rank: Rank,
    /// In the node.
    pub(crate) position: usize,
    /// GPUs with a link to this one.
    pub(crate) peers: Mask,
    /// GPUs of other NUMA nodes.
    pub(crate) far: Mask,
}

/// The best set of `count` of these GPUs with its rank, by their positions. `None` if there are too few.
///
/// If each GPU is linked to all others, or none to any, and all are of one NUMA node, the GPUs of the best ranks are the best of all
/// sets. Otherwise a set grows from each GPU as a start, and need not be the best of all.
pub(crate) fn best_set(fitting: impl Iterator<Item = RankedGpu>, count: usize) -> Option<(Rank, Vec<usize>)> {
    if count == 1 {
        return fitting.map(|gpu| (gpu.rank, gpu.position)).min().map(|(rank, place)| (rank, vec![place]));
    }
    let mut gpus: Vec<RankedGpu> = fitting.collect();
    gpus.sort_unstable_by_key(|gpu| (gpu.rank, gpu.position));
    let first = gpus.get(..count).filter(|first| !first.is_empty())?;
    let all: Mask = gpus.iter().fold(0, |mask, gpu| mask | bit(gpu.position));
    let has_links = |links: usize| gpus.iter().all(|gpu| (gpu.peers & all).count_ones() as usize == links);
    let are_near = gpus.iter().all(|gpu| gpu.far & all == 0);
    if are_near && (has_links(0) || has_links(gpus.len() - 1)) {
        return Some(described(first));
    }
    gpus.iter().map(|start| described(&grow(&gpus, all, *start, count))).min()
}

/// As [`best_set`] among the sets that the caller accepts. If the best of all is none of these, all sets are compared, those of several
/// GPUs among the [`COMPARED_GPUS`] GPUs of the best ranks.
pub(crate) fn best_accepted_set(
    mut fitting: Vec<RankedGpu>,
    count: usize,
    is_accepted: impl Fn(&[usize]) -> bool,
) -> Option<(Rank, Vec<usize>)> {
    let best = best_set(fitting.iter().copied(), count)?;
    if is_accepted(&best.1) {
        return Some(best);
    }
    if count > 1 {
        fitting.sort_unstable_by_key(|gpu| (gpu.rank, gpu.position));
        fitting.truncate(COMPARED_GPUS.max(count));
    }
    let sets = combinations(&fitting, count).into_iter().map(|set| described(&set));
    sets.filter(|(_, positions)| is_accepted(positions)).min()
}

/// All sets of several GPUs are compared among this many. Those of 4 of 8 are 70.
pub(crate) const COMPARED_GPUS: usize = 8;

/// All sets of `count` of the items.
pub(crate) fn combinations<T: Copy>(items: &[T], count: usize) -> Vec<Vec<T>> {
    match (count, items.split_first()) {
        (0, _) => vec![Vec::new()],
        (_, Some((first, rest))) if count <= items.len() => {
            let mut sets = combinations(rest, count - 1);
            sets.iter_mut().for_each(|set| set.insert(0, *first));
            sets.extend(combinations(rest, count));
            sets
        }
        _ => Vec::new(),
    }
}

/// The rank of a set, and the positions of its GPUs.
fn described(set: &[RankedGpu]) -> (Rank, Vec<usize>) {
    let mut positions: Vec<usize> = set.iter().map(|gpu| gpu.position).collect();
    positions.sort_unstable();
    (rank_of(set), positions)
}

/// The set grows by the GPU with the fewest latency-critical pods, then the most links into the set, then the fewest GPUs of the set on
/// other NUMA nodes, then the best rank, then the fewest links to GPUs outside, which keeps other linked sets together.
fn grow(gpus: &[RankedGpu], all: Mask, start: RankedGpu, count: usize) -> Vec<RankedGpu> {
    let (mut set, mut inside) = (vec![start], bit(start.position));
    while set.len() < count {
        let is_inside = |gpu: &RankedGpu| set.iter().any(|one| one.position == gpu.position);
        let outside = gpus.iter().filter(|gpu| !is_inside(gpu));
        let best = outside.min_by_key(|gpu| {
            let links = (gpu.peers & inside).count_ones();
            let links_outside = (gpu.peers & all & !inside).count_ones();
            let far = (gpu.far & inside).count_ones();
            (critical_pods(&gpu.rank), Reverse(links), far, gpu.rank, links_outside, gpu.position)
        });
        let Some(next) = best.copied() else { break };
        inside |= bit(next.position);
        set.push(next);
    }
    set
}

/// The sum of the ranks, with the pairs that have no link and those on different NUMA nodes.
fn rank_of(set: &[RankedGpu]) -> Rank {
    let mut sum = Rank::default();
    for gpu in set {
        for (total, one) in sum.iter_mut().zip(gpu.rank) {
            *total = total.saturating_add(one);
        }
    }
    let inside: Mask = set.iter().fold(0, |mask, gpu| mask | bit(gpu.position));
    // Each pair is counted at both ends.
    let pairs_of = |mask: &dyn Fn(&RankedGpu) -> Mask| -> u64 {
        set.iter().map(|gpu| u64::from((mask(gpu) & inside).count_ones())).sum::<u64>() / 2
    };
    let pairs = (set.len() * set.len().saturating_sub(1) / 2) as u64;
    sum[2] = pairs.saturating_sub(pairs_of(&|gpu| gpu.peers));
    sum[3] = pairs_of(&|gpu| gpu.far);
    sum
}
