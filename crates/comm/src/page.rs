//! The two pages that a manager and a client process share: their layout and the rules for access.
//!
//! The manager writes the *grant page* and the client only reads it. The client writes the *report page*, and the
//! manager checks every report that can be checked. Both are 512 words of 64 bits, accessed as atomics. The word
//! indices in [`grant`] and [`report`] define the layout. A word that no field uses is zero.
//!
//! Readers use relaxed loads followed by an acquire fence: for a page mapped read-only, Rust guarantees only relaxed
//! loads. On x86-64 both are the same instruction.

mod grant_view;
mod latency_words;
mod memory_words;
mod report_view;

pub use grant_view::{Flags, Grant, GrantView};
pub use memory_words::MovableMemory;
pub use report_view::{ReportView, ReturnedGrant};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};
use thiserror::Error;

/// Version of the layout of both pages. An earlier version lacks the words marked "from version 2 on" or "from version 3
/// on": they read as zero, and writing them has no effect. All versions are read.
pub const PAGE_VERSION: u32 = 3;
/// The first version with activity and wake-ups.
pub const FIRST_WITH_ACTIVITY: u32 = 2;
/// The first version with the heartbeat.
pub const FIRST_WITH_HEARTBEAT: u32 = 3;
/// The oldest version that is read.
pub const OLDEST_PAGE_VERSION: u32 = 1;
/// Words of a page.
pub const WORDS: usize = 512;
/// Value of a deadline without a grant.
pub const NO_GRANT: u64 = 0;
/// Deadline of an unlimited grant, as latency-critical clients hold it.
pub const UNLIMITED: u64 = u64::MAX;

/// Word indices of the grant page. Words that are written at different rates are 128 bytes apart, so that a write moves
/// neither the cache line of another kind of word nor its prefetched neighbour. Word 48 stays free: hooks of earlier builds
/// read there whether to close stream gates.
pub mod grant {
    /// "SLUICEGR" as a little-endian word.
    pub const MAGIC_VALUE: u64 = u64::from_le_bytes(*b"SLUICEGR");

    /// [`MAGIC_VALUE`], stored last when the page is initialised.
    pub const MAGIC: usize = 0;
    /// [`super::PAGE_VERSION`].
    pub const VERSION: usize = 1;
    /// Bit 0 [`FAIL_CLOSED`], bit 1 [`TSC_VALID`], bit 2 [`LATENCY_CRITICAL`], bit 3 [`LIMITED`], bit 4 [`SUSPENDED`], bit 5
    /// [`PACED_MOVES`], bit 6 [`MEMORY_MOVES`].
    pub const FLAGS: usize = 2;
    /// End of the grant as a value of the time-stamp counter: the one word the launch path loads.
    pub const DEADLINE_TSC: usize = 16;
    /// End of the grant on CLOCK_MONOTONIC, in nanoseconds.
    pub const DEADLINE_NS: usize = 17;
    /// Counts grants; 0 before the first.
    pub const EPOCH: usize = 18;
    /// Odd while the manager changes the three words above.
    pub const SEQUENCE: usize = 19;
    /// 1 while others wait for the GPU, else 0.
    pub const CONTENDED: usize = 32;
    /// 1: the client writes to its wake-up eventfd when it changes from idle to busy. From version 2 on.
    pub const WAKEUP_REQUESTED: usize = 33;
    /// Contenders: how many other processes may use the GPU now; 0: none. From version 2 on.
    pub const CONTENDERS: usize = 34;
    /// Work of other latency-critical clients whose deadline is earlier than this client's: 0 none, [`URGENT_NOW`], or the
    /// expected begin of such work on CLOCK_MONOTONIC, in nanoseconds. Its low 32 bits are a futex that the manager wakes
    /// at each change. Zero for all other clients. A manager that does not know the word leaves it zero.
    pub const URGENT: usize = 36;
    /// 1 while a latency-critical client's best-effort neighbours have the driver's default time slices, because every
    /// latency-critical process wants that; else 0. From version 2 on.
    pub const DEFAULT_SLICES: usize = 35;
    /// 1 while a launch of a latency-critical client takes the GPU from its best-effort neighbours at once, because the
    /// manager schedules their channel groups with short time slices; else 0. A manager that does not know the word leaves
    /// it zero.
    pub const TAKES_GPU: usize = 37;
    /// While a client waits for the token: when the holder's grant ends, on CLOCK_MONOTONIC, in nanoseconds. Set for the holder and for the
    /// client that is granted next, which poll around this time; 0 for all others. A manager that does not know the word leaves it zero.
    pub const HAND_OFF_NS: usize = 38;
    /// By how much the hold kernels of a latency-critical client's predicted requests should lead, besides the time of a context switch, in
    /// nanoseconds: a best-effort neighbour could use a second channel group with such a time slice; 0 if none could. A manager that does
    /// not know the word leaves it zero.
    pub const LEAD_NS: usize = 39;
    /// Latency goal of a latency-critical client, in nanoseconds; 0: none. The process counts its requests above it. A manager that does not
    /// know the word leaves it zero.
    pub const SLO_NS: usize = 40;
    /// 1 on a latency-critical client's page while a second best-effort group is enabled: a request without a lead waits for its time slice. A
    /// manager that does not know the word leaves it zero.
    pub const SECOND_GROUP: usize = 41;
    /// How much movable memory the process may have on the GPU: 0 not decided, else one more than the number of MiB. If it has more, all of it
    /// must leave. The low 32 bits are a futex that the manager wakes at each change. Only for a process to which the manager has sent host
    /// memory. A manager that does not know the word leaves it zero.
    pub const MEMORY_ROOM: usize = 42;
    /// Heartbeat: when the manager's event loop last wrote this word, on CLOCK_MONOTONIC, in nanoseconds; 0: the manager
    /// writes no heartbeat. From version 3 on.
    pub const HEARTBEAT_NS: usize = 64;

    /// Value of [`URGENT`]: such work has been submitted and is not known to have finished.
    pub const URGENT_NOW: u64 = 1;
    /// Flag: without a manager, the client launches nothing.
    pub const FAIL_CLOSED: u64 = 1 << 0;
    /// Flag: the TSC can be compared with the deadline. Otherwise the client uses CLOCK_MONOTONIC.
    pub const TSC_VALID: u64 = 1 << 1;
    /// Flag: the client is latency-critical.
    pub const LATENCY_CRITICAL: u64 = 1 << 2;
    /// Flag: the client's limit ends its grants, also while no other client waits.
    pub const LIMITED: u64 = 1 << 3;
    /// Flag: the client is suspended. An allocation waits for room until it is resumed. A manager that does not know the flag leaves it zero.
    pub const SUSPENDED: u64 = 1 << 4;
    /// Flag: a latency-critical client works, so movable memory moves in small pieces with pauses. A manager that does not know the flag
    /// leaves it zero.
    pub const PACED_MOVES: u64 = 1 << 5;
    /// Flag of a latency-critical client: memory of others leaves the GPU or returns, so the copy engines are busy. A manager that does not
    /// know the flag leaves it zero.
    pub const MEMORY_MOVES: u64 = 1 << 6;
}

/// Word indices of the report page, spaced as in [`grant`]. Words 19 to 22 and 48 stay free: hooks of earlier builds
/// write stream gates, announcements and the number of launches there.
pub mod report {
    /// "SLUICERP" as a little-endian word.
    pub const MAGIC_VALUE: u64 = u64::from_le_bytes(*b"SLUICERP");
    /// Number of bypass counters.
    pub const BYPASS_REASONS: usize = 32;

    /// [`MAGIC_VALUE`], stored last when the page is initialised.
    pub const MAGIC: usize = 0;
    /// [`super::PAGE_VERSION`].
    pub const VERSION: usize = 1;
    /// Bit 0 [`BUSY`], the others count its changes. From version 2 on.
    pub const ACTIVITY: usize = 17;
    /// Time of the last change on CLOCK_MONOTONIC, in nanoseconds. From version 2 on.
    pub const ACTIVITY_NS: usize = 18;
    /// When the process predicts or has announced its next request, on CLOCK_MONOTONIC, in nanoseconds; 0: unknown. The
    /// manager uses it only for a latency-critical client within its request. Zero if the hook does not predict.
    pub const EXPECTED_NS: usize = 26;
    /// Usual duration of a request of this process, from its first work to its last, in nanoseconds; 0: unknown.
    pub const SERVICE_NS: usize = 27;
    /// 1 while a launch of this process is postponed because of [`super::grant::URGENT`].
    pub const POSTPONED: usize = 28;
    /// The address at which the process has mapped its grant page; 0: unknown. The manager compares the page that is mapped there with the one
    /// that it has sent.
    pub const GRANT_ADDRESS: usize = 29;
    /// Not 0 while the process has, or may have, channel groups that it has not announced: the number of their last change.
    pub const UNANNOUNCED: usize = 30;
    /// Since when all work of a busy process only waits, on CLOCK_MONOTONIC, in nanoseconds: each of its streams with work has a command at its
    /// head that uses no multiprocessor, for example a host function, a copy or a wait for a value. 0: a kernel may run, or the process has no
    /// work. The manager uses it only for a best-effort process. A manager that does not know the word takes such a process for a busy one.
    pub const WAITS_SINCE_NS: usize = 31;
    /// By how much the hold kernels of this latency-critical process lead, besides the time of a context switch, in nanoseconds, if nearly all
    /// of its requests have one; else 0. A request without one waits for so much longer.
    pub const LEAD_NS: usize = 96;
    /// Since when several contexts of the process have had work at the same time, on CLOCK_MONOTONIC, in nanoseconds; 0: they have not. The
    /// manager uses it only for a best-effort process.
    pub const CONTEXTS_AT_ONCE_NS: usize = 97;
    /// How long the hold kernels of this latency-critical process stay without work within a request, in nanoseconds; 0: they do not.
    pub const LINGER_NS: usize = 98;
    /// Mean error of what this latency-critical process predicts, in nanoseconds: when the next request begins. 0: it predicts nothing.
    pub const ARRIVAL_ERROR_NS: usize = 99;
    /// The same: how long after the first copy of a request its first launch comes.
    pub const PREPARATION_ERROR_NS: usize = 100;
    /// Movable memory of the process, wherever it is, and what it is about to allocate of it, in bytes.
    pub const MEMORY_NEED: usize = 101;
    /// The part of it that is on the GPU, in bytes.
    pub const MEMORY_RESIDENT: usize = 102;
    /// Bit 0: a thread waits for movable memory to return, or for room for more of it. Bit 1: the process keeps the host memory of an earlier
    /// manager. Bit 2: it copies movable memory at this moment.
    pub const MEMORY_FLAGS: usize = 103;
    /// 1: best-effort clients should have the driver's default time slices beside this latency-critical process; 0: short
    /// ones, which a hook that does not write this word receives. From version 2 on.
    pub const WANTS_DEFAULT_SLICES: usize = 23;
    /// Median time of a burst beside short slices in the test that the word above results from, in nanoseconds; 0: no
    /// test has ended. From version 2 on.
    pub const SHORT_BURST_NS: usize = 24;
    /// The same beside default slices. From version 2 on.
    pub const DEFAULT_BURST_NS: usize = 25;
    /// GPU time used, in nanoseconds, since the process attached.
    pub const BUSY_NS: usize = 32;
    /// GPU time of finished hold kernels, in nanoseconds, since the process attached: time that a latency-critical
    /// process took from others before the kernels of its requests arrived. Not part of [`BUSY_NS`], though the two
    /// overlap while a hold kernel lasts until the program waits. From version 2 on; zero if the hook does not count
    /// it.
    pub const HOLD_NS: usize = 34;
    /// Time for which launches were postponed because of [`super::grant::URGENT`], in nanoseconds, since the process attached.
    pub const POSTPONED_NS: usize = 35;
    /// First of [`BYPASS_REASONS`] counters of calls that bypassed the launch gate, by reason.
    pub const BYPASS: usize = 64;

    /// Counts the grants that the process has returned since it attached. A YIELD follows each of them, and a QUOTA if the process requests
    /// the next grant; a manager that polls at the end of a grant reads these words before. A manager that does not know them, or does
    /// not poll, reads the frames only.
    pub const RETURNS: usize = 112;
    /// GPU time used under the grant that was returned last, in nanoseconds.
    pub const RETURNED_USED_NS: usize = 113;
    /// The part of it after the deadline, in nanoseconds.
    pub const RETURNED_OVERUSE_NS: usize = 114;
    /// 0: the process requests no further grant for now; else one more than the expected length of its next burst in nanoseconds.
    pub const RETURNED_REQUEST: usize = 115;

    /// Latencies of the steps of a latency-critical process since it attached: their sum in nanoseconds, then their number in each of the
    /// [`BUCKETS`](crate::latency::BUCKETS) buckets. Zero if the hook does not measure them.
    pub const STEPS: usize = 128;
    /// The same of its requests.
    pub const REQUESTS: usize = 304;
    /// Requests that took longer than [`super::grant::SLO_NS`].
    pub const SLO_VIOLATIONS: usize = 480;
    /// Steps without a latency: the hook observed no wait for their end.
    pub const UNOBSERVED_STEPS: usize = 481;

    /// Flag of [`ACTIVITY`]: GPU work was submitted and is not known to have finished.
    pub const BUSY: u64 = 1 << 0;
}

/// Why a page cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PageError {
    /// Another page than expected, or a page that is not initialised.
    #[error("{page} page begins with 0x{found:016x}, expected 0x{expected:016x}")]
    Magic {
        /// Which page was expected.
        page: &'static str,
        /// The first word.
        found: u64,
        /// The expected word.
        expected: u64,
    },
    /// Another version of the layout.
    #[error("{page} page has layout version {found}, expected {OLDEST_PAGE_VERSION} to {PAGE_VERSION}")]
    Version {
        /// Which page was expected.
        page: &'static str,
        /// The version found.
        found: u64,
    },
}

const READABLE_VERSIONS: std::ops::RangeInclusive<u64> = OLDEST_PAGE_VERSION as u64..=PAGE_VERSION as u64;

/// Word index of the version in every page.
const VERSION: usize = 1;

const _: () = assert!(grant::VERSION == VERSION && report::VERSION == VERSION);

/// The words of a page: the standard atomics, or loom's in its model.
type Words<'a> = &'a [AtomicU64; WORDS];

/// Checks the two words that every page begins with.
fn check(page: &'static str, words: Words<'_>, expected: u64) -> Result<(), PageError> {
    match read(words, 0) {
        found if found != expected => Err(PageError::Magic { page, found, expected }),
        _ => match read(words, 1) {
            found if READABLE_VERSIONS.contains(&found) => Ok(()),
            found => Err(PageError::Version { page, found }),
        },
    }
}

/// Zeroes a page and writes its version and, last, its magic word.
fn init(words: Words<'_>, magic: u64, version: u32) {
    words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    words[1].store(u64::from(version), Ordering::Relaxed);
    words[0].store(magic, Ordering::Release);
}

/// Reads a word so that everything its writer stored before it is visible, too.
#[inline]
fn read(words: Words<'_>, index: usize) -> u64 {
    let value = words[index].load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    value
}
