use super::*;

const LIBRARY_MOUNT: &str = "9 1 0:1 /x /usr/lib/x86_64-linux-gnu/libcuda.so.700.1 ro - overlay overlay rw\n";
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
    let both = process(proc.path(), 10, 'a', LIBRARY_MOUNT, &["nvidia0", "nvidia7", "nvidiactl"]);
    let one = process(proc.path(), 11, 'b', LIBRARY_MOUNT, &["nvidia0", "nvidiactl", "nvidia-uvm"]);
    let wanted = [&both, &one].map(|id| (id.clone(), 2)).into();
    assert_eq!(look(proc.path(), &wanted)[&one], None, "the GPUs are simulated");
    fs::create_dir_all(proc.path().join("self/root/dev")).unwrap();
    fs::write(proc.path().join("self/root/dev/nvidiactl"), "").unwrap();
    let found = look(proc.path(), &wanted);
    assert_eq!(found[&both], None);
    assert_eq!(found[&one].as_deref(), Some("it has 1 device nodes of GPUs, expected 2"));
}
