//! Delays between attempts to open a watch of the API server, in the form that the `kube` crate takes them.

use std::time::Duration;

use kube::runtime::utils::Backoff as KubeBackoff;
use sluice_rate_limiter::Backoff;

/// A [`Backoff`] for `WatchStreamExt::backoff`, which resets it after each successful event.
#[derive(Debug)]
pub(crate) struct WatchBackoff(Backoff);

impl WatchBackoff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self(Backoff::new(first, longest))
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.0.next_delay())
    }
}

impl KubeBackoff for WatchBackoff {
    fn reset(&mut self) {
        self.0.succeeded();
    }
}
