//! The allocations of this process: handle, bytes charged, device and context.

use std::collections::BTreeMap;

/// The kinds of handles. The same number may exist in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandleSpace {
    /// Device addresses.
    Pointer,
    /// `CUarray`.
    Array,
    /// `CUmipmappedArray`.
    Mipmap,
    /// Handles of physical memory (`cuMemCreate`).
    Physical,
    /// Contexts: what the program has added to the stacks of threads.
    Stack,
    /// Contexts: what the program has added to the heap of kernels.
    Heap,
}

/// One allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Bytes charged.
    pub bytes: u64,
    /// Ordinal of the device charged. Another device may be current when it is freed.
    pub device: u32,
    /// The context in which it was made; 0 if it does not belong to one.
    pub context: u64,
    /// The pool that is charged for it, by the driver's handle; 0 if it is charged itself.
    pub pool: u64,
}

#[derive(Debug)]
struct Slot {
    allocation: Allocation,
    references: u32,
}

/// All allocations of the process.
#[derive(Debug, Default)]
pub struct AllocationTable {
    slots: BTreeMap<(HandleSpace, u64), Slot>,
}

impl AllocationTable {
    /// An empty table.
    pub const fn new() -> Self {
        Self { slots: BTreeMap::new() }
    }

    /// Adds an allocation with one reference.
    ///
    /// Returns the previous allocation of the same handle: the driver freed it without a call that the hook saw, so the caller releases
    /// its charge.
    pub fn insert(&mut self, space: HandleSpace, handle: u64, allocation: Allocation) -> Option<Allocation> {
        let slot = Slot { allocation, references: 1 };
        self.slots.insert((space, handle), slot).map(|old| old.allocation)
    }

    /// Adds a reference to a handle (`cuMemRetainAllocationHandle`). Unknown handles are ignored.
    pub fn retain(&mut self, space: HandleSpace, handle: u64) {
        if let Some(slot) = self.slots.get_mut(&(space, handle)) {
            slot.references = slot.references.saturating_add(1);
        }
    }

    /// Drops one reference. Returns the allocation if it was the last: the caller releases its charge.
    pub fn release(&mut self, space: HandleSpace, handle: u64) -> Option<Allocation> {
        let slot = self.slots.get_mut(&(space, handle))?;
        slot.references -= 1;
        if slot.references > 0 {
            return None;
        }
        self.slots.remove(&(space, handle)).map(|slot| slot.allocation)
    }

    /// Restores what [`release`](Self::release) took, after the driver refused to free it.
    pub fn restore(&mut self, space: HandleSpace, handle: u64, allocation: Option<Allocation>) {
        match allocation {
            Some(allocation) => drop(self.insert(space, handle, allocation)),
            None => self.retain(space, handle),
        }
    }

    /// Removes the allocations of a destroyed context; returns the bytes of each device.
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

    /// From here on the allocations of a pool are charged by themselves, together by at most the `charged` bytes of the pool: the manager
    /// may have refused the rest. Returns their charge.
    pub fn detach_pool(&mut self, pool: u64, charged: u64) -> u64 {
        let of_pool = self.slots.values_mut().map(|slot| &mut slot.allocation);
        let detached = of_pool.filter(|allocation| allocation.pool == pool);
        detached.fold(0, |sum, allocation| {
            allocation.pool = 0;
            allocation.bytes = allocation.bytes.min(charged - sum);
            sum + allocation.bytes
        })
    }

    /// The allocation of a handle.
    pub fn get(&self, space: HandleSpace, handle: u64) -> Option<&Allocation> {
        self.slots.get(&(space, handle)).map(|slot| &slot.allocation)
    }
}

#[cfg(test)]
mod tests;
