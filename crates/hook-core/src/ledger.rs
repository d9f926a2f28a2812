//! What this process has allocated: which pointer, how many bytes, on which device, and how it is backed.

use std::collections::BTreeMap;

/// The name spaces that handles come from; the same number may exist in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    /// Device addresses.
    Pointer,
    /// `CUarray`.
    Array,
    /// `CUmipmappedArray`.
    Mipmap,
    /// Handles of physical memory (`cuMemCreate`).
    Physical,
}

/// How an allocation gets its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// The driver allocated it, as the program asked.
    Driver {
        /// By which kind of call.
        kind: DriverKind,
    },
}

/// The driver's ways to allocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverKind {
    /// `cuMemAlloc`, `cuMemAllocPitch`: belongs to a context.
    Linear,
    /// `cuMemAllocManaged`: belongs to a context.
    Managed,
    /// `cuMemAllocAsync`, `cuMemAllocFromPoolAsync`: belongs to a pool of the device.
    StreamOrdered,
    /// Arrays and mipmapped arrays: belong to a context.
    Array,
    /// `cuMemCreate`: belongs to whoever holds its handle.
    Physical,
}

/// One allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Bytes charged.
    pub bytes: u64,
    /// Ordinal of the device charged, whichever device is current when it is freed.
    pub device: u32,
    /// The context it was made in; 0 if it does not belong to one.
    pub context: u64,
    /// How it is backed.
    pub backing: Backing,
}

#[derive(Debug)]
struct Slot {
    allocation: Allocation,
    references: u32,
}

/// All allocations of the process.
#[derive(Debug, Default)]
pub struct Ledger {
    slots: BTreeMap<(Space, u64), Slot>,
}

impl Ledger {
    /// An empty ledger.
    pub const fn new() -> Self {
        Self { slots: BTreeMap::new() }
    }

    /// Enters an allocation with one reference.
    ///
    /// Returns what stood under the same handle: the driver freed it without a call we saw, so its charge is to be
    /// released.
    pub fn insert(&mut self, space: Space, handle: u64, allocation: Allocation) -> Option<Allocation> {
        let slot = Slot { allocation, references: 1 };
        self.slots.insert((space, handle), slot).map(|old| old.allocation)
    }

    /// Takes one more reference to a handle (`cuMemRetainAllocationHandle`); unknown handles are ignored.
    pub fn retain(&mut self, space: Space, handle: u64) {
        if let Some(slot) = self.slots.get_mut(&(space, handle)) {
            slot.references = slot.references.saturating_add(1);
        }
    }

    /// Drops one reference. Returns the allocation if it was the last: its charge is to be released.
    pub fn release(&mut self, space: Space, handle: u64) -> Option<Allocation> {
        let slot = self.slots.get_mut(&(space, handle))?;
        slot.references -= 1;
        if slot.references > 0 {
            return None;
        }
        self.slots.remove(&(space, handle)).map(|slot| slot.allocation)
    }

    /// Puts back what [`release`](Self::release) took, after the driver refused to free it.
    pub fn restore(&mut self, space: Space, handle: u64, allocation: Option<Allocation>) {
        match allocation {
            Some(allocation) => drop(self.insert(space, handle, allocation)),
            None => self.retain(space, handle),
        }
    }

    /// Removes what a destroyed context took with it; returns the bytes of each device concerned.
    pub fn remove_context(&mut self, context: u64) -> BTreeMap<u32, u64> {
        let mut freed = BTreeMap::new();
        self.slots.retain(|_, slot| {
            let gone = context != 0 && slot.allocation.context == context;
            if gone {
                *freed.entry(slot.allocation.device).or_default() += slot.allocation.bytes;
            }
            !gone
        });
        freed
    }

    /// Bytes of all allocations on a device.
    pub fn bytes_on(&self, device: u32) -> u64 {
        self.slots
            .values()
            .filter(|slot| slot.allocation.device == device)
            .map(|slot| slot.allocation.bytes)
            .sum()
    }

    /// What stands under a handle.
    pub fn get(&self, space: Space, handle: u64) -> Option<&Allocation> {
        self.slots.get(&(space, handle)).map(|slot| &slot.allocation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn allocation(bytes: u64, device: u32, context: u64) -> Allocation {
        Allocation { bytes, device, context, backing: Backing::Driver { kind: DriverKind::Linear } }
    }

    #[test]
    fn a_handle_with_two_references_is_charged_until_both_are_gone() {
        let mut ledger = Ledger::new();
        ledger.insert(Space::Physical, 5, allocation(100, 0, 0));
        ledger.retain(Space::Physical, 5);
        assert_eq!(ledger.release(Space::Physical, 5), None);
        assert_eq!(ledger.bytes_on(0), 100);
        assert_eq!(ledger.release(Space::Physical, 5).map(|a| a.bytes), Some(100));
        assert_eq!(ledger.bytes_on(0), 0);
    }

    #[test]
    fn an_array_and_a_pointer_of_the_same_number_are_two_things() {
        let mut ledger = Ledger::new();
        ledger.insert(Space::Pointer, 5, allocation(1, 0, 0));
        ledger.insert(Space::Array, 5, allocation(10, 0, 0));
        assert_eq!(ledger.release(Space::Pointer, 5).map(|a| a.bytes), Some(1));
        assert_eq!(ledger.bytes_on(0), 10);
    }

    #[test]
    fn a_free_the_driver_refused_leaves_the_charge() {
        let mut ledger = Ledger::new();
        ledger.insert(Space::Pointer, 5, allocation(100, 0, 0));
        let taken = ledger.release(Space::Pointer, 5);
        ledger.restore(Space::Pointer, 5, taken);
        assert_eq!(ledger.bytes_on(0), 100);
    }

    #[test]
    fn a_destroyed_context_takes_only_its_own_allocations() {
        let mut ledger = Ledger::new();
        ledger.insert(Space::Pointer, 1, allocation(1, 0, 7));
        ledger.insert(Space::Array, 2, allocation(10, 0, 7));
        ledger.insert(Space::Pointer, 3, allocation(100, 0, 8));
        ledger.insert(Space::Physical, 4, allocation(1000, 0, 0));
        assert_eq!(ledger.remove_context(7), BTreeMap::from([(0, 11)]));
        assert_eq!(ledger.remove_context(0), BTreeMap::new());
        assert_eq!(ledger.bytes_on(0), 1100);
    }

    proptest! {
        #[test]
        fn the_ledger_holds_what_was_inserted_and_not_released(
            steps in proptest::collection::vec((0u8..4, 0u64..6, 1u64..1000, 0u32..2), 0..200),
        ) {
            let mut ledger = Ledger::new();
            // The same rules over a plain list of (handle, bytes, device, references).
            let mut naive: Vec<(u64, u64, u32, u32)> = Vec::new();
            for (what, handle, bytes, device) in steps {
                let at = naive.iter().position(|entry| entry.0 == handle);
                match what {
                    0 | 1 => {
                        let old = ledger.insert(Space::Pointer, handle, allocation(bytes, device, 0));
                        prop_assert_eq!(old.map(|a| a.bytes), at.map(|at| naive.remove(at).1));
                        naive.push((handle, bytes, device, 1));
                    }
                    2 => {
                        let expected = at.and_then(|at| {
                            naive[at].3 -= 1;
                            (naive[at].3 == 0).then(|| naive.remove(at).1)
                        });
                        prop_assert_eq!(ledger.release(Space::Pointer, handle).map(|a| a.bytes), expected);
                    }
                    _ => {
                        ledger.retain(Space::Pointer, handle);
                        if let Some(at) = at { naive[at].3 += 1; }
                    }
                }
                for device in 0..2 {
                    let expected: u64 = naive.iter().filter(|e| e.2 == device).map(|e| e.1).sum();
                    prop_assert_eq!(ledger.bytes_on(device), expected);
                }
            }
        }
    }
}
