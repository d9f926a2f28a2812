use super::*;

#[test]
fn note_names_limit_overhead_and_process() {
    let one = ExceededLimit {
        pod_uid: String::new(),
        limit_bytes: 256 << 20,
        overhead_bytes: 480 << 20,
        pid: 12,
        process_bytes: 481 << 20,
    };
    assert_eq!(
        note(&one),
        "the memory limit is 256 MiB, and contexts, modules and other memory without charge take 480 MiB (process 12: 481 MiB in \
         total): every allocation is refused; request more memory"
    );
}

#[test]
fn process_belongs_to_the_pod_of_its_cgroup() {
    let proc = tempfile::tempdir().unwrap();
    let uid = "0b6b5d2c-6a4e-4f0b-9d7e-3f1c2a5b7d90";
    for (pid, cgroup) in
        [(7, format!("0::/kubepods/pod{uid}/{}\n", "a".repeat(64))), (8, "0::/user.slice\n".into())]
    {
        let folder = proc.path().join(pid.to_string());
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("cgroup"), cgroup).unwrap();
    }
    let pods = [7, 8, 9].map(|pid| pod_of_process(proc.path(), pid));
    assert_eq!(pods, [Some(uid.to_owned()), None, None]);
}
