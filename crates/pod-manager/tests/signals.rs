//! A manager in a process of its own is told by signals to end, or to read its resource file again. This program has no test harness, because the harness
//! keeps a thread that would take the signal.
#![allow(clippy::unwrap_used, reason = "a test")]

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_comm::{
    Name, RESPONSE_LEN, Request, RequestBody, RequestKind, Response, ResponseBody, UNREAD_REQUEST_ID,
};
use sluice_daemon::log::Format;
use sluice_pod_manager::{Config, run};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Set for the child: the directory in which it serves.
const SERVE: &str = "SLUICE_TEST_SERVE";

/// Set for the child if it serves the node agent.
const FOR_AGENT: &str = "SLUICE_TEST_FOR_AGENT";

/// What the child may have open at most; at first it is half of that.
const DESCRIPTORS: u64 = 60;

fn main() {
    if let Some(directory) = std::env::var_os(SERVE) {
        let directory = Path::new(&directory);
        sluice_daemon::log::init(Format::Text).unwrap();
        if std::env::var_os(FOR_AGENT).is_some() {
            let (socket, control) = (directory.join("gpu.sock"), directory.join("control.sock"));
            return run(Config::for_agent(socket, control, "GPU-test")).unwrap();
        }
        setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS / 2, DESCRIPTORS).unwrap();
        let policy = directory.join("policy.yaml");
        let policy_file = policy.exists().then_some(policy);
        run(Config { policy_file, ..Config::new(directory.join("gpu.sock"), directory.join("resources")) })
            .unwrap();
        return sluice_daemon::log::flush();
    }
    // A tool that lists tests finds none here.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        a_signal_ends_the_manager_in_order(signal);
        a_signal_ends_the_agents_manager_in_order(signal);
    }
    requests_are_answered_although_the_log_is_not_read();
    one_client_cannot_take_all_descriptors();
    sighup_reads_the_resource_file_again();
    sighup_reads_the_policy_file_again();
    sighup_leaves_the_agents_manager_as_it_is();
    next_manager_leaves_nothing_of_a_killed_one();
    next_manager_of_the_agent_leaves_nothing_of_a_killed_one();
}

fn a_signal_ends_the_manager_in_order(signal: Signal) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("resources"), "1\nbe-a 0.3 1.0 1024\n").unwrap();
    let socket = directory.path().join("gpu.sock");
    let mut manager = Manager::serves_a_file(directory.path());
    manager.until_it_serves(&socket);
    it_may_have_all_descriptors(manager.0.id());
    it_is_not_locked_out_by_silence(&socket);
    manager.send(signal);
    assert!(manager.ends_in_order(), "{signal} is an order to end, not an error");
    assert!(!socket.exists(), "its socket goes with it");
}

/// Once the control socket is visible clients are served; both sockets are removed with the manager.
fn a_signal_ends_the_agents_manager_in_order(signal: Signal) {
    let directory = tempfile::tempdir().unwrap();
    let (socket, control) = (directory.path().join("gpu.sock"), directory.path().join("control.sock"));
    let mut manager = Manager::serves_the_agent(directory.path());
    let _agent = manager.until_it_serves(&control);
    UnixStream::connect(&socket).unwrap();
    manager.send(signal);
    assert!(manager.ends_in_order(), "{signal} is an order to end, not an error");
    assert!(!socket.exists() && !control.exists(), "its sockets go with it");
}

/// The file is written through a hard link in another directory, which its own directory does not report.
fn sighup_reads_the_resource_file_again() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (file, link) = (directory.path().join("resources"), elsewhere.path().join("link"));
    fs::write(&file, "1\nbe-a 0.3 1.0 1024\n").unwrap();
    fs::hard_link(&file, &link).unwrap();
    let (socket, log) = (directory.path().join("gpu.sock"), elsewhere.path().join("log"));
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.env(SERVE, directory.path()).env("RUST_LOG", "info");
    let mut manager = Manager::spawn(command.stderr(File::create(&log).unwrap()));
    manager.until_it_serves(&socket);
    let times_logged = |word: &str| fs::read_to_string(&log).unwrap().matches(word).count();
    fs::write(&link, "2\nbe-a 0.3 1.0 2048\nbe-b 0.3 1.0 10\n").unwrap();
    manager.send(Signal::SIGHUP);
    until(&mut manager, "the new limit is in force", || memory_limit(&socket) == Some(2048));
    // Each request to read a wrong file again logs each mistake, and the clients stay.
    fs::write(&link, "2\nbe-a half 1.0 4096\nbe-b 0.3 1.0 many\n").unwrap();
    for times in [1, 2] {
        manager.send(Signal::SIGHUP);
        let logged = || times_logged("half") == times && times_logged("many") == times;
        until(&mut manager, "both mistakes are logged", logged);
        assert_eq!(memory_limit(&socket), Some(2048));
    }
    manager.send(Signal::SIGTERM);
    assert!(manager.ends_in_order());
}

/// The same of the policy file.
fn sighup_reads_the_policy_file_again() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (file, link) = (directory.path().join("policy.yaml"), elsewhere.path().join("link"));
    fs::write(directory.path().join("resources"), "1\nbe-a 0.3 1.0 1024\n").unwrap();
    fs::write(&file, "preemption: { scheduling: { quantum_ms: 40 } }\n").unwrap();
    fs::hard_link(&file, &link).unwrap();
    let log = elsewhere.path().join("log");
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.env(SERVE, directory.path()).env("RUST_LOG", "info");
    let mut manager = Manager::spawn(command.stderr(File::create(&log).unwrap()));
    manager.until_it_serves(&directory.path().join("gpu.sock"));
    fs::write(&link, "preemption: { scheduling: { quantum_ms: 50 } }\n").unwrap();
    manager.send(Signal::SIGHUP);
    let is_read = || fs::read_to_string(&log).unwrap().contains("policy file read anew");
    until(&mut manager, "the policy file is read", is_read);
    manager.send(Signal::SIGTERM);
    assert!(manager.ends_in_order());
}

/// Its clients come from the node agent.
fn sighup_leaves_the_agents_manager_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let mut manager = Manager::serves_the_agent(directory.path());
    manager.until_it_serves(&directory.path().join("control.sock"));
    manager.send(Signal::SIGHUP);
    manager.send(Signal::SIGTERM);
    assert!(manager.ends_in_order(), "SIGHUP ended it");
}

/// A manager is killed, and another one takes its place: neither a restart nor SIGHUP leaves a file.
fn next_manager_leaves_nothing_of_a_killed_one() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("resources"), "1\nbe-a 0.3 1.0 1024\n").unwrap();
    let socket = directory.path().join("gpu.sock");
    let mut killed = Manager::serves_a_file(directory.path());
    killed.until_it_serves(&socket);
    killed.is_killed();
    // One that was killed before it had published its socket.
    let unfinished = directory.path().join(format!("gpu.sock.{}", killed.0.id()));
    drop(UnixListener::bind(unfinished).unwrap());
    let mut next = Manager::serves_a_file(directory.path());
    next.until_it_serves(&socket);
    next.send(Signal::SIGHUP);
    assert_eq!(memory_limit(&socket), Some(1024));
    assert_eq!(names_in(directory.path()), ["gpu.sock", "resources"]);
    next.send(Signal::SIGTERM);
    assert!(next.ends_in_order());
    assert_eq!(names_in(directory.path()), ["resources"]);
}

fn next_manager_of_the_agent_leaves_nothing_of_a_killed_one() {
    let directory = tempfile::tempdir().unwrap();
    let control = directory.path().join("control.sock");
    let mut killed = Manager::serves_the_agent(directory.path());
    killed.until_it_serves(&control);
    killed.is_killed();
    assert_eq!(names_in(directory.path()), ["control.sock", "gpu.sock"], "what a killed manager leaves");
    let mut next = Manager::serves_the_agent(directory.path());
    next.until_it_serves(&control);
    next.send(Signal::SIGHUP);
    next.send(Signal::SIGTERM);
    assert!(next.ends_in_order());
    assert_eq!(names_in(directory.path()), [""; 0]);
}

/// The files in a directory, in the order of their names.
fn names_in(directory: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(directory).unwrap().map(name).collect();
    names.sort_unstable();
    names
}

/// A client opens as many connections as it gets, each of which counts as a process. Another client is served all the same, and the log
/// stays short.
fn one_client_cannot_take_all_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("resources"), "2\nbe-a 0.3 1.0 1024\nbe-b 0.3 1.0 2048\n").unwrap();
    let (socket, log) = (directory.path().join("gpu.sock"), directory.path().join("log"));
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.env(SERVE, directory.path()).env("RUST_LOG", "info");
    let mut manager = Manager::spawn(command.stderr(File::create(&log).unwrap()));
    manager.until_it_serves(&socket);
    let mut kept = Vec::new();
    for _ in 0..20 * DESCRIPTORS {
        kept.extend(request(&socket, "be-a").map(|(stream, _)| stream));
    }
    assert!(!kept.is_empty() && kept.len() < usize::try_from(DESCRIPTORS).unwrap());
    assert!(request(&socket, "be-b").is_some(), "refused beside {} connections of be-a", kept.len());
    manager.send(Signal::SIGTERM);
    assert!(manager.ends_in_order());
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.lines().count() < 100, "{} lines", log.lines().count());
}

/// A pipe holds 64 KiB, and each connection is several lines.
fn requests_are_answered_although_the_log_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("resources"), "1\nbe-a 0.3 1.0 1024\n").unwrap();
    let socket = directory.path().join("gpu.sock");
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.env(SERVE, directory.path()).env("RUST_LOG", "debug");
    let mut manager = Manager::spawn(command.stderr(Stdio::piped()));
    manager.until_it_serves(&socket);
    for connection in 0..2000 {
        // A connection is refused while the manager has not closed enough of the earlier ones yet.
        until(&mut manager, &format!("connection {connection} is answered"), || {
            memory_limit(&socket) == Some(1024)
        });
    }
    manager.send(Signal::SIGTERM);
    assert!(manager.ends_in_order());
}

fn until(manager: &mut Manager, what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        manager.has_not_ended(what);
        assert!(begun.elapsed() < Duration::from_secs(20), "time limit passed before: {what}");
        std::thread::yield_now();
    }
}

/// A manager in a process of its own, which ends with the test, also when the test fails.
struct Manager(Child);

impl Manager {
    fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn serves_a_file(directory: &Path) -> Self {
        Self::spawn(Command::new(std::env::current_exe().unwrap()).env(SERVE, directory))
    }

    fn serves_the_agent(directory: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        Self::spawn(command.env(SERVE, directory).env(FOR_AGENT, "1"))
    }

    fn send(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }

    fn has_not_ended(&mut self, what: &str) {
        assert_eq!(self.0.try_wait().unwrap(), None, "it ended before: {what}");
    }

    fn is_killed(&mut self) {
        self.send(Signal::SIGKILL);
        self.0.wait().unwrap();
    }

    fn ends_in_order(&mut self) -> bool {
        self.0.wait().unwrap().success()
    }

    /// Connects as soon as the manager serves.
    fn until_it_serves(&mut self, socket: &Path) -> UnixStream {
        loop {
            self.has_not_ended("it serves");
            if let Ok(stream) = UnixStream::connect(socket) {
                return stream;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The memory limit of `be-a`; `None`: the manager does not answer.
fn memory_limit(socket: &Path) -> Option<u64> {
    request(socket, "be-a").map(|(_, limit)| limit)
}

/// A connection on which the manager has answered a client with its memory limit.
fn request(socket: &Path, client: &str) -> Option<(UnixStream, u64)> {
    let name = Name::new(client).unwrap();
    let request = Request { name, id: 1, body: RequestBody::MemLimit };
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    stream.write_all(&request.encode().unwrap()).ok()?;
    let mut frame = [0; RESPONSE_LEN];
    stream.read_exact(&mut frame).ok()?;
    let response = Response::decode(&frame, RequestKind::MemLimit).unwrap();
    match response.body {
        // The manager answers that there is no room without having read the request.
        _ if response.id == UNREAD_REQUEST_ID => None,
        ResponseBody::MemLimit { limit, .. } => Some((stream, limit)),
        other => panic!("{other:?}"),
    }
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
