//! Sockets of managers that were killed, of GPUs that this node no longer has. A manager replaces an abandoned socket of its own GPU.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use sluice_sys::socket::connect_within;
use tracing::{info, warn};

/// How long a listener whose queue of connections is full is asked.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(100);

/// Removes the sockets in a folder of managers that belong to none of these GPUs and on which no process listens: `<gpu-uuid>.sock`, and
/// `<gpu-uuid>.sock.<pid>` of a manager that was killed before it had published its socket. What cannot be removed stays.
pub(super) fn remove(folder: &Path, gpus: &BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let Some((gpu, suffix)) = name.to_str().and_then(|name| name.split_once(".sock")) else { continue };
        let is_of_manager = suffix.is_empty() || suffix.starts_with('.');
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        if gpus.contains(gpu) || !is_of_manager || !is_socket || is_served(&path) {
            continue;
        }
        match fs::remove_file(&path) {
            Ok(()) => info!(socket = %path.display(), "removed the socket of a manager that was killed"),
            Err(why) => {
                warn!(socket = %path.display(), %why, "cannot remove the socket of a manager that was killed")
            }
        }
    }
}

/// Whether a process may listen there: only a refused connection proves that none does.
fn is_served(path: &Path) -> bool {
    let connected = connect_within(path, CONNECT_TIMEOUT);
    !connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
