use super::{processes_of, state_and_parent, usage};
use std::process::{Command, Stdio};

#[test]
fn name_with_parentheses_does_not_shift_fields() {
    assert_eq!(state_and_parent("7 (a) b (c)) T 12 7 7 0"), Some(('T', 12)));
    assert_eq!(state_and_parent("nothing"), None);
}

#[test]
fn process_is_found_by_its_environment_and_its_usage_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut child =
        Command::new("cat").env("SOAK", folder.path().join("x")).stdin(Stdio::piped()).spawn().unwrap();
    // The environment of a process is that of its parent until it has become another program.
    while !processes_of(folder.path()).iter().any(|found| found.command == "cat") {
        std::thread::yield_now();
    }
    let pid = child.id().cast_signed();
    assert_eq!(processes_of(folder.path()).iter().map(|found| found.pid).collect::<Vec<_>>(), [pid]);
    assert!(usage(pid).rss_kib > 0 && usage(pid).threads == 1);
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(processes_of(folder.path()), []);
}
