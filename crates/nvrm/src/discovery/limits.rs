//! The bounds of discovery in one process. Rates per pod and per scan: `inspection_schedule.rs` and `kernel_discovery.rs` of
//! the pod-manager's `unhooked/scanning`.
//!
//! The unit is one driver query (GET_HANDLE_INFO): about 1 µs of a real driver, 20 µs of the simulator.

/// Open files of the control device that one process may have. A program has one or two, and each costs thousands of queries.
/// Files that lead only to groups of other GPUs do not count.
pub const MAX_FILES: usize = 32;

/// Descriptors of the control device that are copied from one process; several may be one open file.
pub const MAX_DESCRIPTORS: usize = 256;

/// Descriptors of one process of which the kind is read.
pub(super) const MAX_LISTED_DESCRIPTORS: usize = 1 << 16;

/// Descriptors of one process that an ownership check lists. The pod-manager searches no process with more.
pub(super) const MAX_CHECKED_DESCRIPTORS: usize = 1 << 14;

/// Queries, listed descriptors and comparisons of one ownership check.
pub const OWNERSHIP_QUERIES: u32 = 1 << 15;

/// Open files of one pod with which a new descriptor is compared.
pub(super) const MAX_COMPARED_FILES: usize = 256;

/// Client numbers queried at the first inspection of an open file.
pub(super) const FIRST_SEARCH: u32 = 1 << 15;

/// Client numbers queried at one inspection of an open file because they were given out since the last one.
pub(super) const NEWER_NUMBERS: u32 = 1 << 16;

/// A search that found a client ends after this many numbers without another.
pub(super) const NUMBERS_AFTER_CLIENT: u64 = 4_096;

/// Client numbers queried by a search that must end within one inspection.
pub(super) const SINGLE_SCAN: u32 = 1 << 22;

/// The least number of queries that one open file receives from a continued search.
pub(super) const MIN_CONTINUED: u32 = 1 << 12;

/// Scans (four a second) after which a file without any client is searched again from the newest number.
pub(super) const SCANS_BEFORE_RESTART: u64 = 2_400;

/// Queries about the objects of one process: one second of a real driver.
pub(super) const OBJECT_QUERIES: u32 = 1 << 20;

/// Objects of one client.
pub(super) const MAX_OBJECTS: u32 = 1 << 18;

/// A walk ends after this many consecutive handles without an object.
pub(super) const HANDLE_GAP: u32 = 8_192;
