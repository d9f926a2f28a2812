//! The least that a queue gets however often it is preempted.

/// How long a queue was preempted in the current window.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    window_ns: Option<u64>,
    held_ns: u64,
    since_ns: Option<u64>,
}

impl Share {
    /// The queue is preempted from here on.
    pub(crate) fn hold(&mut self, now: u64, window: u64) {
        self.roll(now, window);
        self.since_ns.get_or_insert(now);
    }

    /// The queue runs from here on.
    pub(crate) fn run(&mut self, now: u64, window: u64) {
        self.roll(now, window);
        if let Some(since) = self.since_ns.take() {
            self.held_ns += now.saturating_sub(since);
        }
    }

    /// When a queue that is preempted has to run for the rest of its window.
    pub(crate) fn breath_at(&self, window: u64, minimum: u32) -> Option<u64> {
        let most = window - window / 1000 * u64::from(minimum);
        let since = self.since_ns?;
        // What is left of this window; a later one begins anew.
        let at = since + most.saturating_sub(self.held_ns);
        Some(at)
    }

    /// When the window ends.
    pub(crate) fn ends(&self, window: u64) -> u64 {
        self.window_ns.unwrap_or(0) + window
    }

    fn roll(&mut self, now: u64, window: u64) {
        if self.window_ns.is_none_or(|begun| now >= begun.saturating_add(window)) {
            self.window_ns = Some(now);
            self.held_ns = 0;
            if let Some(since) = &mut self.since_ns {
                *since = now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_is_held_all_the_time_runs_at_the_end_of_each_window() {
        let mut share = Share::default();
        share.hold(5, 1000);
        assert_eq!(share.breath_at(1000, 50), Some(955));
        share.run(955, 1000);
        assert_eq!(share.ends(1000), 1005);
        share.hold(1005, 1000);
        assert_eq!(share.breath_at(1000, 50), Some(1955));
    }

    #[test]
    fn time_that_it_ran_by_itself_counts() {
        let mut share = Share::default();
        share.hold(1, 1000);
        share.run(301, 1000);
        share.hold(401, 1000);
        assert_eq!(share.breath_at(1000, 100), Some(1001));
        share.hold(1200, 1000);
        assert_eq!(share.breath_at(1000, 100), Some(2100));
    }
}
