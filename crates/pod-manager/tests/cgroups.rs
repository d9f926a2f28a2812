//! Real processes in real cgroups: a process in a container's cgroup belongs to the container's pod, whatever its environment,
//! its parent, its claim, or the cgroups that it creates below its own. This program has a process of its own and no test harness,
//! because it is also its own children.
//! Needs root and a cgroup hierarchy to make cgroups in; says so and ends well where there is none.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod support;

use sluice_comm::attach::AttachPayload;
use sluice_comm::{
    AttachStatus, Channel, Name, RESPONSE_LEN, Request, RequestBody, RequestKind, Response, ResponseBody,
};
use sluice_pod_manager::{Config, start};
use sluice_sys::memfd;
use sluice_sys::socket::send_with_fds;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::agent::{pod, uid};

/// Where hierarchies are mounted, the likeliest first.
const HIERARCHIES: [&str; 4] =
    ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup"];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["child", "attach", socket] => attach_and_say(socket),
        ["child", "stranger", control] => stranger(control),
        ["child", "fork", socket] => {
            print!("{}", say(&command(&["child", "attach", socket]).output().unwrap()))
        }
        // A tool that lists tests finds none here.
        [.., "--list"] => {}
        _ => processes_are_their_cgroups(),
    }
}

/// Attaches, claiming the name of another client; prints the status and the limit that it got.
fn attach_and_say(socket: &str) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let name = Name::new("ml/pod-0002").unwrap();
    let payload = AttachPayload { pid: 0, device_ordinal: 0, device_uuid: [0; 16], contexts: Vec::new() };
    let payload = memfd::sealed("attach", &payload.encode()).unwrap();
    let body = RequestBody::Attach { version: 1, channel: Channel::Memory, used_bytes: 0 };
    let frame = Request { name, id: 1, body }.encode().unwrap();
    assert_eq!(send_with_fds(stream.as_fd(), &frame, &[payload.as_fd()]).unwrap(), frame.len());
    let mut answer = [0; RESPONSE_LEN];
    stream.read_exact(&mut answer).unwrap();
    let ResponseBody::Attach { status, .. } = Response::decode(&answer, RequestKind::Attach).unwrap().body
    else {
        panic!("no answer to ATTACH")
    };
    if status != AttachStatus::Ok {
        return print!("{status:?}");
    }
    stream.write_all(&Request { name, id: 2, body: RequestBody::MemLimit }.encode().unwrap()).unwrap();
    stream.read_exact(&mut answer).unwrap();
    match Response::decode(&answer, RequestKind::MemLimit).unwrap().body {
        ResponseBody::MemLimit { limit, .. } => print!("{limit}"),
        other => panic!("{other:?}"),
    }
}

/// Speaks to the control socket as another user; prints how it was received.
fn stranger(control: &str) {
    let mut stream = match UnixStream::connect(control) {
        Ok(stream) => stream,
        Err(error) => return print!("{:?}", error.kind()),
    };
    // It may be closed before or after this.
    let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let mut answer = [0];
    match stream.read(&mut answer) {
        Ok(1) => print!("answered"),
        Ok(_) | Err(_) => print!("closed"),
    }
}

/// This program with these arguments and an empty environment.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments).env_clear();
    command
}

fn say(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A tree of cgroups like kubelet's below one of our own; removed when dropped.
struct Tree(PathBuf);

impl Tree {
    /// The reason if none can be made.
    fn plant() -> Result<Self, String> {
        let name = format!("sluice-test-{}", std::process::id());
        let mut why = String::new();
        for hierarchy in HIERARCHIES {
            let root = Path::new(hierarchy).join(&name);
            // A file system that is no hierarchy has no such file after mkdir.
            match fs::create_dir(&root).map(|()| root.join("cgroup.procs").exists()) {
                Ok(true) => return Ok(Self(root)),
                Ok(false) => drop(fs::remove_dir(&root)),
                Err(error) => why = format!("{hierarchy}: {error}"),
            }
        }
        Err(why)
    }

    fn make(&self, path: &str) -> PathBuf {
        let path = self.0.join(path);
        fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fn remove(path: &Path) {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.filter(|entry| entry.path().is_dir()).for_each(|entry| remove(&entry.path()));
            let _ = fs::remove_dir(path);
        }
        remove(&self.0);
    }
}

/// Runs a part in a cgroup: a shell moves itself there first, as a runtime would.
fn run_in(cgroup: &Path, arguments: &[&str]) -> String {
    let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(script).arg(cgroup).arg(std::env::current_exe().unwrap()).args(arguments).env_clear();
    say(&shell.output().unwrap())
}

fn processes_are_their_cgroups() {
    let tree = match Tree::plant() {
        Ok(tree) => tree,
        Err(why) => return println!("skipped: no cgroup can be made here ({why})"),
    };
    let container = "a".repeat(64);
    let one = tree.make(&format!("kubepods/burstable/pod{}/{container}", uid(1)));
    let exec = tree.make(&format!("kubepods/burstable/pod{}/{}", uid(1), "b".repeat(64)));
    let forged = tree.make(&format!(
        "kubepods/burstable/pod{}/{container}/kubepods/burstable/pod{}/{container}",
        uid(1),
        uid(2)
    ));
    let other = tree.make(&format!("kubepods/pod{}/{container}", uid(2)));
    let unknown = tree.make(&format!("kubepods/besteffort/pod{}/{container}", uid(3)));

    let directory = tempfile::tempdir().unwrap();
    let (socket, control) = (directory.path().join("gpu.sock"), directory.path().join("control.sock"));
    let mut config = Config::for_agent(&socket, &control, "GPU-real");
    if let sluice_pod_manager::ClientSource::Agent(agent) = &mut config.clients {
        agent.pending_time = std::time::Duration::ZERO;
    }
    let handle = start(config).unwrap();
    let mut agent = support::agent::Agent::connect_to(&control);
    let with = |n: usize, memory_bytes: u64| sluice_proto::control::Client { memory_bytes, ..pod(&uid(n)) };
    agent.set(&[with(1, 1111), with(2, 2222)]);
    let socket = socket.to_str().unwrap();

    assert_eq!(run_in(&one, &["child", "attach", socket]), "1111", "the container's process");
    assert_eq!(run_in(&one, &["child", "fork", socket]), "1111", "its child with an empty environment");
    assert_eq!(run_in(&exec, &["child", "attach", socket]), "1111", "another container of the pod");
    assert_eq!(
        run_in(&forged, &["child", "attach", socket]),
        "1111",
        "below a cgroup named like another pod"
    );
    assert_eq!(run_in(&other, &["child", "attach", socket]), "2222", "the other pod");
    assert_eq!(run_in(&unknown, &["child", "attach", socket]), "UnknownClient", "a pod that is no client");
    assert_eq!(run_in(&tree.0, &["child", "attach", socket]), "NotAllowed", "in no pod");
    assert_eq!(
        say(&command(&["child", "attach", socket]).output().unwrap()),
        "NotAllowed",
        "this process's child"
    );
    // Another user does not get at the control socket; nor would it if the file's mode let it.
    let other_user = |directory_mode: u32, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::process::CommandExt;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(directory_mode)).unwrap();
        fs::set_permissions(&control, fs::Permissions::from_mode(mode)).unwrap();
        say(&command(&["child", "stranger", control.to_str().unwrap()]).uid(65_534).output().unwrap())
    };
    assert_eq!(other_user(0o755, 0o600), "PermissionDenied");
    assert_eq!(other_user(0o755, 0o666), "closed");
    assert_eq!(
        say(&command(&["child", "stranger", control.to_str().unwrap()]).output().unwrap()),
        "answered"
    );

    handle.stop().unwrap();
    println!("real processes in real cgroups below {}: ok", tree.0.display());
}
