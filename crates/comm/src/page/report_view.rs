//! The report page: the client reports its activity and usage. Any of its threads writes; the manager only reads.

use super::{AtomicU64, Ordering, PAGE_VERSION, PageError, WORDS, check, init, read, report};

/// A grant that its process has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReturnedGrant {
    /// GPU time used, in nanoseconds.
    pub used_ns: u64,
    /// The part of it after the deadline, in nanoseconds.
    pub overuse_ns: u64,
    /// The expected length of the next burst in nanoseconds, if the process requests the next grant.
    pub next_burst_ns: Option<u64>,
}

/// A view of a report page.
#[derive(Clone, Copy)]
pub struct ReportView<'a>(pub(super) &'a [AtomicU64; WORDS]);

impl<'a> ReportView<'a> {
    /// A view of these words.
    pub fn new(words: &'a [AtomicU64; WORDS]) -> Self {
        Self(words)
    }

    /// Initialises the page with zero counters. The manager does this before it sends the page.
    pub fn init(&self) {
        self.init_as(PAGE_VERSION);
    }

    /// Initialises the page for a writer of another version.
    pub fn init_as(&self, version: u32) {
        init(self.0, report::MAGIC_VALUE, version);
    }

    /// Whether this is a report page of a readable version.
    /// Errors: [`PageError`] names the word found instead.
    pub fn check(&self) -> Result<(), PageError> {
        check("report", self.0, report::MAGIC_VALUE)
    }

    /// Whether GPU work was submitted and is not known to have finished, and since when. The time is never earlier than
    /// that of the state.
    pub fn activity(&self) -> (bool, u64) {
        let word = read(self.0, report::ACTIVITY);
        (word & report::BUSY != 0, read(self.0, report::ACTIVITY_NS))
    }

    /// How often the activity has changed since the process attached. The counter wraps.
    pub fn activity_changes(&self) -> u64 {
        read(self.0, report::ACTIVITY) >> 1
    }

    /// Reports the activity. Reporting the same state again changes nothing. One thread at a time.
    pub fn set_activity(&self, busy: bool, now_ns: u64) {
        let before = self.0[report::ACTIVITY].load(Ordering::Relaxed);
        if (before & report::BUSY != 0) != busy {
            self.0[report::ACTIVITY_NS].store(now_ns, Ordering::Relaxed);
            // One more change, and the other state: the counter above bit 0 goes up by one each time.
            let after = (before & !report::BUSY).wrapping_add(2) | u64::from(busy);
            self.0[report::ACTIVITY].store(after, Ordering::Release);
        }
    }

    /// Since when all work of the process only waits; `None`: a kernel may run, or there is no work.
    pub fn waits_since_ns(&self) -> Option<u64> {
        Some(read(self.0, report::WAITS_SINCE_NS)).filter(|since| *since != 0)
    }

    /// Reports since when all work only waits. After the activity if that changes too.
    pub fn set_waits(&self, since_ns: Option<u64>) {
        self.0[report::WAITS_SINCE_NS].store(since_ns.map_or(0, |since| since.max(1)), Ordering::Release);
    }

    /// When the process expects its next request, on CLOCK_MONOTONIC; 0: unknown.
    pub fn expected_ns(&self) -> u64 {
        read(self.0, report::EXPECTED_NS)
    }

    /// Reports when the next request is expected, 0 if that is unknown.
    pub fn expect(&self, at_ns: u64) {
        self.0[report::EXPECTED_NS].store(at_ns, Ordering::Release);
    }

    /// Usual duration of a request, in nanoseconds; 0: unknown.
    pub fn service_ns(&self) -> u64 {
        read(self.0, report::SERVICE_NS)
    }

    /// Reports the usual duration of a request.
    pub fn set_service_ns(&self, ns: u64) {
        self.0[report::SERVICE_NS].store(ns, Ordering::Release);
    }

    /// Whether a launch is postponed because of work with an earlier deadline.
    pub fn is_postponed(&self) -> bool {
        read(self.0, report::POSTPONED) != 0
    }

    /// Reports whether a launch is postponed.
    pub fn set_postponed(&self, postponed: bool) {
        self.0[report::POSTPONED].store(u64::from(postponed), Ordering::Release);
    }

    /// Time for which launches were postponed since the process attached, in nanoseconds.
    pub fn postponed_ns(&self) -> u64 {
        read(self.0, report::POSTPONED_NS)
    }

    /// Adds time for which launches were postponed.
    pub fn add_postponed_ns(&self, ns: u64) {
        self.0[report::POSTPONED_NS].fetch_add(ns, Ordering::Relaxed);
    }

    /// The address at which the process has mapped its grant page; 0: unknown.
    pub fn grant_address(&self) -> u64 {
        read(self.0, report::GRANT_ADDRESS)
    }

    /// Reports the address at which the grant page is mapped.
    pub fn set_grant_address(&self, address: u64) {
        self.0[report::GRANT_ADDRESS].store(address, Ordering::Release);
    }

    /// Whether the process states that it may have channel groups that it has not announced: it is making a context, or it cannot
    /// announce them.
    pub fn has_unannounced_groups(&self) -> bool {
        read(self.0, report::UNANNOUNCED) != 0
    }

    /// Reports change number `change` (at least 1) of the process's groups, which is not announced yet.
    pub fn report_unannounced(&self, change: u64) {
        self.0[report::UNANNOUNCED].fetch_max(change, Ordering::AcqRel);
    }

    /// Reports that all groups up to change number `change` are announced. A later change stays reported.
    pub fn report_announced(&self, change: u64) {
        let is_announced = |reported: u64| (reported <= change).then_some(0);
        // No value is written where a later change is reported.
        let _ = self.0[report::UNANNOUNCED].fetch_update(Ordering::AcqRel, Ordering::Acquire, is_announced);
    }

    /// Whether best-effort clients should have the driver's default time slices beside this process.
    pub fn wants_default_slices(&self) -> bool {
        read(self.0, report::WANTS_DEFAULT_SLICES) == 1
    }

    /// Median times of a burst beside short and default slices in the last test, in nanoseconds; 0 before the first.
    pub fn burst_medians_ns(&self) -> (u64, u64) {
        (read(self.0, report::SHORT_BURST_NS), read(self.0, report::DEFAULT_BURST_NS))
    }

    /// Reports which time slices best-effort clients should have, and the times that this results from.
    pub fn report_slices(&self, wants_default: bool, short_ns: u64, default_ns: u64) {
        self.0[report::SHORT_BURST_NS].store(short_ns, Ordering::Relaxed);
        self.0[report::DEFAULT_BURST_NS].store(default_ns, Ordering::Relaxed);
        self.0[report::WANTS_DEFAULT_SLICES].store(u64::from(wants_default), Ordering::Release);
    }

    /// Since when several contexts of the process have had work at the same time; `None`: they have not.
    pub fn contexts_at_once_since_ns(&self) -> Option<u64> {
        Some(read(self.0, report::CONTEXTS_AT_ONCE_NS)).filter(|since| *since != 0)
    }

    /// Reports since when several contexts have had work at the same time.
    pub fn report_contexts_at_once(&self, since_ns: Option<u64>) {
        let since_ns = since_ns.map_or(0, |since| since.max(1));
        self.0[report::CONTEXTS_AT_ONCE_NS].store(since_ns, Ordering::Release);
    }

    /// By how much the hold kernels of the process lead, besides the time of a context switch, in nanoseconds; 0 if too few of its requests
    /// have one.
    pub fn lead_ns(&self) -> u64 {
        read(self.0, report::LEAD_NS)
    }

    /// Reports by how much hold kernels lead.
    pub fn report_lead(&self, lead_ns: u64) {
        self.0[report::LEAD_NS].store(lead_ns, Ordering::Release);
    }

    /// How long the hold kernels of the process stay without work within a request, in nanoseconds; 0: they do not.
    pub fn linger_ns(&self) -> u64 {
        read(self.0, report::LINGER_NS)
    }

    /// Reports how long hold kernels stay without work.
    pub fn report_linger(&self, linger_ns: u64) {
        self.0[report::LINGER_NS].store(linger_ns, Ordering::Relaxed);
    }

    /// Mean errors of the process's predictions, in nanoseconds: when its next request begins, and how long after the first copy of a request
    /// its first launch comes. 0: nothing is predicted.
    pub fn prediction_errors_ns(&self) -> [u64; 2] {
        [report::ARRIVAL_ERROR_NS, report::PREPARATION_ERROR_NS].map(|word| read(self.0, word))
    }

    /// Reports the mean errors of predictions.
    pub fn report_prediction_errors(&self, [arrival_ns, preparation_ns]: [u64; 2]) {
        self.0[report::ARRIVAL_ERROR_NS].store(arrival_ns, Ordering::Relaxed);
        self.0[report::PREPARATION_ERROR_NS].store(preparation_ns, Ordering::Relaxed);
    }

    /// GPU time used since the process attached, in nanoseconds.
    pub fn busy_ns(&self) -> u64 {
        read(self.0, report::BUSY_NS)
    }

    /// Adds GPU time, in nanoseconds.
    pub fn add_busy_ns(&self, ns: u64) {
        self.0[report::BUSY_NS].fetch_add(ns, Ordering::Release);
    }

    /// GPU time of finished hold kernels, in nanoseconds, since the process attached.
    pub fn hold_ns(&self) -> u64 {
        read(self.0, report::HOLD_NS)
    }

    /// Adds GPU time of a hold kernel, in nanoseconds.
    pub fn add_hold_ns(&self, ns: u64) {
        self.0[report::HOLD_NS].fetch_add(ns, Ordering::Relaxed);
    }

    /// How many grants the process has returned since it attached. A process can write any number.
    pub fn returns(&self) -> u64 {
        read(self.0, report::RETURNS)
    }

    /// The grant that was returned last.
    pub fn returned_grant(&self) -> ReturnedGrant {
        ReturnedGrant {
            used_ns: read(self.0, report::RETURNED_USED_NS),
            overuse_ns: read(self.0, report::RETURNED_OVERUSE_NS),
            next_burst_ns: read(self.0, report::RETURNED_REQUEST).checked_sub(1),
        }
    }

    /// Returns the grant. One thread at a time; the frames follow.
    pub fn return_grant(&self, grant: ReturnedGrant) {
        let request = grant.next_burst_ns.map_or(0, |ns| ns.saturating_add(1));
        self.0[report::RETURNED_USED_NS].store(grant.used_ns, Ordering::Relaxed);
        self.0[report::RETURNED_OVERUSE_NS].store(grant.overuse_ns, Ordering::Relaxed);
        self.0[report::RETURNED_REQUEST].store(request, Ordering::Relaxed);
        self.0[report::RETURNS].fetch_add(1, Ordering::Release);
    }

    /// Calls that bypassed the launch gate for a reason; 0 for a reason of 32 or above.
    pub fn bypassed(&self, reason: usize) -> u64 {
        if reason < report::BYPASS_REASONS { read(self.0, report::BYPASS + reason) } else { 0 }
    }

    /// Counts one call that bypassed the launch gate. Reasons of 32 and above are not counted.
    pub fn count_bypass(&self, reason: usize) {
        if reason < report::BYPASS_REASONS {
            self.0[report::BYPASS + reason].fetch_add(1, Ordering::Relaxed);
        }
    }
}
