//! What a client was charged: figures for metrics, which decide nothing.

use crate::share::Share;
use crate::window::SlidingSum;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct UsageMeter {
    /// GPU time charged within the window.
    window: SlidingSum,
    window_ns: u64,
    added: u64,
    pub(super) charged_ns: u64,
    pub(super) held_ns: u64,
    pub(super) delayed_ns: u64,
}

impl UsageMeter {
    pub(super) fn new(window_ns: u64, now: u64) -> Self {
        let window = SlidingSum::new(window_ns);
        Self { window, window_ns, added: now, charged_ns: 0, held_ns: 0, delayed_ns: 0 }
    }

    /// Adds GPU time `used_ns` charged for the span, of which `held_ns` were at the client's disposal.
    pub(super) fn add(&mut self, from: u64, to: u64, used_ns: u64, held_ns: u64) {
        self.window.add(from, to, used_ns);
        self.charged_ns = self.charged_ns.saturating_add(used_ns);
        self.held_ns = self.held_ns.saturating_add(held_ns);
    }

    /// Share of GPU time over the window, or since the client was added if that is shorter, with `running_ns` of the
    /// running grant.
    pub(super) fn share(&self, now: u64, running_ns: u64) -> Share {
        let used = self.window.total(now).saturating_add(running_ns);
        Share::ratio(used, self.window_ns.min(now.saturating_sub(self.added)))
    }
}
