//! The memory account of one device: reserve before the driver allocates, release after it freed.
//!
//! The manager's answer is exact across the processes of a client because the reservation is made before the driver is
//! called. While the manager is away, its last limit holds for this process alone. The next connection reports what is in
//! use.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use crate::lock;
use crate::outcome::Outcome;
use crate::platform::{LinkError, MemoryLink};

/// No limit is known.
const UNKNOWN: u64 = u64::MAX;

/// The memory account of this process on one device.
#[derive(Debug)]
pub struct MemoryAccount<L> {
    /// The connection to the manager.
    pub link: L,
    fail_closed: bool,
    /// Bytes that this process holds or is about to allocate, as the next manager would be told.
    charged: AtomicU64,
    /// The manager may count bytes that this process does not hold: it was not told of a release, or its answer to a reservation was lost.
    is_overcounted: AtomicBool,
    limit: AtomicU64,
    /// The manager has answered a reservation over this connection, so its usage includes this process's context: it answers the first
    /// reservation of a process only after a reading of the GPU's memory that shows the context.
    includes_context: AtomicBool,
    /// Makes (connection, charge) change together, so that an attachment never reports a stale sum.
    order: Mutex<()>,
}

impl<L: MemoryLink> MemoryAccount<L> {
    /// An empty account. With `fail_closed` allocations are refused until a manager has stated a limit.
    pub fn new(link: L, fail_closed: bool) -> Self {
        Self {
            link,
            fail_closed,
            charged: AtomicU64::new(0),
            is_overcounted: AtomicBool::new(false),
            limit: AtomicU64::new(UNKNOWN),
            includes_context: AtomicBool::new(false),
            order: Mutex::new(()),
        }
    }

    /// Reserves `bytes` before the driver is called. After `Governed` the caller must allocate, or [`release`](Self::release).
    ///
    /// `Bypassed` is charged as well: the next manager is told of it, and freeing it is the same.
    pub fn reserve(&self, bytes: u64) -> Outcome<()> {
        let _order = lock(&self.order);
        let ask = || self.ensure_connected().and_then(|()| self.link.reserve(bytes));
        let answer = ask().or_else(|error| match error {
            // Another attempt would make the program wait once more, or find no room again.
            LinkError::Silent | LinkError::NoRoom => Err(error),
            // A connection that breaks during the request may lead to a manager that was replaced: reserve once more.
            LinkError::Gone | LinkError::NotAdmitted { .. } => ask(),
        });
        self.includes_context.fetch_or(answer.is_ok(), SeqCst);
        let outcome = match answer {
            Ok(true) => Outcome::Governed(()),
            Ok(false) => Outcome::Refused,
            Err(error) => {
                self.is_overcounted.store(true, SeqCst);
                self.without_manager(bytes, error)
            }
        };
        if !matches!(outcome, Outcome::Refused) {
            self.charged.fetch_add(bytes, SeqCst);
        }
        outcome
    }

    /// Releases bytes that were freed, or reserved for an allocation that failed.
    pub fn release(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let _order = lock(&self.order);
        let charged = self.charged.load(SeqCst);
        self.charged.store(charged.saturating_sub(bytes), SeqCst);
        // If this fails, the next connection reports the sum, which no longer includes these bytes.
        if !self.link.is_alive() || self.link.release(bytes).is_err() {
            self.is_overcounted.store(true, SeqCst);
        }
    }

    /// (used, limit) of the client, over all its processes, in bytes. While the manager is away, the last limit and what this process
    /// holds of it; `None` if no limit is known.
    pub fn usage(&self) -> Option<(u64, u64)> {
        let _order = lock(&self.order);
        match self.ensure_connected().and_then(|()| self.link.usage()) {
            Ok((used, limit)) => {
                self.limit.store(limit, SeqCst);
                Some((used, limit))
            }
            Err(_) => {
                let limit = self.limit.load(SeqCst);
                (limit != UNKNOWN).then(|| (self.charged.load(SeqCst), limit))
            }
        }
    }

    /// As [`Self::usage`], for a process with a context on the device: the result includes the context. The first call waits for a reading
    /// of the GPU's memory, as a first reservation does; later calls do not.
    pub fn usage_with_context(&self) -> Option<(u64, u64)> {
        let order = lock(&self.order);
        if self.ensure_connected().is_ok() && !self.includes_context.load(SeqCst) {
            self.includes_context.fetch_or(self.link.reserve(0).is_ok(), SeqCst);
        }
        drop(order);
        self.usage()
    }

    /// Whether the process that NVML reports under this number is of the same client; `None` if the manager does not answer.
    pub fn owns_process(&self, pid: u32) -> Option<bool> {
        let _order = lock(&self.order);
        self.ensure_connected().and_then(|()| self.link.owns_process(pid)).ok()
    }

    /// Bytes charged to this process.
    pub fn charged(&self) -> u64 {
        self.charged.load(SeqCst)
    }

    /// Connects again if the manager was lost and is to be told what this process holds.
    pub fn reattach_if_lost(&self) {
        let is_to_be_told = self.charged() != 0 || self.is_overcounted.load(SeqCst);
        if is_to_be_told && !self.link.is_alive() {
            let _order = lock(&self.order);
            let _attached = self.ensure_connected();
        }
    }

    fn ensure_connected(&self) -> Result<(), LinkError> {
        if self.link.is_alive() {
            return Ok(());
        }
        self.includes_context.store(false, SeqCst);
        self.link.connect(self.charged.load(SeqCst))?;
        self.is_overcounted.store(false, SeqCst);
        let (_, limit) = self.link.usage()?;
        self.limit.store(limit, SeqCst);
        Ok(())
    }

    fn without_manager(&self, bytes: u64, error: LinkError) -> Outcome<()> {
        let limit = self.limit.load(SeqCst);
        let fits = self.charged.load(SeqCst).checked_add(bytes).is_some_and(|total| total <= limit);
        if !fits || error == LinkError::NoRoom || (limit == UNKNOWN && self.fail_closed) {
            Outcome::Refused
        } else {
            Outcome::Bypassed(error.bypass())
        }
    }
}

/// NVML's answer to the program: (total, free, used) in bytes, where `total = free + used`. `None` if the limit is not below the size of the
/// GPU: then the answer stays the driver's.
pub fn visible_use(used: u64, limit: u64, physical_total: u64) -> Option<(u64, u64, u64)> {
    // A limit may have been lowered below what is in use. Tools subtract without a check.
    let used = used.min(limit);
    (limit < physical_total).then(|| (limit, limit - used, used))
}

/// The answer of `cuMemGetInfo` to the program: (free, total) in bytes.
///
/// The total is the limit. The free memory is never more than the GPU has.
pub fn visible_memory(used: u64, limit: u64, physical_free: u64, physical_total: u64) -> (u64, u64) {
    let total = limit.min(physical_total);
    (total.saturating_sub(used).min(physical_free), total)
}

#[cfg(test)]
mod tests;
