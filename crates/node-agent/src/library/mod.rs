//! The host's copies of `libsluice.so`, in the folder that pods get mounted.
//!
//! Each version has a folder named by the SHA-256 of the library: `ROOT/<sha256>/{libsluice.so, ld.so.preload}`. A
//! folder never changes while a pod may have it mounted. An upgrade of Sluice adds a folder and does not affect
//! running pods; versions that no pod uses are removed later.
//!
//! All functions except [`collect_periodically`] block on the disk, for milliseconds.

mod collector;
mod files;
mod install;
mod loader;
mod usage;
mod version;

pub use collector::{CollectError, Collector, collect_periodically};
pub use files::Error;
pub use install::{CONTAINER_ROOT, Installed, LIBRARY_FILE, Library, PRELOAD_FILE};
pub use loader::loader_refusal;
pub use usage::{Usage, UsageError};
pub use version::Version;
