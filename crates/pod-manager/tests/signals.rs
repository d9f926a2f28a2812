//! A manager in a process of its own is told to end by a signal. This program has no test harness, because the harness
//! keeps a thread that would take the signal.
#![allow(clippy::unwrap_used, reason = "a test")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_pod_manager::{Config, run};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

/// Set for the child: the directory in which it serves.
const SERVE: &str = "SLUICE_TEST_SERVE";

fn main() {
    if let Some(directory) = std::env::var_os(SERVE) {
        let directory = Path::new(&directory);
        return run(Config::new(directory.join("gpu.sock"), directory.join("resources"))).unwrap();
    }
    // Whoever lists tests finds none here.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        a_signal_ends_the_manager_in_order(signal);
    }
}

fn a_signal_ends_the_manager_in_order(signal: Signal) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("resources"), "1\nbe-a 0.3 1.0 1024\n").unwrap();
    let socket = directory.path().join("gpu.sock");
    let mut child =
        Command::new(std::env::current_exe().unwrap()).env(SERVE, directory.path()).spawn().unwrap();
    while UnixStream::connect(&socket).is_err() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it served");
        std::thread::yield_now();
    }
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
    assert!(child.wait().unwrap().success(), "{signal} is an order to end, not an error");
    assert!(!socket.exists(), "its socket goes with it");
}
