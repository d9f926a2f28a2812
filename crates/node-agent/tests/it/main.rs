//! The integration tests of the node agent: one binary for all that may share a process.
//!
//! `descriptors`, `library_umask` and `simulated_driver` beside this folder change the whole process (descriptor limit,
//! umask, environment), so each is a binary of its own.
#![allow(clippy::unwrap_used, clippy::new_without_default, reason = "tests")]
#![allow(dead_code, unreachable_pub, missing_docs, reason = "the modules share helpers")]

mod agent;
mod device_plugin;
#[path = "../support/fake_gpus.rs"]
mod fake_gpus;
mod library;
mod library_cleanup;
mod library_usage;
mod support;
