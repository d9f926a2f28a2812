//! A sum over a sliding window of time, in constant memory.
//!
//! The window is divided into slots of a hundredth of its length. An amount is spread evenly over the span in which it
//! was used. The oldest slot counts in proportion to its part inside the window, so the sum does not jump when a slot
//! leaves.

/// Slots of one window. One more slot holds the amounts that are leaving it.
const SLOTS: u64 = 100;

/// Amounts (nanoseconds of GPU time, of activity) over the last `window_ns`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlidingSum {
    slot_ns: u64,
    slots: Vec<u64>,
    /// Absolute number of the newest slot with an amount.
    newest: u64,
}

impl SlidingSum {
    /// An empty window of `window_ns` (at least 100 ns, shorter ones are lengthened).
    #[must_use]
    pub fn new(window_ns: u64) -> Self {
        let slots = usize::try_from(SLOTS + 1).unwrap_or(usize::MAX);
        Self { slot_ns: (window_ns / SLOTS).max(1), slots: vec![0; slots], newest: 0 }
    }

    /// Adds `amount`, used evenly between `from` and `to` in nanoseconds. Usually `to` is at or after every earlier
    /// `to`. An amount in the past is added to its slots, and one older than the window is dropped.
    pub fn add(&mut self, from: u64, to: u64, amount: u64) {
        let from = from.min(to);
        let (last, ring) = (to / self.slot_ns, self.slots.len() as u64);
        self.roll_to(last);
        let oldest = self.newest.saturating_sub(ring - 1);
        let span = to - from;
        if span == 0 {
            if last >= oldest {
                self.put(last, amount);
            }
            return;
        }
        // Cumulative shares, so that the parts add up to the amount exactly.
        let up_to = |at: u64| u128::from(amount) * u128::from(at.clamp(from, to) - from) / u128::from(span);
        for slot in (from / self.slot_ns).max(oldest)..=last {
            let start = slot.saturating_mul(self.slot_ns);
            let part = up_to(start.saturating_add(self.slot_ns)) - up_to(start);
            self.put(slot, u64::try_from(part).unwrap_or(u64::MAX));
        }
    }

    /// The sum of the amounts in the window that ends at `now`.
    #[must_use]
    pub fn total(&self, now: u64) -> u64 {
        let current = now / self.slot_ns;
        let inside =
            (0..SLOTS).filter_map(|back| current.checked_sub(back)).map(|slot| self.get(slot)).sum::<u64>();
        let leaving = current.checked_sub(SLOTS).map_or(0, |slot| {
            let left = self.slot_ns - now % self.slot_ns;
            u64::try_from(u128::from(self.get(slot)) * u128::from(left) / u128::from(self.slot_ns))
                .unwrap_or(0)
        });
        inside.saturating_add(leaving)
    }

    fn roll_to(&mut self, slot: u64) {
        if slot <= self.newest {
            return;
        }
        let steps = (slot - self.newest).min(self.slots.len() as u64);
        for gone in (slot + 1 - steps)..=slot {
            let index = self.index(gone);
            self.slots[index] = 0;
        }
        self.newest = slot;
    }

    fn put(&mut self, slot: u64, amount: u64) {
        let index = self.index(slot);
        self.slots[index] = self.slots[index].saturating_add(amount);
    }

    fn get(&self, slot: u64) -> u64 {
        let held = slot <= self.newest && self.newest - slot < self.slots.len() as u64;
        if held { self.slots[self.index(slot)] } else { 0 }
    }

    fn index(&self, slot: u64) -> usize {
        usize::try_from(slot % self.slots.len() as u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
