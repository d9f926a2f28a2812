use super::*;
use std::fs;
use std::path::Path;

const POD: &str = "01234567-89ab-cdef-0123-456789abcdef";
const OTHER: &str = "11234567-89ab-cdef-0123-456789abcdef";

/// A fake /proc, and the count of files read.
struct Files<'a>(&'a Path, usize);

impl ProcFs for Files<'_> {
    fn read(&mut self, pid: i32, file: &str) -> io::Result<String> {
        self.1 += 1;
        fs::read_to_string(self.0.join(pid.to_string()).join(file))
    }

    fn is_process(&mut self, _: i32) -> bool {
        true
    }
}

fn put(root: &Path, pid: i32, cgroup: &str) {
    let folder = root.join(pid.to_string());
    fs::create_dir_all(folder.join("fd")).unwrap();
    fs::write(folder.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
}

fn of_pod() -> String {
    format!("/kubepods/besteffort/pod{POD}/{}", "a".repeat(64))
}

#[test]
fn cgroup_is_read_when_a_process_is_new_and_then_in_every_512th_search() {
    let root = tempfile::tempdir().unwrap();
    (1..=640).for_each(|pid| put(root.path(), pid, "/system.slice"));
    put(root.path(), 700, &of_pod());
    let mut processes = PodProcesses::new(root.path(), Files(root.path(), 0));
    let pods = HashSet::from([POD.to_owned()]);
    let mut read = Vec::new();
    for _ in 0..1536 {
        assert_eq!(processes.in_pods(&pods).unwrap(), [700]);
        read.push(std::mem::take(&mut processes.files().1));
    }
    assert_eq!(read[0], 641);
    let later: usize = read[1024..].iter().sum();
    assert_eq!(later, 641, "each once in 512 searches");
    fs::remove_dir_all(root.path().join("700")).unwrap();
    put(root.path(), 701, &of_pod());
    assert_eq!(processes.in_pods(&pods).unwrap(), [701]);
}

#[test]
fn process_moved_into_a_pod_is_found_and_a_reused_process_id_is_recognised() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), 7, "/");
    put(root.path(), 8, &of_pod());
    let mut processes = PodProcesses::new(root.path(), Files(root.path(), 0));
    let pods = HashSet::from([POD.to_owned()]);
    assert_eq!(processes.in_pods(&pods).unwrap(), [8]);
    put(root.path(), 7, &of_pod());
    assert_eq!(processes.in_pods(&pods).unwrap(), [7, 8], "a container's first process");
    for _ in 0..200 {
        processes.in_pods(&pods).unwrap();
    }
    // Another process, with another folder, has the process id.
    fs::rename(root.path().join("8"), root.path().join("old")).unwrap();
    put(root.path(), 8, "/");
    assert_eq!(processes.in_pods(&pods).unwrap(), [7]);
    put(root.path(), 8, &of_pod());
    let found = (0..512).position(|_| processes.in_pods(&pods).unwrap() == [7, 8]);
    assert!(found.is_some());
}

/// Kubernetes' runtime, and `kubectl exec`, start a process first and move it then.
#[test]
fn process_that_is_moved_into_a_pod_after_a_search_has_seen_it_is_found_by_the_next_search() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), 7, "/");
    let mut processes = PodProcesses::new(root.path(), Files(root.path(), 0));
    let pods = HashSet::from([POD.to_owned()]);
    assert!(processes.in_pods(&pods).unwrap().is_empty());
    put(root.path(), 7, &of_pod());
    assert_eq!(processes.changed_in_pods(&pods).unwrap(), [7]);
}

#[test]
fn search_reads_a_bounded_number_of_cgroups_and_the_next_ones_go_on() {
    let root = tempfile::tempdir().unwrap();
    let all: Vec<i32> = (1..=3000).collect();
    all.iter().for_each(|pid| put(root.path(), *pid, &of_pod()));
    put(root.path(), 5000, "/");
    let mut processes = PodProcesses::new(root.path(), Files(root.path(), 0));
    let pods = HashSet::from([POD.to_owned(), OTHER.to_owned()]);
    assert_eq!(processes.in_pods(&pods).unwrap().len(), MOST_READ);
    let mut read = vec![std::mem::take(&mut processes.files().1)];
    for _ in 0..3 {
        processes.changed_in_pods(&pods).unwrap();
        read.push(std::mem::take(&mut processes.files().1));
    }
    assert_eq!(read[..3], [1024, 768, 768]);
    // The 441 that are left, and those that are due again by chance.
    assert!((441..470).contains(&read[3]), "{read:?}");
    // A process in a pod is not due again soon. The one in none is.
    put(root.path(), 5000, &of_pod().replace(POD, OTHER));
    let found = processes.in_pods(&pods).unwrap();
    assert_eq!(found, [all, vec![5000]].concat());
    assert!(processes.files().1 < 30, "{}", processes.files().1);
}

/// `cargo test -p sluice-pod-manager --release --lib -- --ignored --nocapture ten_thousand`: figures of docs/benchmarks/history/2026-11.md.
#[test]
#[ignore = "a measurement"]
fn scan_of_ten_thousand_processes() {
    let root = tempfile::tempdir().unwrap();
    (1..=10_000).for_each(|pid| put(root.path(), pid, "/system.slice/other.service"));
    let mut processes = PodProcesses::new(root.path(), Files(root.path(), 0));
    let scans = (0..200).map(|_| {
        let start = std::time::Instant::now();
        processes.in_pods(&HashSet::new()).unwrap();
        start.elapsed()
    });
    let scans: Vec<_> = scans.collect();
    let mean = scans[100..].iter().sum::<std::time::Duration>() / 100;
    println!("first scan {:?}, later scans {mean:?} on average", scans[0]);
}
