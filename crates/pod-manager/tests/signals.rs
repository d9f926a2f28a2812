//! A manager in a process of its own is told to end by a signal. This program has no test harness, because the harness
//! keeps a thread that would take the signal.
#![allow(clippy::unwrap_used, reason = "a test")]

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_comm::{Name, RESPONSE_LEN, Request, RequestBody};
use sluice_pod_manager::{Config, run};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Set for the child: the directory in which it serves.
const SERVE: &str = "SLUICE_TEST_SERVE";

/// Set for the child if it serves the node agent.
const FOR_AGENT: &str = "SLUICE_TEST_FOR_AGENT";

/// What the child may have open at most; at first it is half of that.
const DESCRIPTORS: u64 = 60;

fn main() {
    if let Some(directory) = std::env::var_os(SERVE) {
        let directory = Path::new(&directory);
        if std::env::var_os(FOR_AGENT).is_some() {
            let (socket, control) = (directory.join("gpu.sock"), directory.join("control.sock"));
            return run(Config::for_agent(socket, control, "GPU-test")).unwrap();
        }
        setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS / 2, DESCRIPTORS).unwrap();
        return run(Config::new(directory.join("gpu.sock"), directory.join("resources"))).unwrap();
    }
    // A tool that lists tests finds none here.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        a_signal_ends_the_manager_in_order(signal);
        a_signal_ends_the_agents_manager_in_order(signal);
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
    it_may_have_all_descriptors(child.id());
    it_is_not_locked_out_by_silence(&socket);
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
    assert!(child.wait().unwrap().success(), "{signal} is an order to end, not an error");
    assert!(!socket.exists(), "its socket goes with it");
}

/// Once the control socket is visible clients are served; both sockets are removed with the manager.
fn a_signal_ends_the_agents_manager_in_order(signal: Signal) {
    let directory = tempfile::tempdir().unwrap();
    let (socket, control) = (directory.path().join("gpu.sock"), directory.path().join("control.sock"));
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut child = command.env(SERVE, directory.path()).env(FOR_AGENT, "1").spawn().unwrap();
    let _agent = loop {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it served");
        if let Ok(stream) = UnixStream::connect(&control) {
            break stream;
        }
        std::thread::yield_now();
    };
    UnixStream::connect(&socket).unwrap();
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
    assert!(child.wait().unwrap().success(), "{signal} is an order to end, not an error");
    assert!(!socket.exists() && !control.exists(), "its sockets go with it");
}

fn it_may_have_all_descriptors(pid: u32) {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let most = DESCRIPTORS.to_string();
    assert_eq!(line.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), [&most, &most]);
}

/// Connections that send nothing take all descriptors; a later one is served all the same.
fn it_is_not_locked_out_by_silence(socket: &Path) {
    let silent: Vec<UnixStream> = (0..DESCRIPTORS).map(|_| UnixStream::connect(socket).unwrap()).collect();
    let name = Name::new("be-a").unwrap();
    let frame = Request { name, id: 1, body: RequestBody::MemLimit }.encode().unwrap();
    let served = || {
        let mut stream = UnixStream::connect(socket)?;
        // Against hanging if no answer comes.
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(&frame)?;
        stream.read_exact(&mut [0; RESPONSE_LEN])
    };
    assert!((0..20).any(|_| served().is_ok()), "locked out by {} silent connections", silent.len());
}
