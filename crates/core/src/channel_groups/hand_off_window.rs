//! When a hand-off may disturb the latency-critical processes: a control in the middle of a request costs it 150 to 200
//! µs.

use super::policy::ChannelGroupPolicy;
use super::process::Activity;

/// Opens at a good moment or when the longest wait has passed, and stays open as long as one hand-off takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct HandOffWindow {
    /// Since when a hand-off waits for it.
    requested_at: Option<u64>,
    open_until: u64,
    /// How often it opened because the longest wait had passed.
    pub(super) forced: u64,
}

impl HandOffWindow {
    /// Whether a hand-off may proceed now. If not, the hand-off waits for the window from now on.
    pub(super) fn is_open(
        &mut self,
        policy: &ChannelGroupPolicy,
        now: u64,
        critical: impl Iterator<Item = Activity> + Clone,
    ) -> bool {
        if self.is_still_open(now) {
            return true;
        }
        let requested_at = *self.requested_at.get_or_insert(now);
        let good = is_good_moment(policy, now, critical);
        if !good && now < requested_at.saturating_add(policy.window_wait_ns) {
            return false;
        }
        self.forced += u64::from(!good);
        self.requested_at = None;
        self.open_until = now.saturating_add(policy.window_open_ns);
        true
    }

    /// Whether it was opened for another hand-off and is still open.
    pub(super) const fn is_still_open(&self, now: u64) -> bool {
        now < self.open_until
    }

    /// No hand-off waits any more.
    pub(super) fn withdraw(&mut self) {
        self.requested_at = None;
    }

    /// When to poll the window again, if a hand-off waits.
    pub(super) fn wake_at(&self, policy: &ChannelGroupPolicy, now: u64) -> Option<u64> {
        let requested_at = self.requested_at?;
        let longest = requested_at.saturating_add(policy.window_wait_ns);
        Some(now.saturating_add(policy.window_poll_ns).min(longest))
    }
}

/// All processes are idle, and the last one to become idle has just finished a request or has been idle for long. In
/// between, the next request may be about to arrive.
fn is_good_moment(policy: &ChannelGroupPolicy, now: u64, critical: impl Iterator<Item = Activity>) -> bool {
    let mut shortest = u64::MAX;
    for activity in critical {
        match activity.idle_for(now) {
            None => return false,
            Some(idle) => shortest = shortest.min(idle),
        }
    }
    shortest <= policy.just_finished_ns || shortest >= policy.quiet_ns
}

#[cfg(test)]
mod tests;
