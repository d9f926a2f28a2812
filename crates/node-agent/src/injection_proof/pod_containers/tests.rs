use super::*;

const LIBRARY_MOUNT: &str = "9 1 0:1 /x /usr/lib/x86_64-linux-gnu/libcuda.so.700.1 ro - overlay overlay rw\n";
const DEV_MOUNT: &str = "7 1 0:9 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k\n";
const OTHER_MOUNT: &str = "8 1 0:1 /x /etc/ld.so.preload ro - overlay overlay rw\n";

/// A process of the container, with these mounts and device nodes.
fn process(proc: &Path, pid: u32, container: char, mounts: &str, nodes: &[&str]) -> String {
    let id = container.to_string().repeat(64);
    let folder = proc.join(pid.to_string());
    fs::create_dir_all(folder.join("root/dev")).unwrap();
    let pod = "pod01234567-89ab-cdef-0123-456789abcdef";
    fs::write(folder.join("cgroup"), format!("0::/kubepods/{pod}/{id}\n")).unwrap();
    fs::write(folder.join("mountinfo"), mounts).unwrap();
    for node in nodes {
        fs::write(folder.join("root/dev").join(node), "").unwrap();
    }
    id
}

#[test]
fn container_without_the_drivers_library_lacks_it_and_one_without_processes_is_left_out() {
    let proc = tempfile::tempdir().unwrap();
    let has = process(proc.path(), 10, 'a', &[OTHER_MOUNT, LIBRARY_MOUNT].concat(), &[]);
    let lacks = process(proc.path(), 11, 'b', OTHER_MOUNT, &[]);
    let _of_another_pod = process(proc.path(), 12, 'c', OTHER_MOUNT, &[]);
    let absent = "d".repeat(64);
    let found = look(proc.path(), &[&has, &lacks, &absent].map(|id| (id.clone(), 1)).into());
    assert_eq!(found.keys().collect::<Vec<_>>(), [&has, &lacks]);
    assert_eq!(found[&has], None);
    assert!(found[&lacks].as_ref().is_some_and(|lack| lack.contains("libcuda.so")), "{found:?}");
}

#[test]
fn each_gpu_has_a_device_node_where_the_agents_own_container_has_them() {
    let proc = tempfile::tempdir().unwrap();
    let mounts = [DEV_MOUNT, LIBRARY_MOUNT].concat();
    let both = process(proc.path(), 10, 'a', &mounts, &["nvidia0", "nvidia7", "nvidiactl"]);
    let one = process(proc.path(), 11, 'b', &mounts, &["nvidia0", "nvidiactl", "nvidia-uvm"]);
    let wanted = [&both, &one].map(|id| (id.clone(), 2)).into();
    assert_eq!(look(proc.path(), &wanted)[&one], None, "the GPUs are simulated");
    with_own_nodes(proc.path());
    let found = look(proc.path(), &wanted);
    assert_eq!(found[&both], None);
    assert_eq!(found[&one].as_deref(), Some("it has 1 device nodes of GPUs, expected 2"));
}

/// The agent's own container has device nodes.
fn with_own_nodes(proc: &Path) {
    fs::create_dir_all(proc.join("self/root/dev")).unwrap();
    fs::write(proc.join("self/root/dev/nvidiactl"), "").unwrap();
}

#[test]
fn device_nodes_are_not_looked_for_in_a_file_system_of_the_tenant() {
    let proc = tempfile::tempdir().unwrap();
    with_own_nodes(proc.path());
    // The mount on top counts.
    let over = "70 7 0:99 / /dev rw - fuse.slow slow rw\n";
    let fuse = process(proc.path(), 10, 'a', &[DEV_MOUNT, LIBRARY_MOUNT, over].concat(), &[]);
    let none = process(proc.path(), 11, 'b', LIBRARY_MOUNT, &[]);
    let found = look(proc.path(), &[&fuse, &none].map(|id| (id.clone(), 1)).into());
    assert_eq!((&found[&fuse], &found[&none]), (&None, &None));
}

#[test]
fn library_in_a_volume_of_the_pod_is_not_the_drivers() {
    let proc = tempfile::tempdir().unwrap();
    let mount = |folder: &str| {
        format!("9 1 8:1 /var/lib/kubelet/pods/u/{folder} /x/libcuda.so.1 ro - ext4 /dev/sda rw\n")
    };
    let volume = process(proc.path(), 10, 'a', &mount("volumes/kubernetes.io~configmap/c/libcuda.so.1"), &[]);
    let part = process(proc.path(), 11, 'b', &mount("volume-subpaths/c/main/0"), &[]);
    let found = look(proc.path(), &[&volume, &part].map(|id| (id.clone(), 1)).into());
    assert!(found[&volume].is_some() && found[&part].is_some(), "{found:?}");
}

#[test]
fn mounts_are_read_although_a_path_is_no_utf_8() {
    let proc = tempfile::tempdir().unwrap();
    let id = process(proc.path(), 10, 'a', "", &[]);
    let mounts = [b"8 1 0:1 /x /\xff ro - overlay overlay rw\n", LIBRARY_MOUNT.as_bytes()].concat();
    fs::write(proc.path().join("10/mountinfo"), mounts).unwrap();
    assert_eq!(look(proc.path(), &[(id.clone(), 1)].into()).get(&id), Some(&None));
}
