//! The slots of one GPU, and which of them is open.

use crate::ids::ClientId;
use std::collections::{BTreeMap, BTreeSet};

/// Length of the shortest cycle, nanoseconds. Cycles begin at multiples of their length. Longer ones cost fewer hand-offs, shorter ones delay
/// a gang's steps less.
pub const CYCLE_NS: u64 = 200_000_000;

/// A cycle lasts at least this long for each GPU that gangs use beyond the first: at the end of a slot a rank waits for the hand-offs of the
/// others, which wait for one driver, about a millisecond each.
pub(super) const CYCLE_PER_GPU_NS: u64 = 150_000_000;

/// The longest cycle, nanoseconds. A gang's step waits for up to a cycle.
pub(super) const LONGEST_CYCLE_NS: u64 = 800_000_000;

/// Length of the shortest cycle where a gang is scheduled by grants. Work that was launched before the end of a slot runs on after it: two steps of a
/// training, for example. In the shorter cycle that work would last longer than a slot, and all gangs would run at the same time.
pub const CYCLE_BY_GRANTS_NS: u64 = 2 * CYCLE_NS;

/// The shortest slot or window, nanoseconds: a hand-off takes about a millisecond on each GPU of the node. A gang with a smaller share has a
/// slot of this length; a latency-critical one has no window.
pub(super) const SHORTEST_NS: u64 = 10_000_000;

/// The part of each cycle in which a gang runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// First nanosecond, counted from the beginning of the cycle.
    pub start_ns: u64,
    /// First nanosecond after it: at most the cycle's length, above the start.
    pub end_ns: u64,
}

impl Slot {
    /// Whether it is open at a time of the cycle.
    fn contains(self, phase_ns: u64) -> bool {
        (self.start_ns..self.end_ns).contains(&phase_ns)
    }

    /// How long after this time of a cycle of this length it begins next: 1 to that length.
    fn starts_in(self, phase_ns: u64, cycle_ns: u64) -> u64 {
        match self.start_ns.checked_sub(phase_ns) {
            None | Some(0) => cycle_ns + self.start_ns - phase_ns,
            Some(wait) => wait,
        }
    }
}

/// The slots of the gangs of one GPU. Two gangs of one GPU have slots that do not overlap; clients of one gang have the same slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slots {
    slots: BTreeMap<ClientId, Slot>,
    critical: BTreeSet<ClientId>,
    cycle_ns: u64,
}

impl Default for Slots {
    fn default() -> Self {
        Self { slots: BTreeMap::new(), critical: BTreeSet::new(), cycle_ns: CYCLE_NS }
    }
}

impl FromIterator<(ClientId, Slot)> for Slots {
    /// Slots of the shortest cycles.
    fn from_iter<I: IntoIterator<Item = (ClientId, Slot)>>(slots: I) -> Self {
        Self { slots: slots.into_iter().collect(), ..Self::default() }
    }
}

impl Slots {
    /// Adds the latency-critical clients that are in gangs. They have no slots.
    #[must_use]
    pub fn with_critical(self, critical: BTreeSet<ClientId>) -> Self {
        Self { critical, ..self }
    }

    /// The same slots in cycles of this length.
    #[must_use]
    pub fn in_cycles_of(self, cycle_ns: u64) -> Self {
        Self { cycle_ns: cycle_ns.max(1), ..self }
    }

    /// Length of a cycle.
    #[must_use]
    pub fn cycle_ns(&self) -> u64 {
        self.cycle_ns
    }

    /// Whether a client is a latency-critical one in a gang.
    #[must_use]
    pub fn is_critical(&self, client: ClientId) -> bool {
        self.critical.contains(&client)
    }

    /// Whether no client of this GPU has a slot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether a client has a slot.
    #[must_use]
    pub fn contains(&self, client: ClientId) -> bool {
        self.slots.contains_key(&client)
    }

    /// When the slot of a client that is open at `now` ends.
    #[must_use]
    pub fn open_until(&self, client: ClientId, now: u64) -> Option<u64> {
        let phase = now % self.cycle_ns;
        let slot = self.slots.get(&client).filter(|slot| slot.contains(phase))?;
        Some(now.saturating_add(slot.end_ns - phase))
    }

    /// The clients that have slots.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.slots.keys().copied()
    }

    /// The slot of a client.
    #[must_use]
    pub fn of(&self, client: ClientId) -> Option<Slot> {
        self.slots.get(&client).copied()
    }

    /// When the next slot of a client begins.
    #[must_use]
    pub fn starts_at(&self, client: ClientId, now: u64) -> Option<u64> {
        let phase = now % self.cycle_ns;
        self.slots.get(&client).map(|slot| now.saturating_add(slot.starts_in(phase, self.cycle_ns)))
    }

    /// When the next slot of a client other than this one begins.
    #[must_use]
    pub fn next_start(&self, except: ClientId, now: u64) -> Option<u64> {
        let phase = now % self.cycle_ns;
        let others = self.slots.iter().filter(|(client, _)| **client != except);
        others
            .map(|(_, slot)| slot.starts_in(phase, self.cycle_ns))
            .min()
            .map(|wait| now.saturating_add(wait))
    }

    /// Which of these gangs uses time that belongs to none of them: in turns by cycle, in the order of their slots, so that the managers
    /// of GPUs on which the same gangs wait choose the same one.
    pub fn stand_in(&self, gangs: impl Iterator<Item = ClientId>, now: u64) -> Option<ClientId> {
        let mut gangs: Vec<(Slot, ClientId)> =
            gangs.filter_map(|client| Some((*self.slots.get(&client)?, client))).collect();
        gangs.sort_unstable();
        let turn = usize::try_from(now / self.cycle_ns).unwrap_or(0).checked_rem(gangs.len())?;
        gangs.get(turn).map(|(_, client)| *client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn slots(of: &[(u64, u64, u64)]) -> Slots {
        let slot = |(client, start, end): &(u64, u64, u64)| {
            (ClientId(*client), Slot { start_ns: start * MS, end_ns: end * MS })
        };
        of.iter().map(slot).collect()
    }

    #[test]
    fn slots_open_and_end_in_every_cycle() {
        let slots = slots(&[(1, 0, 60), (2, 60, 200)]);
        for cycle in [0, 1, 7] {
            let at = |ms: u64| cycle * CYCLE_NS + ms * MS;
            assert_eq!(slots.open_until(ClientId(1), at(59)), Some(at(60)));
            assert_eq!(slots.starts_at(ClientId(1), at(59)), Some(at(200)));
            assert_eq!(slots.open_until(ClientId(1), at(10)), Some(at(60)));
            assert_eq!(slots.open_until(ClientId(1), at(60)), None);
            assert_eq!(slots.next_start(ClientId(1), at(10)), Some(at(60)));
            assert_eq!(slots.next_start(ClientId(2), at(60)), Some(at(200)));
            assert_eq!(slots.next_start(ClientId(9), at(60)), Some(at(200)));
        }
    }

    #[test]
    fn gangs_stand_in_for_others_in_turns() {
        let slots = slots(&[(5, 0, 60), (3, 60, 120), (4, 120, 200)]);
        let turn = |cycle: u64| slots.stand_in([3, 5].map(ClientId).into_iter(), cycle * CYCLE_NS + 130 * MS);
        assert_eq!([0, 1, 2].map(turn), [5, 3, 5].map(|client| Some(ClientId(client))));
        assert_eq!(slots.stand_in([ClientId(8)].into_iter(), 0), None);
    }
}
