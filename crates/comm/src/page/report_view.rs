//! The report page: what the client says of itself. Any of its threads writes; the manager only reads.

use super::sync::{AtomicU64, Ordering, read};
use super::{PAGE_VERSION, PageError, WORDS, check, init, report};

/// A view of a report page.
#[derive(Clone, Copy)]
pub struct ReportView<'a>(&'a [AtomicU64; WORDS]);

impl<'a> ReportView<'a> {
    /// Looks at a page.
    #[must_use]
    pub fn new(words: &'a [AtomicU64; WORDS]) -> Self {
        Self(words)
    }

    /// Sets the page up: all counters zero. The manager does this before it hands the page out.
    pub fn init(&self) {
        self.init_as(PAGE_VERSION);
    }

    /// Sets the page up for a writer of another version.
    pub fn init_as(&self, version: u32) {
        init(self.0, report::MAGIC_VALUE, version);
    }

    /// The version it was set up for.
    #[must_use]
    pub fn version(&self) -> u64 {
        read(self.0, super::VERSION)
    }

    /// Whether this is a report page of our version.
    ///
    /// # Errors
    /// [`PageError`] says what the page begins with instead.
    pub fn check(&self) -> Result<(), PageError> {
        check("report", self.0, report::MAGIC_VALUE)
    }

    /// Times the client went from idle to busy, modulo 2^32.
    #[must_use]
    pub fn doorbell(&self) -> u32 {
        u32::try_from(read(self.0, report::DOORBELL) & u64::from(u32::MAX)).unwrap_or(u32::MAX)
    }

    /// The doorbell's word, whose low half is a futex: the value that [`doorbell`](Self::doorbell) read goes into
    /// the wait.
    #[must_use]
    pub fn doorbell_word(&self) -> &'a AtomicU64 {
        &self.0[report::DOORBELL]
    }

    /// Rings the doorbell; the futex wake is the caller's.
    pub fn ring(&self) {
        self.0[report::DOORBELL].fetch_add(1, Ordering::Release);
    }

    /// Whether GPU work was submitted and is not known to have finished, and since when: never an earlier time than
    /// that of the state it stands beside.
    #[must_use]
    pub fn activity(&self) -> (bool, u64) {
        let word = read(self.0, report::ACTIVITY);
        (word & report::BUSY != 0, read(self.0, report::ACTIVITY_NS))
    }

    /// Says so. Saying the same again changes nothing. One thread at a time.
    pub fn set_activity(&self, busy: bool, now_ns: u64) {
        let before = self.0[report::ACTIVITY].load(Ordering::Relaxed);
        if (before & report::BUSY != 0) != busy {
            self.0[report::ACTIVITY_NS].store(now_ns, Ordering::Relaxed);
            // One more change, and the other state: the counter above bit 0 goes up by one each time.
            let after = (before & !report::BUSY).wrapping_add(2) | u64::from(busy);
            self.0[report::ACTIVITY].store(after, Ordering::Release);
        }
    }

    /// What the client's gates hold back: [`report::GATES_HOST`], [`report::GATES_DEVICE`], or nothing.
    #[must_use]
    pub fn gates(&self) -> u64 {
        read(self.0, report::GATES)
    }

    /// How many streams they are of; 0: it does not say.
    #[must_use]
    pub fn gated_streams(&self) -> u64 {
        read(self.0, report::GATED_STREAMS)
    }

    /// Says both.
    pub fn set_gates(&self, gates: u64, streams: u64) {
        self.0[report::GATED_STREAMS].store(streams, Ordering::Relaxed);
        self.0[report::GATES].store(gates, Ordering::Release);
    }

    /// When the request is expected that was announced last, on CLOCK_MONOTONIC; 0: none yet.
    #[must_use]
    pub fn announced_ns(&self) -> u64 {
        read(self.0, report::ANNOUNCED_NS)
    }

    /// When that was announced, or a newer one, on CLOCK_MONOTONIC; 0: it does not say. Read behind [`Self::announced_ns`].
    #[must_use]
    pub fn announced_at_ns(&self) -> u64 {
        read(self.0, report::ANNOUNCED_AT_NS)
    }

    /// Announces, at `now_ns`, a request that is expected at `at_ns`.
    pub fn announce(&self, now_ns: u64, at_ns: u64) {
        self.0[report::ANNOUNCED_AT_NS].store(now_ns, Ordering::Relaxed);
        self.0[report::ANNOUNCED_NS].store(at_ns, Ordering::Release);
    }

    /// GPU time used since the process attached, in nanoseconds.
    #[must_use]
    pub fn busy_ns(&self) -> u64 {
        read(self.0, report::BUSY_NS)
    }

    /// Adds GPU time, in nanoseconds.
    pub fn add_busy_ns(&self, ns: u64) {
        self.0[report::BUSY_NS].fetch_add(ns, Ordering::Release);
    }

    /// GPU time of holds that are over, in nanoseconds, since the process attached.
    #[must_use]
    pub fn hold_ns(&self) -> u64 {
        read(self.0, report::HOLD_NS)
    }

    /// Adds GPU time of a hold, in nanoseconds.
    pub fn add_hold_ns(&self, ns: u64) {
        self.0[report::HOLD_NS].fetch_add(ns, Ordering::Relaxed);
    }

    /// Launches let through since the process attached.
    #[must_use]
    pub fn launches(&self) -> u64 {
        read(self.0, report::LAUNCHES)
    }

    /// Adds launches.
    pub fn add_launches(&self, count: u64) {
        self.0[report::LAUNCHES].fetch_add(count, Ordering::Relaxed);
    }

    /// When GPU work last finished, on CLOCK_MONOTONIC, in nanoseconds; 0 if none has.
    #[must_use]
    pub fn last_progress_ns(&self) -> u64 {
        read(self.0, report::LAST_PROGRESS_NS)
    }

    /// Says that GPU work finished at `ns`. An earlier time than one reported before changes nothing.
    pub fn progress_at(&self, ns: u64) {
        self.0[report::LAST_PROGRESS_NS].fetch_max(ns, Ordering::Release);
    }

    /// Calls that went around the gate for a reason; 0 for a reason of 32 or above.
    #[must_use]
    pub fn bypassed(&self, reason: usize) -> u64 {
        if reason < report::BYPASS_REASONS { read(self.0, report::BYPASS + reason) } else { 0 }
    }

    /// Counts one call that went around the gate. Reasons of 32 and above are not counted.
    pub fn count_bypass(&self, reason: usize) {
        if reason < report::BYPASS_REASONS {
            self.0[report::BYPASS + reason].fetch_add(1, Ordering::Relaxed);
        }
    }
}
