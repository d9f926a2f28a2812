//! How long to wait before kubelet is tried again.

use std::time::Duration;

/// Kubelet makes its socket a moment before it listens on it: the first attempts come quickly.
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(10);
/// A registration that lasted so long was no failure.
const LASTED: Duration = Duration::from_secs(10);

/// Waits that double.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) const fn new() -> Self {
        Self { next: FIRST }
    }

    /// The wait after one more failure.
    pub(super) fn after_failure(&mut self) -> Duration {
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(LONGEST);
        wait
    }

    /// The wait after kubelet has let go of us, that long after it took us.
    pub(super) fn after_loss(&mut self, lasted: Duration) -> Duration {
        if lasted >= LASTED {
            *self = Self::new();
        }
        self.after_failure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_start_over_after_a_good_time() {
        let mut backoff = Backoff::new();
        let waits: Vec<_> = (0..11).map(|_| backoff.after_failure().as_millis()).collect();
        assert_eq!(waits, [20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10_000, 10_000]);
        assert_eq!(backoff.after_loss(LASTED - Duration::from_millis(1)), LONGEST);
        assert_eq!(backoff.after_loss(LASTED), FIRST);
    }
}
