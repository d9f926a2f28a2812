//! The grant page: the manager opens and closes the client's launch gate on it.
//!
//! A launching thread loads one word, the deadline, and compares. A thread that needs the deadline *and* its epoch
//! reads a [`Grant`] by [`GrantView::grant`], which never mixes two grants.
//!
//! Writing order: sequence odd, epoch, deadline in nanoseconds, deadline in ticks, sequence even. A client that sees a
//! deadline therefore sees the epoch of its grant or of a later one, and every word stored before the grant was opened
//! (flags, contended, contenders). One thread of the manager writes.

use crate::SILENCE_NS;

use super::{AtomicU64, NO_GRANT, Ordering, PAGE_VERSION, PageError, WORDS, check, fence, grant, init, read};

/// How often [`GrantView::grant`] tries while the manager writes. A manager that died between the stores must not keep
/// the client in the loop.
const ATTEMPTS: usize = 64;

/// A view of a grant page.
#[derive(Clone, Copy)]
pub struct GrantView<'a>(pub(super) &'a [AtomicU64; WORDS]);

/// One consistently read grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// End as a value of the time-stamp counter; 0 none, `u64::MAX` unlimited.
    pub deadline_tsc: u64,
    /// End on CLOCK_MONOTONIC, in nanoseconds; 0 none, `u64::MAX` unlimited.
    pub deadline_ns: u64,
    /// Number of the grant; 0 before the first.
    pub epoch: u64,
}

/// Flags that the manager sets once, before the first grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// Without a manager, the client launches nothing.
    pub fail_closed: bool,
    /// The TSC can be compared with the deadline.
    pub tsc_valid: bool,
}

impl<'a> GrantView<'a> {
    /// A view of these words.
    #[inline]
    pub fn new(words: &'a [AtomicU64; WORDS]) -> Self {
        Self(words)
    }

    /// Whether this is a grant page of a readable version.
    /// Errors: [`PageError`] names the word found instead.
    pub fn check(&self) -> Result<(), PageError> {
        check("grant", self.0, grant::MAGIC_VALUE)
    }

    /// End of the grant as a value of the time-stamp counter: 0 without one, `u64::MAX` if unlimited.
    #[inline]
    pub fn deadline_tsc(&self) -> u64 {
        read(self.0, grant::DEADLINE_TSC)
    }

    /// End of the grant on CLOCK_MONOTONIC, in nanoseconds: 0 without one, `u64::MAX` if unlimited.
    #[inline]
    pub fn deadline_ns(&self) -> u64 {
        read(self.0, grant::DEADLINE_NS)
    }

    /// Number of the grant, 0 before the first. Read after a deadline, it is that grant's number or a later one's.
    pub fn epoch(&self) -> u64 {
        read(self.0, grant::EPOCH)
    }

    /// The grant, consistently read. `None` if the manager kept changing it or stopped in the middle: the caller treats
    /// this as no grant.
    pub fn grant(&self) -> Option<Grant> {
        (0..ATTEMPTS).find_map(|_| self.try_grant())
    }

    /// One attempt at [`grant`](Self::grant): `None` if the manager is writing.
    pub fn try_grant(&self) -> Option<Grant> {
        let before = read(self.0, grant::SEQUENCE);
        let seen = Grant {
            deadline_tsc: self.0[grant::DEADLINE_TSC].load(Ordering::Relaxed),
            deadline_ns: self.0[grant::DEADLINE_NS].load(Ordering::Relaxed),
            epoch: self.0[grant::EPOCH].load(Ordering::Relaxed),
        };
        // The fence keeps the second load of the sequence behind the loads of the words that it guards.
        fence(Ordering::Acquire);
        let after = self.0[grant::SEQUENCE].load(Ordering::Relaxed);
        (before == after && before & 1 == 0).then_some(seen)
    }

    /// Whether the client stops launching when the manager is absent.
    pub fn fail_closed(&self) -> bool {
        read(self.0, grant::FLAGS) & grant::FAIL_CLOSED != 0
    }

    /// Whether [`deadline_tsc`](Self::deadline_tsc) can be compared with the TSC; else use
    /// [`deadline_ns`](Self::deadline_ns).
    pub fn tsc_valid(&self) -> bool {
        read(self.0, grant::FLAGS) & grant::TSC_VALID != 0
    }

    /// Whether others wait for the GPU; after a grant, whether they did at its end.
    pub fn contended(&self) -> bool {
        read(self.0, grant::CONTENDED) != 0
    }

    /// Whether the client must write to its wake-up eventfd when it changes from idle to busy.
    pub fn wakeup_requested(&self) -> bool {
        // Ordered after the client's own store of its activity: at least one side sees the other's store.
        fence(Ordering::SeqCst);
        read(self.0, grant::WAKEUP_REQUESTED) != 0
    }

    /// Whether the client is latency-critical.
    pub fn latency_critical(&self) -> bool {
        read(self.0, grant::FLAGS) & grant::LATENCY_CRITICAL != 0
    }

    /// Whether the client's limit ends its grants, also while no other client waits.
    pub fn limited(&self) -> bool {
        read(self.0, grant::FLAGS) & grant::LIMITED != 0
    }

    /// Whether the client is suspended.
    pub fn suspended(&self) -> bool {
        read(self.0, grant::FLAGS) & grant::SUSPENDED != 0
    }

    /// Whether movable memory moves in small pieces with pauses.
    pub fn paced_moves(&self) -> bool {
        read(self.0, grant::FLAGS) & grant::PACED_MOVES != 0
    }

    /// Whether memory of other clients leaves the GPU or returns; said to latency-critical clients.
    #[inline]
    pub fn memory_moves(&self) -> bool {
        read(self.0, grant::FLAGS) & grant::MEMORY_MOVES != 0
    }

    /// Contenders: how many other processes may use the GPU now.
    pub fn contenders(&self) -> u64 {
        read(self.0, grant::CONTENDERS)
    }

    /// Whether best-effort clients have the driver's default time slices beside this latency-critical process.
    pub fn default_slices(&self) -> bool {
        read(self.0, grant::DEFAULT_SLICES) != 0
    }

    /// Whether a launch of this latency-critical process takes the GPU from best-effort clients at once.
    pub fn takes_gpu(&self) -> bool {
        read(self.0, grant::TAKES_GPU) != 0
    }

    /// By how much hold kernels of predicted requests should lead, besides the time of a context switch, in nanoseconds.
    pub fn lead_ns(&self) -> u64 {
        read(self.0, grant::LEAD_NS)
    }

    /// Whether a second best-effort group is enabled beside this latency-critical client.
    pub fn second_group(&self) -> bool {
        read(self.0, grant::SECOND_GROUP) != 0
    }

    /// When the manager last wrote its heartbeat, on CLOCK_MONOTONIC, in nanoseconds; 0 if the manager writes none.
    pub fn heartbeat_ns(&self) -> u64 {
        read(self.0, grant::HEARTBEAT_NS)
    }

    /// For how many more nanoseconds the manager counts as present without another heartbeat: 0 once it is silent, `None`
    /// if it writes no heartbeat.
    ///
    /// A heartbeat that lies ahead of `now_ns` by more than [`SILENCE_NS`] comes from before the clock was set back, for
    /// example by the migration of a virtual machine. It counts as silence: a manager that runs replaces it.
    pub fn presence_left_ns(&self, now_ns: u64) -> Option<u64> {
        match self.heartbeat_ns() {
            0 => None,
            beat if beat.saturating_sub(now_ns) > SILENCE_NS => Some(0),
            beat => Some(beat.saturating_add(SILENCE_NS).saturating_sub(now_ns)),
        }
    }

    /// Work of clients with an earlier deadline: 0 none, [`grant::URGENT_NOW`], or the time at which it is expected.
    pub fn urgent(&self) -> u64 {
        read(self.0, grant::URGENT)
    }

    /// When the token is expected to pass from or to this client, on CLOCK_MONOTONIC, in nanoseconds; 0: not known.
    pub fn hand_off_ns(&self) -> u64 {
        read(self.0, grant::HAND_OFF_NS)
    }

    /// Latency goal of the client, in nanoseconds; 0: none.
    pub fn slo_ns(&self) -> u64 {
        read(self.0, grant::SLO_NS)
    }

    /// The word of [`Self::urgent`], whose low half is a futex.
    pub fn urgent_futex(&self) -> &'a AtomicU64 {
        &self.0[grant::URGENT]
    }
}

/// The manager's side, one thread at a time. These functions fault on a page mapped read-only.
impl GrantView<'_> {
    /// Initialises the page without grant and flags.
    pub fn init(&self) {
        self.init_as(PAGE_VERSION);
    }

    /// Initialises the page for a reader of another version.
    pub fn init_as(&self, version: u32) {
        init(self.0, grant::MAGIC_VALUE, version);
    }

    /// Opens the launch gate until the deadlines (`u64::MAX`: unlimited), or moves the deadline of an open one.
    pub fn open(&self, deadline_tsc: u64, deadline_ns: u64, epoch: u64) {
        self.write(Grant { deadline_tsc, deadline_ns, epoch });
    }

    /// Closes the launch gate; the epoch stays.
    pub fn close(&self) {
        let epoch = self.0[grant::EPOCH].load(Ordering::Relaxed);
        self.write(Grant { deadline_tsc: NO_GRANT, deadline_ns: NO_GRANT, epoch });
    }

    /// Writes the heartbeat. The manager does so before it carries out the decisions of a round of its event loop, so a
    /// client that sees a grant of the round sees a heartbeat that is at least as late.
    pub fn set_heartbeat(&self, now_ns: u64) {
        self.0[grant::HEARTBEAT_NS].store(now_ns, Ordering::Release);
    }

    /// Sets whether others wait for the GPU.
    pub fn set_contended(&self, contended: bool) {
        self.0[grant::CONTENDED].store(u64::from(contended), Ordering::Release);
    }

    /// Requests a wake-up through the client's eventfd when it changes from idle to busy, or cancels the request. The
    /// manager reads the client's activity *after* this.
    pub fn set_wakeup_requested(&self, armed: bool) {
        self.0[grant::WAKEUP_REQUESTED].store(u64::from(armed), Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Sets the contenders: how many other processes may use the GPU now.
    pub fn set_contenders(&self, others: u64) {
        self.0[grant::CONTENDERS].store(others, Ordering::Release);
    }

    /// Sets the work of clients with an earlier deadline. Returns `true` if that is a change: the caller then wakes
    /// [`Self::urgent_futex`].
    pub fn set_urgent(&self, urgent: u64) -> bool {
        let changes = self.0[grant::URGENT].load(Ordering::Relaxed) != urgent;
        if changes {
            self.0[grant::URGENT].store(urgent, Ordering::Release);
        }
        changes
    }

    /// Sets when the token is expected to pass from or to the client; 0: not known.
    pub fn set_hand_off(&self, at_ns: u64) {
        self.0[grant::HAND_OFF_NS].store(at_ns, Ordering::Release);
    }

    /// Sets the latency goal of the client, in nanoseconds; 0: none.
    pub fn set_slo(&self, ns: u64) {
        self.0[grant::SLO_NS].store(ns, Ordering::Release);
    }

    /// Sets whether best-effort clients have the driver's default time slices.
    pub fn set_default_slices(&self, default: bool) {
        self.0[grant::DEFAULT_SLICES].store(u64::from(default), Ordering::Release);
    }

    /// Sets whether a launch of the latency-critical process takes the GPU from best-effort clients at once.
    pub fn set_takes_gpu(&self, takes: bool) {
        self.0[grant::TAKES_GPU].store(u64::from(takes), Ordering::Release);
    }

    /// Sets by how much hold kernels of predicted requests should lead.
    pub fn set_lead_ns(&self, lead_ns: u64) {
        self.0[grant::LEAD_NS].store(lead_ns, Ordering::Release);
    }

    /// Sets whether a second best-effort group is enabled.
    pub fn set_second_group(&self, enabled: bool) {
        self.0[grant::SECOND_GROUP].store(u64::from(enabled), Ordering::Release);
    }

    /// Sets whether the client is latency-critical. Call it after [`Self::set_flags`], which clears this flag.
    pub fn set_latency_critical(&self, critical: bool) {
        self.set_flag(grant::LATENCY_CRITICAL, critical);
    }

    /// Sets whether the client's limit ends its grants. Call it after [`Self::set_flags`], which clears this flag.
    pub fn set_limited(&self, limited: bool) {
        self.set_flag(grant::LIMITED, limited);
    }

    /// Sets whether the client is suspended. Call it after [`Self::set_flags`], which clears this flag.
    pub fn set_suspended(&self, suspended: bool) {
        self.set_flag(grant::SUSPENDED, suspended);
    }

    /// Sets whether movable memory moves in small pieces. Call it after [`Self::set_flags`], which clears this flag.
    pub fn set_paced_moves(&self, paced: bool) {
        self.set_flag(grant::PACED_MOVES, paced);
    }

    /// Sets whether memory of other clients moves. Call it after [`Self::set_flags`], which clears this flag.
    pub fn set_memory_moves(&self, moves: bool) {
        self.set_flag(grant::MEMORY_MOVES, moves);
    }

    fn set_flag(&self, flag: u64, is_set: bool) {
        let others = self.0[grant::FLAGS].load(Ordering::Relaxed) & !flag;
        self.0[grant::FLAGS].store(others | if is_set { flag } else { 0 }, Ordering::Release);
    }

    /// Sets the flags that hold for all grants.
    pub fn set_flags(&self, flags: Flags) {
        let fail_closed = if flags.fail_closed { grant::FAIL_CLOSED } else { 0 };
        let tsc_valid = if flags.tsc_valid { grant::TSC_VALID } else { 0 };
        self.0[grant::FLAGS].store(fail_closed | tsc_valid, Ordering::Release);
    }

    fn write(&self, new: Grant) {
        let sequence = self.0[grant::SEQUENCE].load(Ordering::Relaxed) | 1;
        self.0[grant::SEQUENCE].store(sequence, Ordering::Relaxed);
        // A thread that sees one of the stores below sees the odd sequence.
        fence(Ordering::Release);
        self.0[grant::EPOCH].store(new.epoch, Ordering::Relaxed);
        self.0[grant::DEADLINE_NS].store(new.deadline_ns, Ordering::Release);
        self.0[grant::DEADLINE_TSC].store(new.deadline_tsc, Ordering::Release);
        self.0[grant::SEQUENCE].store(sequence.wrapping_add(1), Ordering::Release);
    }
}
