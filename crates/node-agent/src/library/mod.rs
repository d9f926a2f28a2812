//! The host's copies of `libsluice.so`: the folder that pods get mounted.
//!
//! Each version lies in a folder of its own, named by the SHA-256 of the library: `ROOT/<sha256>/{libsluice.so,
//! ld.so.preload}`. A folder never changes while a pod may have it mounted, so an upgrade of Sluice puts a new folder
//! beside the old ones and leaves running pods alone; what no pod uses any more is removed later.
//!
//! * [`Library::install`] puts the image's library there, whatever it finds, and returns an [`Installed`], which also
//!   keeps this version from being collected by another agent.
//! * [`Usage::versions`] says which versions pods have, from kubelet's own records: nothing of ours has to survive a restart.
//! * [`Library::collect`] removes the others; [`tidy`] does both now and then, by a [`Tidier`].
//!
//! All of it but [`tidy`] blocks on the disk, for milliseconds.

mod collect;
mod entry;
mod error;
mod install;
mod usage;
mod version;

pub use collect::{Tidier, TidyError, tidy};
pub use error::Error;
pub use install::{CONTAINER_ROOT, Installed, LIBRARY_FILE, Library, PRELOAD_FILE};
pub use usage::{Usage, UsageError};
pub use version::Version;
