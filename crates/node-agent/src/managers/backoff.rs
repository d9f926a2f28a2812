//! How long to wait before something that failed is tried again: longer each time, and short again once it went well.

use std::time::Duration;

use kube::runtime::utils::Backoff as KubeBackoff;

/// Doubling delays up to a maximum.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first }
    }

    /// The delay before the next attempt.
    pub(crate) fn delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.most);
        delay
    }

    /// It went well: the next failure starts with the shortest delay.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.delay())
    }
}

impl KubeBackoff for Backoff {
    fn reset(&mut self) {
        Self::reset(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_most_and_start_anew_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let delays: Vec<u128> = (0..4).map(|_| backoff.delay().as_millis()).collect();
        assert_eq!(delays, [100, 200, 350, 350]);
        backoff.reset();
        assert_eq!(backoff.delay().as_millis(), 100);
    }
}
