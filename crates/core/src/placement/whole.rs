//! Whole GPUs: the set with the most NVLinks among those that are free.

use super::slot::Slot;

/// A set of GPUs, by position in the node, and how far it is from being fully linked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) positions: Vec<usize>,
    /// Pairs without a direct link.
    pub(crate) links_missing: u64,
}

/// The best set of `count` GPUs out of `free`, or `None` if there are too few.
///
/// From each GPU as a start the set grows by the GPU that has the most links into it, and among equals the one with the
/// fewest links to free GPUs outside, which breaks up the least. A node has 16 GPUs at most, so all starts are tried.
pub(crate) fn best_set(slots: &[Slot], free: &[usize], count: usize) -> Option<Set> {
    if count == 0 || free.len() < count {
        return None;
    }
    let starts = free.iter().map(|&start| grow(slots, free, start, count));
    starts.min_by(|one, other| {
        (one.links_missing, &one.positions).cmp(&(other.links_missing, &other.positions))
    })
}

fn grow(slots: &[Slot], free: &[usize], start: usize, count: usize) -> Set {
    let mut positions = vec![start];
    while positions.len() < count {
        let outside = free.iter().copied().filter(|one| !positions.contains(one));
        let next = outside.max_by_key(|&one| {
            let inward = links(slots, one, &positions);
            let outward = links(slots, one, free) - inward;
            (inward, std::cmp::Reverse(outward), std::cmp::Reverse(one))
        });
        let Some(next) = next else { break };
        positions.push(next);
    }
    positions.sort_unstable();
    let size = positions.len() as u64;
    let linked: u64 = positions.iter().map(|&one| links(slots, one, &positions)).sum();
    Set { links_missing: (size * (size - 1)).saturating_sub(linked) / 2, positions }
}

/// Links of the GPU at `one` to GPUs among `others`, in either direction.
fn links(slots: &[Slot], one: usize, others: &[usize]) -> u64 {
    let is_linked =
        |&&other: &&usize| other != one && (has_peer(slots, one, other) || has_peer(slots, other, one));
    others.iter().filter(is_linked).count() as u64
}

fn has_peer(slots: &[Slot], one: usize, other: usize) -> bool {
    let bit = u32::try_from(other).ok().and_then(|place| 1_u128.checked_shl(place)).unwrap_or(0);
    slots.get(one).is_some_and(|slot| slot.peers & bit != 0)
}
