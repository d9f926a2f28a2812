//! Counters of this process, by outcome. Relaxed: they are read for reports, never for decisions.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::outcome::Bypass;

/// Number of bypass counters, as the report page has them.
pub const BYPASS_SLOTS: usize = 32;

/// Counters since the start of the process.
#[derive(Debug)]
pub struct Counters {
    bypassed: [AtomicU64; BYPASS_SLOTS],
    /// Allocations refused at the memory limit.
    pub refused: AtomicU64,
    /// Grants received.
    pub grants: AtomicU64,
    /// Panics caught at the exported functions.
    pub panics: AtomicU64,
}

impl Counters {
    /// All zero.
    pub const fn new() -> Self {
        Self {
            bypassed: [const { AtomicU64::new(0) }; BYPASS_SLOTS],
            refused: AtomicU64::new(0),
            grants: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        }
    }

    /// Counts one bypassed call.
    pub fn bypass(&self, reason: Bypass) {
        if let Some(counter) = self.bypassed.get(reason.index()) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// How many calls were bypassed for `reason`.
    pub fn bypassed(&self, reason: Bypass) -> u64 {
        self.bypassed.get(reason.index()).map_or(0, |counter| counter.load(Relaxed))
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}
