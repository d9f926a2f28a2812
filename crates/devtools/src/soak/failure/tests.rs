use super::{describe, processes_of};
use std::process::{Command, Stdio};

#[test]
fn description_names_the_process_and_the_system_call_in_which_its_thread_waits() {
    let folder = tempfile::tempdir().unwrap();
    let mut child =
        Command::new("cat").env("SOAK", folder.path().join("x")).stdin(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let description = || -> String { processes_of(folder.path()).iter().map(describe).collect() };
    // 0 is read, and the first argument is the standard input.
    while !description().contains("syscall=[0 0x0 ") {
        std::thread::yield_now();
    }
    // The process may have begun its program during the last description. From now on it waits.
    let text = description();
    assert!(text.starts_with(&format!("process {pid} of {}, state S: cat\n", std::process::id())), "{text}");
    assert!(text.contains(&format!("  thread {pid} cat: state=S ")), "{text}");
    drop(child.stdin.take());
    child.wait().unwrap();
}
