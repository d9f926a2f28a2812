use super::*;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

const POD: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// A /proc in which exactly these processes are in a pod.
struct InPod(Vec<i32>);

impl ProcFs for InPod {
    fn read(&mut self, pid: i32, file: &str) -> io::Result<String> {
        match file {
            "cgroup" if self.0.contains(&pid) => {
                Ok(format!("0::/kubepods/besteffort/pod{POD}/{}\n", "a".repeat(64)))
            }
            "cgroup" => Ok("0::/\n".into()),
            file => KernelProc.read(pid, file),
        }
    }

    fn is_process(&mut self, _: i32) -> bool {
        true
    }
}

#[test]
fn process_that_closed_the_driver_stays_a_candidate_without_groups() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    // Afterwards it opens no file, which would have the number of the closed one.
    let mut child = Command::new("sh")
        .args(["-c", "read go; exec <&-; echo closed; kill -STOP $$"])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let mut discovery = KernelDiscovery::with_proc(InPod(vec![pid]), None, true);
    let pods = Scope { pods: HashSet::from([POD.to_owned()]), ..Scope::default() };
    let first = discovery.candidates(&pods).unwrap().candidates;
    writeln!(ours, "go").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let second = discovery.candidates(&pods).unwrap().candidates;
    let found = second
        .first()
        .map(|candidate| discovery.inspect(candidate, Walk::Complete).result.map(|found| found.len()));
    child.kill().unwrap();
    child.wait().unwrap();
    let descriptors =
        |candidates: &[Candidate]| candidates.iter().map(|its| its.descriptors.clone()).collect::<Vec<_>>();
    assert_eq!((descriptors(&first), descriptors(&second)), (vec![vec![0]], vec![vec![]]));
    assert_eq!(found, Some(Ok(0)));
    assert!(discovery.candidates(&pods).unwrap().candidates.is_empty(), "the process has ended");
}

/// The driver may be behind any of them.
#[test]
fn process_with_a_flood_of_descriptors_is_a_candidate_with_an_obstacle() {
    let flood =
        "ulimit -n 17000; for n in {10..16900}; do eval \"exec $n</dev/null\"; done; echo; exec sleep 1000";
    let mut child = Command::new("bash").args(["-c", flood]).stdout(Stdio::piped()).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let mut discovery = KernelDiscovery::with_proc(InPod(vec![pid]), None, false);
    let pods = Scope { pods: HashSet::from([POD.to_owned()]), ..Scope::default() };
    let candidates = discovery.candidates(&pods).unwrap().candidates;
    let inspected = candidates.first().map(|candidate| discovery.inspect(candidate, Walk::Short).result);
    child.kill().unwrap();
    child.wait().unwrap();
    let obstacle = inspected.expect("a candidate").map(|found| found.len()).unwrap_err();
    assert_eq!(obstacle.kind, ObstacleKind::TooMany, "{obstacle}");
}

#[test]
fn process_for_which_a_search_has_no_time_stays_a_candidate() {
    let sockets = [UnixStream::pair().unwrap(), UnixStream::pair().unwrap()];
    let mut children = sockets.map(|(_ours, theirs)| {
        Command::new("sleep").arg("1000").stdin(Stdio::from(OwnedFd::from(theirs))).spawn().unwrap()
    });
    let pids: Vec<i32> = children.iter().map(|child| i32::try_from(child.id()).unwrap()).collect();
    let mut discovery = KernelDiscovery::with_proc(InPod(pids), None, true);
    discovery.turns.most = 1;
    let pods = Scope { pods: HashSet::from([POD.to_owned()]), ..Scope::default() };
    let mut search = || {
        let CandidateList { candidates, postponed } = discovery.candidates(&pods).unwrap();
        let found: Vec<ProcessKey> = candidates.iter().map(|candidate| candidate.key).collect();
        (found, postponed.into_iter().collect::<Vec<_>>())
    };
    let searches = [search(), search(), search(), search()];
    children.iter_mut().for_each(|child| child.kill().and_then(|()| child.wait().map(drop)).unwrap());
    let [(first, none), (second, postponed), third, fourth] = searches;
    assert_eq!((first.len(), second.len(), none), (1, 1, vec![]));
    assert_eq!((&postponed, &third), (&first, &(first.clone(), second.clone())));
    assert_eq!(fourth, (second, first));
}

/// Before Linux 6.2 the kernel does not report the number.
#[test]
fn process_whose_number_of_descriptors_is_unknown_is_listed_by_complete_scans_only() {
    let pid = i32::try_from(std::process::id()).unwrap();
    let start = start_in(&KernelProc.read(pid, "stat").unwrap()).unwrap();
    let mut discovery = KernelDiscovery::with_proc(InPod(vec![pid]), None, true);
    let proc = tempfile::tempdir().unwrap();
    std::fs::create_dir(proc.path().join(pid.to_string())).unwrap();
    discovery.processes = PodProcesses::new(proc.path(), InPod(vec![pid]));
    let (us, _socket) = (HashSet::from([(pid, start)]), UnixStream::pair().unwrap());
    let pods = Scope { pods: HashSet::from([POD.to_owned()]), ..Scope::default() };
    assert_eq!(discovery.candidates(&pods).unwrap().candidates.len(), 1, "the complete scan comes first");
    let mut listed = |requested| discovery.changed(&us, requested, &pods).unwrap().len();
    let none = HashSet::new();
    assert_eq!([listed(&none), listed(&none), listed(&us), listed(&none)], [1, 0, 1, 0]);
}
