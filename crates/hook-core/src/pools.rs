//! The stream-ordered memory pools of this process, and the memory that each device keeps for graphs.
//!
//! A pool is charged by the bytes that the driver has reserved for it. They include memory that the program has freed: the pool keeps it
//! until the GPU has reached the free, and below the release threshold until the pool is trimmed. Memory that a stream uses again needs no
//! further charge.

use std::collections::BTreeMap;

/// What is charged by its reserved size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolId {
    /// The driver's handle of a memory pool.
    Pool(u64),
    /// Memory that a device, by its ordinal, keeps for graphs.
    Graphs(u32),
}

/// Where a pool has its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolLocation {
    /// In the memory of a device, by its ordinal.
    Device(u32),
    /// In host memory, which is not charged.
    Host,
}

/// The difference between a pool's charge and its reserved size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction {
    /// These bytes are to be charged as well.
    Charge(u64),
    /// These bytes are charged too much.
    Release(u64),
}

#[derive(Debug)]
struct Pool {
    location: PoolLocation,
    charged: u64,
    /// Bytes charged for allocations that are being made.
    in_flight: u64,
    /// Counts the corrections of the charge.
    corrections: u64,
    /// Queries of its size in progress.
    queries: u32,
    /// The manager has refused the last correction: the pool has more than its charge.
    is_in_excess: bool,
}

/// A query of a pool's size in progress.
#[derive(Debug)]
#[must_use]
pub struct SizeQuery {
    id: PoolId,
    corrections: u64,
}

/// All pools that this process has used.
#[derive(Debug, Default)]
pub struct PoolTable {
    pools: BTreeMap<PoolId, Pool>,
}

impl PoolTable {
    /// No pool.
    pub const fn new() -> Self {
        Self { pools: BTreeMap::new() }
    }

    /// Records where a pool has its memory. A known pool keeps its charge.
    pub fn add(&mut self, id: PoolId, location: PoolLocation) {
        let pool = self.pools.entry(id).or_insert(Pool {
            location,
            charged: 0,
            in_flight: 0,
            corrections: 0,
            queries: 0,
            is_in_excess: false,
        });
        pool.location = location;
    }

    /// Where a pool has its memory, if it is known.
    pub fn location(&self, id: PoolId) -> Option<PoolLocation> {
        self.pools.get(&id).map(|pool| pool.location)
    }

    /// The pools in the memory of devices, with the device.
    pub fn of_devices(&self) -> Vec<(PoolId, u32)> {
        let of_device = |(id, pool): (&PoolId, &Pool)| match pool.location {
            PoolLocation::Device(device) => Some((*id, device)),
            PoolLocation::Host => None,
        };
        self.pools.iter().filter_map(of_device).collect()
    }

    /// An allocation for which `bytes` are charged begins.
    pub fn begin(&mut self, id: PoolId, bytes: u64) {
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.in_flight += bytes;
        }
    }

    /// An allocation for which [`begin`](Self::begin) was called has failed; the caller releases its bytes.
    pub fn cancel(&mut self, id: PoolId, bytes: u64) {
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.in_flight = pool.in_flight.saturating_sub(bytes);
        }
    }

    /// The driver is about to be asked for the size of a pool, without a lock. `None` if the pool is not known.
    pub fn begin_query(&mut self, id: PoolId) -> Option<SizeQuery> {
        let pool = self.pools.get_mut(&id)?;
        pool.queries += 1;
        Some(SizeQuery { id, corrections: pool.corrections })
    }

    /// The driver has answered. `false` if the charge was corrected meanwhile: then the size may be older than that of the correction.
    pub fn end_query(&mut self, query: SizeQuery) -> bool {
        let Some(pool) = self.pools.get_mut(&query.id) else { return false };
        pool.queries = pool.queries.saturating_sub(1);
        pool.corrections == query.corrections
    }

    /// Whether the driver is being asked for the size of a pool. Until it has answered, the pool must not be destroyed.
    pub fn is_queried(&self, id: PoolId) -> bool {
        self.pools.get(&id).is_some_and(|pool| pool.queries > 0)
    }

    /// An allocation for which `bytes` were charged is made; they stay charged.
    pub fn keep(&mut self, id: PoolId, bytes: u64) {
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.in_flight = pool.in_flight.saturating_sub(bytes);
            pool.charged = pool.charged.saturating_add(bytes);
            pool.corrections += 1;
        }
    }

    /// An allocation for which `bytes` were charged is made, and the pool has `reserved` bytes; with 0 bytes only the latter.
    ///
    /// The charge with the bytes in flight is never less than the reserved size, and never more than both together, if `make` makes the
    /// correction: `false` if the manager refuses it, which this returns. No other thread may correct the charge meanwhile: it would release
    /// bytes that are refused then.
    pub fn settle(
        &mut self,
        id: PoolId,
        bytes: u64,
        reserved: u64,
        make: impl FnOnce(Correction) -> bool,
    ) -> bool {
        let Some(pool) = self.pools.get_mut(&id) else { return make(Correction::Release(bytes)) };
        pool.corrections += 1;
        let before = pool.charged.saturating_add(pool.in_flight);
        pool.in_flight = pool.in_flight.saturating_sub(bytes);
        // Allocations in flight may be part of the reserved size already, or not yet: within these bounds the charge stays as it is, so that
        // nothing is released that one of them needs.
        let now = before.clamp(reserved.max(pool.in_flight), reserved.saturating_add(pool.in_flight));
        let is_made = make(if now > before {
            Correction::Charge(now - before)
        } else {
            Correction::Release(before - now)
        });
        pool.charged = if is_made { now } else { before } - pool.in_flight;
        pool.is_in_excess = !is_made;
        is_made
    }

    /// Whether the pool has more than its charge, because the manager has refused the last correction.
    pub fn is_in_excess(&self, id: PoolId) -> bool {
        self.pools.get(&id).is_some_and(|pool| pool.is_in_excess)
    }

    /// Removes a pool; returns its device and its charge.
    pub fn remove(&mut self, id: PoolId) -> Option<(u32, u64)> {
        let pool = self.pools.remove(&id)?;
        match pool.location {
            PoolLocation::Device(device) => Some((device, pool.charged)),
            PoolLocation::Host => None,
        }
    }

    /// Puts back what [`remove`](Self::remove) took.
    pub fn restore(&mut self, id: PoolId, device: u32, charged: u64) {
        self.add(id, PoolLocation::Device(device));
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.charged += charged;
        }
    }
}

#[cfg(test)]
mod tests;
