//! Time as placement counts it.

use std::time::Duration;

use tokio::time::Instant;

/// Nanoseconds since this process began to count. It stands still while tokio's time is paused in a test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.start.elapsed())
    }

    /// The time after this.
    pub(crate) fn in_ns(&self, after: Duration) -> u64 {
        self.now_ns().saturating_add(nanoseconds(after))
    }
}

/// 584 years fit.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
