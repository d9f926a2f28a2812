//! Real processes: the manager identifies the process at the other end and detects its end. The children are this test program.

use crate::support::{World, http};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_comm::attach::AttachPayload;
use sluice_comm::{Channel, Name, RESPONSE_LEN, Request, RequestBody, RequestKind, Response, ResponseBody};
use sluice_pod_manager::{Config, Handle, start};
use sluice_sys::memfd;
use sluice_sys::socket::send_with_fds;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Tells the child which part it plays.
const PART: &str = "SLUICE_TEST_PART";
const SOCKET: &str = "SLUICE_TEST_SOCKET";

fn request(stream: &mut UnixStream, body: RequestBody, fd: Option<&OwnedFd>) {
    let frame = Request { name: Name::new("be-a").unwrap(), id: 1, body }.encode().unwrap();
    let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
    assert_eq!(send_with_fds(stream.as_fd(), &frame, &fds).unwrap(), frame.len());
}

fn answer(stream: &mut UnixStream, kind: RequestKind) -> ResponseBody {
    let mut frame = [0; RESPONSE_LEN];
    stream.read_exact(&mut frame).unwrap();
    Response::decode(&frame, kind).unwrap().body
}

fn attach(socket: &str, channel: Channel) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    let payload = AttachPayload { pid: 0, device_ordinal: 0, device_uuid: [0; 16], contexts: Vec::new() };
    let payload = memfd::sealed("attach", &payload.encode()).unwrap();
    request(&mut stream, RequestBody::Attach { version: 1, channel, used_bytes: 0 }, Some(&payload));
    answer(&mut stream, RequestKind::Attach);
    stream
}

/// Ends a process whose parent has ended.
struct Orphan(Pid);

impl Drop for Orphan {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

/// What a child does, if this program is one: reserves memory, takes the token, says so, waits.
#[test]
#[expect(clippy::zombie_processes, reason = "the sleeper is to outlive this process, and init reaps it")]
fn role_of_a_child() {
    let Ok(part) = std::env::var(PART) else { return };
    let socket = std::env::var(SOCKET).unwrap();
    let mut memory = attach(&socket, Channel::Memory);
    let mut token = attach(&socket, Channel::Token);
    request(&mut memory, RequestBody::MemUpdate { bytes: 1000, allocate: true }, None);
    let granted = answer(&mut memory, RequestKind::MemUpdate);
    request(&mut token, RequestBody::Quota { overuse_ms: 0.0, next_burst_ms: 0.0 }, None);
    answer(&mut token, RequestKind::Quota);
    if part == "with a child" {
        // A copy of each socket lives on in a process that outlives this one.
        let copies = [&memory, &token].map(|stream| stream.as_fd().try_clone_to_owned().unwrap());
        for copy in &copies {
            nix::fcntl::fcntl(copy, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
        }
        let sleeper =
            Command::new("sleep").arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        println!("sleeper {}", sleeper.id());
    }
    assert_eq!(granted, ResponseBody::MemUpdate { granted: true });
    println!("ready 0");
    std::io::stdout().flush().unwrap();
    let mut rest = String::new();
    std::io::stdin().read_line(&mut rest).unwrap();
}

/// A child process that runs one role of the tests; killed when dropped.
struct ChildProcess {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl ChildProcess {
    fn start(role: &str, socket: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::role_of_a_child", "--nocapture"])
            .envs([(PART, role), (SOCKET, socket)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// The number that the child prints after this word.
    fn read_number(&mut self, word: &str) -> i32 {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(
                self.output.read_line(&mut line).unwrap() > 0,
                "the child ended before it printed {word}"
            );
            // The test harness may have begun the line.
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().parse().unwrap();
            }
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Real {
    _directory: TempDir,
    config: Config,
    file: std::path::PathBuf,
}

impl Real {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("resources");
        std::fs::write(&file, crate::support::CLIENTS).unwrap();
        let mut config = Config::new(directory.path().join("deep/down/gpu.sock"), &file);
        config.metrics = Some(([127, 0, 0, 1], 0).into());
        // Longer than the test: a grant passes on only because a process has ended.
        config.return_timeout = Duration::from_secs(60);
        Self { _directory: directory, config, file }
    }

    fn socket(&self) -> String {
        self.config.socket.to_str().unwrap().to_owned()
    }

    fn start(&self) -> Handle {
        start(self.config.clone()).unwrap()
    }
}

/// Waits until the manager shows this.
fn until(handle: &Handle, sample: &str) {
    let shows = || http::get(handle.metrics().unwrap(), "/metrics").1.lines().any(|line| line == sample);
    crate::support::until(sample, shows);
}

#[test]
fn a_killed_processs_token_and_memory_come_back() {
    let real = Real::new();
    let handle = real.start();
    let mut process = ChildProcess::start("alone", &real.socket());
    process.read_number("ready ");
    until(&handle, "sluice_memory_used_bytes{client=\"be-a\"} 1000");
    until(&handle, "sluice_processes{client=\"be-a\"} 1");
    process.kill();
    until(&handle, "sluice_memory_used_bytes{client=\"be-a\"} 0");
    until(&handle, "sluice_processes{client=\"be-a\"} 0");
    handle.stop().unwrap();
}

#[test]
fn a_parent_that_dies_gives_back_what_it_held_although_its_child_holds_the_sockets() {
    let real = Real::new();
    let handle = real.start();
    let mut process = ChildProcess::start("with a child", &real.socket());
    let sleeper = Orphan(Pid::from_raw(process.read_number("sleeper ")));
    process.read_number("ready ");
    until(&handle, "sluice_memory_used_bytes{client=\"be-a\"} 1000");
    process.kill();
    let mut next = ChildProcess::start("alone", &real.socket());
    // It gets the token, which the dead one had; and the dead one's memory is free, though the child still lives.
    next.read_number("ready ");
    until(&handle, "sluice_memory_used_bytes{client=\"be-a\"} 1000");
    assert_eq!(kill(sleeper.0, None), Ok(()), "the child was to outlive its parent");
    handle.stop().unwrap();
}

#[test]
fn the_socket_is_made_with_its_directory_replaces_a_stale_one_and_goes_in_the_end() {
    use std::os::unix::fs::PermissionsExt;
    let real = Real::new();
    let handle = real.start();
    let mode = std::fs::metadata(&real.config.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    // A second manager leaves the first one alone.
    let refused = start(real.config.clone()).unwrap_err().to_string();
    assert!(refused.contains("gpu.sock") && refused.contains("another manager"), "{refused}");
    attach(&real.socket(), Channel::Memory);
    handle.stop().unwrap();
    assert!(!real.config.socket.exists());
    // What a killed manager leaves behind.
    drop(std::os::unix::net::UnixListener::bind(&real.config.socket).unwrap());
    let handle = real.start();
    attach(&real.socket(), Channel::Memory);
    handle.stop().unwrap();
    // What is no socket is not touched.
    std::fs::write(&real.config.socket, "precious").unwrap();
    assert!(start(real.config.clone()).is_err());
    assert_eq!(std::fs::read_to_string(&real.config.socket).unwrap(), "precious");
    assert_eq!(
        std::fs::read_dir(real.config.socket.parent().unwrap()).unwrap().count(),
        1,
        "nothing left beside it"
    );
}

#[test]
fn every_mistake_at_the_start_is_reported() {
    let real = Real::new();
    std::fs::write(&real.file, "2\nbe-a 2 1 x\n").unwrap();
    let error = start(real.config.clone()).unwrap_err().to_string();
    for part in ["3 mistakes", "be-a.request", "be-a.memory", "count"] {
        assert!(error.contains(part), "{error}");
    }
    std::fs::remove_file(&real.file).unwrap();
    let error = start(real.config.clone()).unwrap_err().to_string();
    assert!(error.contains("cannot read resource file"), "{error}");
    let config = Config { capacity: 0, ..real.config.clone() };
    assert!(start(config).unwrap_err().to_string().contains("capacity is 0"));
    assert!(!real.config.socket.exists());
}

/// A manager makes its socket beside the path and renames it. One that is killed between the two leaves it behind.
#[test]
fn unfinished_sockets_of_killed_managers_are_removed_at_the_next_start() {
    let mut world = World::new();
    world.stop();
    let beside = |suffix: &str| PathBuf::from(format!("{}.{suffix}", world.socket().display()));
    // The highest pid that Linux has is 4194304.
    let (left, other) = (beside("4194305"), beside("backup"));
    drop(UnixListener::bind(&left).unwrap());
    std::fs::write(&other, "").unwrap();
    world.start();
    assert!(!left.exists(), "of a process that has ended");
    assert!(other.exists(), "a file that no manager has made");
}

/// Its name is that of another manager's unfinished socket, whose number is no pid of this machine.
#[test]
fn socket_of_a_running_manager_is_kept_although_it_is_named_like_an_unfinished_one() {
    let mut world = World::new();
    world.stop();
    let names = ["4194305".to_owned(), std::process::id().to_string()];
    let sockets = names.map(|name| PathBuf::from(format!("{}.{name}", world.socket().display())));
    let _managers = sockets.each_ref().map(|socket| UnixListener::bind(socket).unwrap());
    // This process's own socket would have the second name.
    assert!(sluice_pod_manager::start(world.config.clone()).is_err());
    assert!(sockets.iter().all(|socket| UnixStream::connect(socket).is_ok()));
    std::fs::remove_file(&sockets[1]).unwrap();
    world.start();
    assert!(UnixStream::connect(&sockets[0]).is_ok());
}
