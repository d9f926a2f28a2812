use super::*;
use nix::sys::signal::kill;
use nix::unistd::Pid;

fn shell(script: &str, logs: &Path, output: Output) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Process::start("child", command, logs, output).unwrap()
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

#[test]
fn a_dropped_process_is_gone() {
    let logs = tempfile::tempdir().unwrap();
    let process = shell("exec sleep 1000", logs.path(), Output::Log);
    let pid = Pid::from_raw(process.pid());
    assert!(kill(pid, None).is_ok());
    drop(process);
    assert_eq!(kill(pid, None), Err(nix::errno::Errno::ESRCH));
}

#[test]
fn a_process_that_ended_early_is_reported_with_its_log() {
    let logs = tempfile::tempdir().unwrap();
    let mut process = shell("echo the reason >&2; exit 3", logs.path(), Output::Log);
    process.wait(later()).unwrap();
    let error = process.check_running().unwrap_err().to_string();
    assert!(error.contains("the reason") && error.contains('3'), "{error}");
}

#[test]
fn a_process_that_reads_its_input_ends_when_the_input_is_closed() {
    let logs = tempfile::tempdir().unwrap();
    let mut process = shell("read x; echo marked; cat; exit 7", logs.path(), Output::Lines);
    process.send_line("").unwrap();
    assert_eq!(process.next_line(later()).unwrap(), "marked");
    process.close_input();
    let status = process.wait(later()).unwrap().unwrap();
    assert_eq!(status.code(), Some(7));
    assert_eq!(process.next_line(later()), Err(NoLine::Closed));
}
