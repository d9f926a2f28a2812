//! The outcome of a call through the hook (governed, bypassed for a named reason, or refused), and the counters of outcomes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use strum::VariantArray;

/// The outcome of one call. Every call of a governed function is counted under exactly one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The rules were applied and the call went on.
    Governed(T),
    /// The call went to the driver as if the hook were not there.
    Bypassed(Bypass),
    /// The call never reached the driver: the allocation does not fit into the memory limit.
    Refused,
}

/// Why a call bypassed the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Bypass {
    /// The kill switch is on.
    Disabled,
    /// No manager is configured for this GPU.
    NotManaged,
    /// The manager does not answer, and the client is configured to go on without it.
    ManagerGone,
    /// The manager answered and does not admit this client.
    NotAdmitted,
    /// The stream is being captured: the call records a graph node and runs nothing.
    Capture,
    /// The calling thread has no current context, or the driver is not initialised: the driver returns the error.
    NoContext,
    /// The call came from inside another governed call.
    Nested,
    /// The process is a fork of one that had used the driver.
    Forked,
    /// The end of the last grant waits for GPU work that may itself wait for this launch.
    DrainStalled,
    /// The driver returned a function whose signature the table does not contain.
    UnknownAbi,
    /// The hook failed internally.
    InternalError,
}

impl Bypass {
    /// All reasons, in the order of their counters.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The reason as counters and metrics name it.
    pub fn label(self) -> &'static str {
        self.into()
    }

    /// Index of the reason's counter, below 32.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// Counters of this process since its start. Relaxed: they are read for reports, never for decisions.
#[derive(Debug)]
pub struct Counters {
    bypassed: [AtomicU64; Bypass::ALL.len()],
    /// Allocations refused at the memory limit.
    pub refused: AtomicU64,
    /// Grants received.
    pub grants: AtomicU64,
    /// Panics caught in calls and on the hook's threads.
    pub panics: AtomicU64,
}

impl Counters {
    /// All zero.
    pub const fn zero() -> Self {
        Self {
            bypassed: [const { AtomicU64::new(0) }; Bypass::ALL.len()],
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

#[cfg(test)]
mod tests;
