//! The folders that the agent keeps on the node.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use anyhow::Context;

use crate::config::Config;

/// Creates missing folders and sets their modes: pods may read the sockets, only the agent the control sockets.
pub(crate) fn prepare(config: &Config) -> anyhow::Result<()> {
    folder(&config.host.state_folder, 0o755)?;
    folder(&config.control_folder(), 0o700)?;
    folder(&config.self_test_folder(), 0o700)?;
    folder(&config.host.socket_folder, 0o755)
}

fn folder(path: &Path, mode: u32) -> anyhow::Result<()> {
    let context = || format!("cannot prepare the folder {}", path.display());
    DirBuilder::new().recursive(true).mode(mode).create(path).with_context(context)?;
    // An existing folder may have another mode, and the umask may have reduced ours.
    fs::set_permissions(path, Permissions::from_mode(mode)).with_context(context)
}

#[cfg(test)]
mod tests;
