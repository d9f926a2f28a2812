//! The two pages that a manager and a client process share: layout and the rules for reading and writing it.
//!
//! The *grant page* is written by the manager and only read by the client. The *report page* is written by the client,
//! and the manager believes nothing in it that it can check. Both are 512 words of 64 bits, atomics only; the word
//! indices in [`grant`] and [`report`] are the layout of record. A word that no field uses is zero.
//!
//! Readers use relaxed loads with an acquire fence behind them: on a page mapped read-only Rust promises only relaxed
//! loads, and on x86-64 the two are the same instruction.

mod grant_view;
mod report_view;
pub(crate) mod sync;

pub use grant_view::{Flags, Grant, GrantView};
pub use report_view::ReportView;

use thiserror::Error;

/// Version of the layout of both pages. Version 1 lacks the words named so below; in its place they are zero, and writing
/// them does no harm. Both are read.
pub const PAGE_VERSION: u32 = 2;
/// The oldest version that is read.
pub const OLDEST_PAGE_VERSION: u32 = 1;
/// Words of a page.
pub const WORDS: usize = 512;
/// A deadline that means: no grant.
pub const NO_GRANT: u64 = 0;
/// A deadline that means: a grant until further notice, as latency-critical clients hold it.
pub const STANDING: u64 = u64::MAX;

/// Word indices of the grant page. Words of different temperature are 128 bytes apart, so that neither the cache
/// line nor its prefetched neighbour moves when another kind of word is written.
pub mod grant {
    /// "SLUICEGR" as a little-endian word.
    pub const MAGIC_VALUE: u64 = u64::from_le_bytes(*b"SLUICEGR");

    /// [`MAGIC_VALUE`], stored last when the page is set up.
    pub const MAGIC: usize = 0;
    /// [`super::PAGE_VERSION`].
    pub const VERSION: usize = 1;
    /// Bit 0 [`FAIL_CLOSED`], bit 1 [`TSC_VALID`], bit 2 [`LATENCY_CRITICAL`].
    pub const FLAGS: usize = 2;
    /// How much GPU time the client may have submitted and unfinished when its grant ends, in microseconds.
    pub const IN_FLIGHT_BOUND_US: usize = 3;
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
    /// 1: write to the doorbell's descriptor on going from idle to busy. From version 2 on.
    pub const ARMED: usize = 33;
    /// How many other processes may use the GPU now; 0: alone. From version 2 on.
    pub const COMPANY: usize = 34;
    /// Its low 32 bits: bit 0 [`GATE_CLOSED`], bit 1 [`GATES_WANTED`], the others count its changes; a futex, woken by the manager at
    /// each change. The client's own gates follow it: a word that only a manager can write must not hold the GPU, as the manager may die.
    pub const GATE: usize = 48;
    /// Byte offset of those 32 bits.
    pub const GATE_BYTES: usize = GATE * 8;

    /// Flag of [`GATE`]: what was submitted and has not begun is not to begin.
    pub const GATE_CLOSED: u32 = 1 << 0;
    /// Flag of [`GATE`]: gates are to be put in front of work, as somebody may have to go first.
    pub const GATES_WANTED: u32 = 1 << 1;
    /// Flag: without a manager, launch nothing.
    pub const FAIL_CLOSED: u64 = 1 << 0;
    /// Flag: the TSC can be compared with the deadline; else the client uses CLOCK_MONOTONIC.
    pub const TSC_VALID: u64 = 1 << 1;
    /// Flag: the client is latency-critical.
    pub const LATENCY_CRITICAL: u64 = 1 << 2;
}

/// Word indices of the report page, spaced as in [`grant`].
pub mod report {
    /// "SLUICERP" as a little-endian word.
    pub const MAGIC_VALUE: u64 = u64::from_le_bytes(*b"SLUICERP");
    /// Number of bypass counters.
    pub const BYPASS_REASONS: usize = 32;

    /// [`MAGIC_VALUE`], stored last when the page is set up.
    pub const MAGIC: usize = 0;
    /// [`super::PAGE_VERSION`].
    pub const VERSION: usize = 1;
    /// Its low 32 bits count the times a client with a standing grant went from idle to busy; a futex.
    pub const DOORBELL: usize = 16;
    /// Bit 0 [`BUSY`], the others count its changes. From version 2 on.
    pub const ACTIVITY: usize = 17;
    /// When the last change was, on CLOCK_MONOTONIC, in nanoseconds. From version 2 on.
    pub const ACTIVITY_NS: usize = 18;
    /// What the client's gates hold back: 0 nothing (or it does not say), [`GATES_HOST`], [`GATES_DEVICE`]. Who says 0 is charged as
    /// if it went on while its gate is closed. From version 2 on.
    pub const GATES: usize = 19;
    /// How many streams those gates are of: so many kernels may be running when they are closed. From version 2 on; hooks that do not
    /// count them leave it zero.
    pub const GATED_STREAMS: usize = 20;
    /// When a request is expected that the process has announced last, on CLOCK_MONOTONIC, in nanoseconds; 0: none yet. What HINT says,
    /// without the connection: the doorbell is rung for it. Only of somebody latency-critical, and only believed for a moment. From
    /// version 2 on.
    pub const ANNOUNCED_NS: usize = 21;
    /// When it was announced, on CLOCK_MONOTONIC, in nanoseconds: work that ended before is not what was announced. From version 2 on;
    /// hooks that do not say leave it zero.
    pub const ANNOUNCED_AT_NS: usize = 22;
    /// GPU time used, in nanoseconds, since the process attached.
    pub const BUSY_NS: usize = 32;
    /// When GPU work last finished, on CLOCK_MONOTONIC, in nanoseconds.
    pub const LAST_PROGRESS_NS: usize = 33;
    /// GPU time of holds that are over, in nanoseconds, since the process attached: what a latency-critical process took from others
    /// before its requests' own kernels were there. Not part of [`BUSY_NS`], though the two overlap where a hold lasts until the
    /// program waits. From version 2 on; hooks that do not count it leave it zero.
    pub const HOLD_NS: usize = 34;
    /// Launches let through, since the process attached.
    pub const LAUNCHES: usize = 48;
    /// First of [`BYPASS_REASONS`] counters of calls that went around the gate, by reason.
    pub const BYPASS: usize = 64;

    /// In [`GATES`]: what has not been submitted to the driver.
    pub const GATES_HOST: u64 = 1;
    /// In [`GATES`]: what has not begun on the GPU.
    pub const GATES_DEVICE: u64 = 2;
    /// Flag of [`ACTIVITY`]: GPU work was submitted and is not known to have finished.
    pub const BUSY: u64 = 1 << 0;
}

/// Why a page cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PageError {
    /// Not the page expected, or not set up.
    #[error("{page} page begins with 0x{found:016x}, expected 0x{expected:016x}")]
    Magic {
        /// Which page was expected.
        page: &'static str,
        /// The first word.
        found: u64,
        /// What it should be.
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

/// The versions that are read.
const READ: std::ops::RangeInclusive<u64> = OLDEST_PAGE_VERSION as u64..=PAGE_VERSION as u64;

/// Where every page has its version.
const VERSION: usize = 1;

const _: () = assert!(grant::VERSION == VERSION && report::VERSION == VERSION);

/// Checks the two words that every page begins with.
fn check(page: &'static str, words: sync::Words<'_>, expected: u64) -> Result<(), PageError> {
    match sync::read(words, 0) {
        found if found != expected => Err(PageError::Magic { page, found, expected }),
        _ => match sync::read(words, 1) {
            found if READ.contains(&found) => Ok(()),
            found => Err(PageError::Version { page, found }),
        },
    }
}

/// Zeroes a page and signs it, the magic last.
fn init(words: sync::Words<'_>, magic: u64, version: u32) {
    words.iter().for_each(|word| word.store(0, sync::Ordering::Relaxed));
    words[1].store(u64::from(version), sync::Ordering::Relaxed);
    words[0].store(magic, sync::Ordering::Release);
}
