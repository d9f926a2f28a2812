//! Checks of settings that containers often lack.

use std::fs;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit};

use super::finding::{CheckStatus, Finding};
use super::next_steps::SHM;

/// Open files that the hook needs in a process.
const FILES: u64 = 256;

/// Makes all checks of this module.
pub(super) fn examine() -> Vec<Finding> {
    vec![shared_memory(), files(), preloaded()]
}

fn shared_memory() -> Finding {
    match tempfile::tempfile_in("/dev/shm") {
        Ok(_) => Finding::ok("dev_shm", "writable"),
        Err(why) => Finding::of("dev_shm", CheckStatus::Degraded, format!("/dev/shm: {why}"), SHM),
    }
}

fn files() -> Finding {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, _)) if soft >= FILES => Finding::ok("open_files", format!("limit {soft}")),
        Ok((soft, _)) => Finding::of(
            "open_files",
            CheckStatus::Degraded,
            format!("limit {soft}, {FILES} are needed"),
            format!("ulimit -n {FILES} or more"),
        ),
        Err(why) => Finding::of("open_files", CheckStatus::Inconclusive, why.to_string(), "ulimit -n"),
    }
}

/// The libraries that the loader puts into every program of this container or machine.
fn preloaded() -> Finding {
    let text = fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
    match named(&text) {
        Some(path) if Path::new(path).is_file() => Finding::ok("ld_so_preload", format!("loads {path}")),
        Some(path) => Finding::of(
            "ld_so_preload",
            CheckStatus::Broken,
            format!(
                "/etc/ld.so.preload names {path}, which does not exist: every program here starts with an error and without the hook"
            ),
            "mount the library's directory, or remove the line",
        ),
        None => Finding::skipped(
            "ld_so_preload",
            "no line for libsluice.so: right on a node, wrong in a tenant's container",
        ),
    }
}

/// The hook among the libraries that a file of this form names.
fn named(preload: &str) -> Option<&str> {
    let loaded = preload.lines().filter_map(|line| line.split('#').next());
    loaded.flat_map(|line| line.split([' ', ':', '\t'])).find(|word| word.ends_with("libsluice.so"))
}

#[cfg(test)]
mod tests;
