//! The clock of placement.

use std::time::Duration;

use tokio::time::Instant;

/// Nanoseconds since the start of this process. It follows tokio's clock, so a test can pause it.
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

    /// The time `after` from now.
    pub(crate) fn in_ns(&self, after: Duration) -> u64 {
        self.now_ns().saturating_add(nanoseconds(after))
    }
}

/// u64 nanoseconds last 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
