use std::os::unix::net::UnixListener;

use super::*;

#[test]
fn a_daemon_serves_if_it_accepts_connections() {
    let pipes = tempfile::tempdir().unwrap();
    assert_eq!(daemon(pipes.path()), Daemon::None);
    let listener = UnixListener::bind(pipes.path().join("control")).unwrap();
    std::fs::write(pipes.path().join("nvidia-cuda-mps-control.pid"), std::process::id().to_string()).unwrap();
    assert_eq!(daemon(pipes.path()), Daemon::Serves);
    drop(listener);
    // The socket and a pid file with an existing pid remain. A child that another test forks has the listener open until its exec.
    while daemon(pipes.path()) != Daemon::Left {
        thread::yield_now();
    }
}

#[test]
fn left_pipes_are_reported_and_do_not_lower_the_level() {
    let pipes = Path::new("/pipes");
    let (left, is_shared) = finding(false, Daemon::Left, pipes);
    assert_eq!((left.status, is_shared), (CheckStatus::Ok, false));
    assert!(left.found.contains("/pipes") && left.next.is_some_and(|next| next.contains("rm -r /pipes")));
    for (is_client, daemon) in [(true, Daemon::None), (true, Daemon::Left), (false, Daemon::Serves)] {
        let (found, is_shared) = finding(is_client, daemon, pipes);
        assert_eq!((found.status, is_shared), (CheckStatus::Degraded, true), "{found:?}");
    }
    assert!(!finding(false, Daemon::None, pipes).1);
}
