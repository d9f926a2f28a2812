use super::*;
use std::thread;

#[test]
fn list_of_cpus_is_read_and_anything_else_refused() {
    assert_eq!(parse("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
    assert_eq!(parse(""), Some(Vec::new()));
    for bad in ["a", "0-", "3-1", "-1", "0-5000"] {
        assert_eq!(parse(bad), None, "{bad}");
    }
}

fn set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu).unwrap());
    set
}

#[test]
fn thread_keeps_to_those_cpus_of_the_node_that_it_may_use() {
    let allowed = set(&[1, 2, 3]);
    assert_eq!(choose(&allowed, &[2, 3, 4]).unwrap(), Some(set(&[2, 3])));
    // As on a machine with one node.
    assert_eq!(choose(&allowed, &[0, 1, 2, 3]).unwrap(), None);
    // As of a node that has memory alone.
    assert!(choose(&allowed, &[]).is_err());
    assert!(choose(&allowed, &[7, 8]).is_err());
}

/// CPUs that the calling thread may use.
fn affinity() -> CpuSet {
    sched_getaffinity(Pid::from_raw(0)).unwrap()
}

#[test]
fn only_the_calling_thread_runs_on_the_node() {
    let before = affinity();
    let first = (0..CpuSet::count()).find(|cpu| before.is_set(*cpu).unwrap()).unwrap();
    let sysfs = tempfile::tempdir().unwrap();
    let folder = sysfs.path().join("devices/system/node/node5");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("cpulist"), format!("{first}\n")).unwrap();
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            restrict(sysfs.path(), 5).unwrap();
            affinity()
        });
        assert_eq!(thread.join().unwrap(), set(&[first]));
    });
    assert_eq!(affinity(), before);
    // A node that the kernel does not have changes nothing.
    assert!(restrict(sysfs.path(), 6).is_err());
    run_on_node(Some(4096));
    run_on_node(None);
    assert_eq!(affinity(), before);
}
