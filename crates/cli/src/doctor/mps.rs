//! Whether programs here share their contexts through an MPS server.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::child::Said;
use super::finding::{Finding, Standing};
use super::next;

/// Where a daemon's pipes are if nobody says otherwise.
const PIPES: &str = "/tmp/nvidia-mps";
/// How long a daemon may take to let somebody connect: one that hangs hangs programs just so.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a folder of pipes says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Daemon {
    /// There never was one.
    None,
    /// It has ended and left its pipes: programs run as without.
    Left,
    /// It takes connections, or it cannot be told that it does not.
    Serves,
}

/// What is found, and whether groups are shared.
pub(super) fn examine(said: &Said, simulated: bool) -> (Finding, bool) {
    let pipes = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map_or_else(|| PIPES.into(), PathBuf::from);
    let daemon = if simulated { Daemon::None } else { daemon(&pipes) };
    let is_client = said.driver.as_ref().is_ok_and(|facts| facts.mps == Some(true));
    judge(is_client, daemon, &pipes)
}

fn judge(is_client: bool, daemon: Daemon, pipes: &Path) -> (Finding, bool) {
    let pipes = pipes.display();
    let shared = |found: String| (Finding::of("mps", Standing::Degraded, found, next::MPS), true);
    match daemon {
        _ if is_client => shared("programs here are clients of an MPS server".to_owned()),
        Daemon::Serves => shared(format!("an MPS daemon's pipes are at {pipes}")),
        Daemon::Left => {
            let found = format!("no server: the pipes at {pipes} are what one has left behind");
            (
                Finding::of(
                    "mps",
                    Standing::Ok,
                    found,
                    format!("none needed; to be rid of them: rm -r {pipes}"),
                ),
                false,
            )
        }
        Daemon::None => (Finding::ok("mps", "no server"), false),
    }
}

/// Programs find a daemon by connecting to its socket, and so does this: the number in its pid file may be another's by now,
/// or of another pid namespace. The daemon notes a connection without credentials in its log and forgets it.
fn daemon(pipes: &Path) -> Daemon {
    let control = pipes.join("control");
    if !control.exists() {
        return Daemon::None;
    }
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || sender.send(UnixStream::connect(control).map(drop)));
    match answer.recv_timeout(PATIENCE) {
        Ok(Err(why)) if matches!(why.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
            Daemon::Left
        }
        _ => Daemon::Serves,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_daemon_is_one_that_takes_connections() {
        let pipes = tempfile::tempdir().unwrap();
        assert_eq!(daemon(pipes.path()), Daemon::None);
        let listener = UnixListener::bind(pipes.path().join("control")).unwrap();
        std::fs::write(pipes.path().join("nvidia-cuda-mps-control.pid"), std::process::id().to_string())
            .unwrap();
        assert_eq!(daemon(pipes.path()), Daemon::Serves);
        drop(listener);
        // Its socket and a pid file that names somebody are still there. A child that another test starts just then has the listener
        // until it is another program.
        while daemon(pipes.path()) != Daemon::Left {
            thread::yield_now();
        }
    }

    #[test]
    fn what_a_daemon_left_behind_is_told_and_costs_no_level() {
        let pipes = Path::new("/pipes");
        let (left, is_shared) = judge(false, Daemon::Left, pipes);
        assert_eq!((left.standing, is_shared), (Standing::Ok, false));
        assert!(left.found.contains("/pipes") && left.next.is_some_and(|next| next.contains("rm -r /pipes")));
        for (is_client, daemon) in [(true, Daemon::None), (true, Daemon::Left), (false, Daemon::Serves)] {
            let (found, is_shared) = judge(is_client, daemon, pipes);
            assert_eq!((found.standing, is_shared), (Standing::Degraded, true), "{found:?}");
        }
        assert!(!judge(false, Daemon::None, pipes).1);
    }
}
