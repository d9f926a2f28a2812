//! The daemon's clock: real, or one that stands still until a request moves it.

use sluice_sys::clock::monotonic_ns;
use std::time::Duration;

/// The clock that the timeline follows. The daemon reads the time here only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// CLOCK_MONOTONIC.
    Real,
    /// Stands still until a client of the daemon advances it.
    Stepped {
        /// The present, in nanoseconds.
        now: u64,
    },
}

impl Clock {
    /// A stepped clock. Its first time is not 0, which an event without a time has, and does not depend on the machine.
    pub const STEPPED: Self = Self::Stepped { now: 1_000_000_000 };

    /// The present, in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        match self {
            Self::Real => monotonic_ns(),
            Self::Stepped { now } => *now,
        }
    }

    /// The time of a command that a client stamped with CLOCK_MONOTONIC and that the daemon has just taken from the ring.
    pub(super) fn submitted_at(&self, stamp: u64) -> u64 {
        match self {
            Self::Real => stamp,
            // On a clock that stands still, no time passes in the ring.
            Self::Stepped { now } => *now,
        }
    }

    /// How long to sleep for an event at `at`; `None` if only a request can bring that time.
    pub(super) fn until(&self, at: u64) -> Option<Duration> {
        let left = Duration::from_nanos(at.saturating_sub(self.now()));
        (*self == Self::Real || left.is_zero()).then_some(left)
    }
}
