//! How much a saved switch counts for a client with a latency goal, by how many of its requests take longer than the goal.

/// One request in so many may take longer than the goal.
const REQUESTS_PER_MISS: u32 = 100;

/// How far the missed requests may exceed the allowed ones before the weight doubles: four in a row.
const STEP: u32 = 400;

/// How much a saved switch counts without a goal, and while the goal is met. With 1, hold kernels that bridged the gaps of a measured service
/// would not stay: its p99 was 2.4 × alone instead of 1.5, and best effort had no more.
const USUAL_WEIGHT: u32 = 2;

/// How often the weight doubles: to 4. With 8, hold kernels would stay for random gaps, at which no other request waits.
const DOUBLINGS: u32 = 1;

/// The integral of the error: missed requests, less those allowed, in hundredths. It is bounded, so that the weight falls as soon as the
/// goal is met again, however long it was missed.
const MAX_EXCESS: u32 = (DOUBLINGS + 1) * STEP - 1;

/// The controller of one client's latency goal.
#[derive(Debug, Clone, Copy, Default)]
pub struct SloFeedback {
    excess: u32,
}

impl SloFeedback {
    /// Records a request and whether it took longer than the goal.
    pub fn learn(&mut self, missed: bool) {
        self.excess = if missed {
            (self.excess + REQUESTS_PER_MISS - 1).min(MAX_EXCESS)
        } else {
            self.excess.saturating_sub(1)
        };
    }

    /// How often a saved nanosecond counts.
    pub fn weight(self) -> u32 {
        USUAL_WEIGHT << (self.excess / STEP)
    }
}

#[cfg(test)]
mod tests;
