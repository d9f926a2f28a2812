use super::*;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Answers in the order in which it is asked.
struct Script(VecDeque<(&'static str, io::Result<String>)>);

impl ProcFs for Script {
    fn read(&mut self, _pid: i32, file: &str) -> io::Result<String> {
        let (expected, answer) = self.0.pop_front().expect("no more questions");
        assert_eq!(file, expected);
        answer
    }

    fn is_process(&mut self, _: i32) -> bool {
        true
    }
}

fn stat(started: u64) -> io::Result<String> {
    Ok(format!("77 (a) b (c)) S 1 77 77 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 {started} 1000 1"))
}

fn look(answers: Vec<(&'static str, io::Result<String>)>) -> io::Result<Peer> {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    KernelPeers::with_proc(Script(answers.into())).identify(ours.as_fd())
}

fn gone() -> Option<i32> {
    Some(nix::libc::ESRCH)
}

#[test]
fn peer_whose_start_time_stays_the_same_is_accepted() {
    let cgroup = || Ok("0::/kubepods\n".to_owned());
    let peer = look(vec![("stat", stat(5)), ("cgroup", cgroup()), ("stat", stat(5))]).unwrap();
    assert_eq!(peer.started, Some(5));
    let place = Place { command: "a) b (c)".into(), cgroup: "0::/kubepods\n".into() };
    assert_eq!(peer.place, Some(place));
}

#[test]
fn pid_reused_while_it_is_read_is_refused() {
    // Its cgroup is that of the newcomer, whose start is later.
    let cgroup = Ok("0::/kubepods\n".to_owned());
    let error = look(vec![("stat", stat(5)), ("cgroup", cgroup), ("stat", stat(6))]).unwrap_err();
    assert_eq!(error.raw_os_error(), gone());
    // No process has the pid any more.
    let vanished = || Err(io::Error::from_raw_os_error(nix::libc::ENOENT));
    assert!(look(vec![("stat", vanished())]).is_err());
    assert!(look(vec![("stat", stat(5)), ("cgroup", vanished())]).is_err());
}

#[test]
fn pid_reused_before_it_is_read_is_refused() {
    // The peer is a process that has ended, although /proc has one of its number.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])";
    let run = std::process::Command::new("python3").arg("-c").arg(script).arg(&path).status();
    let Ok(status) = run else { return println!("skipped: no python3 to connect and end") };
    assert!(status.success());
    let (ours, _) = listener.accept().unwrap();
    let cgroup = Ok("0::/kubepods\n".to_owned());
    let answers = vec![("stat", stat(5)), ("cgroup", cgroup), ("stat", stat(5))];
    let error = KernelPeers::with_proc(Script(answers.into())).identify(ours.as_fd()).unwrap_err();
    assert_eq!(error.raw_os_error(), gone());
}

#[test]
fn kernel_identifies_this_process() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let peer = KernelPeers::with_places().identify(ours.as_fd()).unwrap();
    assert_eq!(u32::try_from(peer.credentials.pid), Ok(std::process::id()));
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    assert_eq!(peer.place.map(|place| place.cgroup), Some(own));
    let standalone = KernelPeers::<KernelProc>::default().identify(ours.as_fd()).unwrap();
    assert_eq!(standalone.place, None);
}

fn pod_in(pid: i32, cgroup: Option<&str>) -> Result<PodCgroup, String> {
    let place = cgroup.map(|cgroup| Place { command: "python\u{1b}3".into(), cgroup: cgroup.to_owned() });
    let credentials = PeerCredentials { pid, uid: 0, gid: 0 };
    Peer { credentials, started: Some(1), pidfd: None, place }.pod()
}

#[test]
fn cgroup_decides_which_pod_a_peer_is_in() {
    let uid = "0b6b5d2c-6a4e-4f0b-9d7e-3f1c2a5b7d90";
    let pod = pod_in(7, Some(&format!("0::/kubepods/pod{uid}/{}\n", "a".repeat(64)))).unwrap();
    assert_eq!((pod.uid, pod.container), (uid.into(), Some("a".repeat(64))));
}

#[test]
fn refusal_names_the_cgroup_or_asks_for_the_host_pid_namespace() {
    let refusal = pod_in(1234, Some("0::/system.slice/ssh.service\n")).unwrap_err();
    assert_eq!(
        refusal,
        "process 1234 (\"python\\u{1b}3\") is in no pod: its cgroup is \"/system.slice/ssh.service\""
    );
    assert!(pod_in(0, None).unwrap_err().contains("hostPID"));
}

#[test]
fn number_of_a_process_is_known_in_each_of_its_pid_namespaces() {
    let status = "Name:\tpython3\nUmask:\t0022\nNStgid:\t81234\t17\nNSpid:\t81234\t17\nNSpgid:\t81234\t17\n";
    let mut peers = KernelPeers::with_proc(Script([("status", Ok(status.to_owned()))].into()));
    assert_eq!(peers.namespace_pids(81234), [81234, 17]);
    let mut peers = KernelPeers::with_proc(Script([("status", Err(io::ErrorKind::NotFound.into()))].into()));
    assert_eq!(peers.namespace_pids(81234), [81234]);
}
