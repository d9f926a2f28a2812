//! GPU time that one process reports, with the part of a burst that still runs.

/// A process adds a burst to its counter when the burst has ended. Bursts of a service that is never idle last for seconds, so the running
/// one is estimated: the process counts as busy since the burst began, or since the counter last grew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BusyMeter {
    /// The counter when it was last read, and when it last grew.
    reported_ns: u64,
    grew_at: u64,
    /// The counter's value that was counted so far, with estimates.
    counted_ns: u64,
    /// Elapsed time for which no use was counted. A burst that is reported late ran in it.
    uncounted_ns: u64,
    read_at: u64,
    /// Since when the process reports work that begins in the future, which cannot be.
    impossible_since: Option<u64>,
}

impl BusyMeter {
    /// A meter that counts from `now` on, when the counter is `reported_ns`.
    pub(crate) fn new(reported_ns: u64, now: u64) -> Self {
        Self {
            reported_ns,
            grew_at: now,
            counted_ns: reported_ns,
            uncounted_ns: 0,
            read_at: now,
            impossible_since: None,
        }
    }

    /// Whether a burst ran at the last reading that the process has not reported yet.
    pub(crate) fn ran(&self) -> bool {
        self.counted_ns > self.reported_ns
    }

    /// Reads the counter at `now`, with the time since when the process is busy. Returns since when it used the GPU, and for how long. In
    /// sum it never used the GPU for longer than the time that has elapsed.
    pub(crate) fn read(&mut self, reported_ns: u64, busy_since: Option<u64>, now: u64) -> (u64, u64) {
        if reported_ns < self.reported_ns {
            // The process has begun anew, by exec.
            self.counted_ns = reported_ns;
        }
        if reported_ns != self.reported_ns {
            // A burst that has begun since the last reading began after those had ended by which the counter grew.
            let begun = busy_since.filter(|since| (self.read_at..=now).contains(since));
            (self.reported_ns, self.grew_at) = (reported_ns, begun.unwrap_or(now));
        }
        let is_impossible = busy_since.is_some_and(|since| since > now);
        self.impossible_since = is_impossible.then(|| self.impossible_since.unwrap_or(self.read_at));
        let begun = self.impossible_since.or(busy_since);
        let running = begun.map_or(0, |begun| now.saturating_sub(begun.max(self.grew_at)));
        let estimate = reported_ns.saturating_add(running);
        self.uncounted_ns = self.uncounted_ns.saturating_add(now.saturating_sub(self.read_at));
        let used = estimate.saturating_sub(self.counted_ns).min(self.uncounted_ns);
        self.uncounted_ns -= used;
        self.counted_ns = self.counted_ns.max(estimate);
        // Since the last reading, or earlier if the process has reported late.
        let from = now.saturating_sub(used).min(self.read_at);
        self.read_at = now;
        (from, used)
    }
}

#[cfg(test)]
mod tests;
