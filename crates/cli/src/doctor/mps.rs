//! Whether programs on this machine share contexts through an MPS server.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::child::Reported;
use super::finding::{CheckStatus, Finding};
use super::next_steps;

/// Default folder of an MPS daemon's pipes.
const PIPES: &str = "/tmp/nvidia-mps";
/// How long a daemon may take to accept a connection. A daemon that hangs makes programs hang too.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// State of an MPS daemon, from its folder of pipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Daemon {
    /// No daemon has used the folder.
    None,
    /// A daemon has ended and left its pipes: programs run without MPS.
    Left,
    /// A daemon accepts connections, or its state is unknown.
    Serves,
}

/// The finding, and whether tenants share channel groups.
pub(super) fn examine(reported: &Reported, simulated: bool) -> (Finding, bool) {
    let pipes = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map_or_else(|| PIPES.into(), PathBuf::from);
    let daemon = if simulated { Daemon::None } else { daemon(&pipes) };
    let is_client = reported.driver.as_ref().is_ok_and(|facts| facts.mps == Some(true));
    finding(is_client, daemon, &pipes)
}

fn finding(is_client: bool, daemon: Daemon, pipes: &Path) -> (Finding, bool) {
    let pipes = pipes.display();
    let shared = |found: String| (Finding::of("mps", CheckStatus::Degraded, found, next_steps::MPS), true);
    match daemon {
        _ if is_client => shared("programs here are clients of an MPS server".to_owned()),
        Daemon::Serves => shared(format!("an MPS daemon's pipes are at {pipes}")),
        Daemon::Left => {
            let found = format!("no server: an ended daemon has left the pipes at {pipes}");
            let next = format!("none needed; to remove them: rm -r {pipes}");
            (Finding::of("mps", CheckStatus::Ok, found, next), false)
        }
        Daemon::None => (Finding::ok("mps", "no server"), false),
    }
}

/// Connects to the daemon's socket, as programs do. The pid file is not used: its number may belong to another process by now, or to
/// another pid namespace. The daemon logs a connection without credentials and drops it.
fn daemon(pipes: &Path) -> Daemon {
    let control = pipes.join("control");
    if !control.exists() {
        return Daemon::None;
    }
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || sender.send(UnixStream::connect(control).map(drop)));
    match answer.recv_timeout(CONNECT_TIMEOUT) {
        Ok(Err(why)) if matches!(why.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
            Daemon::Left
        }
        _ => Daemon::Serves,
    }
}

#[cfg(test)]
mod tests;
