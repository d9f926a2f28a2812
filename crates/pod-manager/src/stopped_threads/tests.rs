use super::*;
use crate::message::{Inbox, Message, pair};
use nix::sys::signal::{Signal, kill};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Makes the test below compute for ever.
const COMPUTES: &str = "SLUICE_TEST_COMPUTES";

/// The program of [`Program`].
#[test]
fn compute_in_three_threads() {
    let compute = || while std::env::var_os(COMPUTES).is_some() {};
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(compute))));
}

/// A process with at least four threads, of which three compute. Its parent is a shell, as that of a tenant's program is not the tracer.
struct Program {
    shell: Child,
    pid: i32,
}

impl Program {
    fn start() -> Self {
        let (_crate, module) = module_path!().split_once("::").unwrap();
        let test = format!("{module}::compute_in_three_threads");
        Self::run(&std::env::current_exe().unwrap(), &["--exact", &test], 4)
    }

    fn run(program: &Path, arguments: &[&str], threads: usize) -> Self {
        let mut shell = Command::new("sh")
            .args(["-c", "\"$@\" >/dev/null & echo $!; wait", "sh"])
            .arg(program)
            .args(arguments)
            .env(COMPUTES, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let program = Self { shell, pid: line.trim().parse().unwrap() };
        until(|| threads_of(program.pid).unwrap().len() >= threads);
        program
    }

    fn stop(&self, number: i32) -> (StoppedThreads, Result<(), String>) {
        let (remote, inbox) = pair().unwrap();
        let pidfd = sluice_sys::pidfd::open(self.pid).unwrap();
        let stopped =
            StoppedThreads::begin(ProcessId(7), number, pidfd, remote.report(Message::ThreadsStopped))
                .unwrap();
        (stopped, answer(&inbox))
    }

    fn stands(&self) -> bool {
        threads_of(self.pid).unwrap().into_iter().all(|tid| is_stopped(self.pid, tid))
    }

    /// Kills the process and waits until its parent knows.
    fn end(self) {}
}

impl Drop for Program {
    fn drop(&mut self) {
        kill(Pid::from_raw(self.pid), Signal::SIGKILL).unwrap();
        self.shell.wait().unwrap();
    }
}

fn until(holds: impl Fn() -> bool) {
    while !holds() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn answer(inbox: &Inbox) -> Result<(), String> {
    let end = Instant::now() + 2 * BLOCKED_AFTER;
    while Instant::now() < end {
        if let Some(Message::ThreadsStopped((ProcessId(7), result))) = inbox.take().pop() {
            return result;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the tracing thread is blocked")
}

/// Compiles and starts a C program.
fn compiled(name: &str, text: &str, threads: usize) -> Program {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join(name).with_extension("c"), folder.path().join(name));
    fs::write(&source, text).unwrap();
    assert!(
        Command::new("cc").arg("-pthread").arg("-o").args([&program, &source]).status().unwrap().success()
    );
    Program::run(&program, &[], threads)
}

#[test]
fn all_threads_stand_until_they_are_released_whatever_signal_comes() {
    let program = Program::start();
    let (stopped, result) = program.stop(program.pid);
    assert_eq!(result, Ok(()));
    assert!(program.stands());
    kill(Pid::from_raw(program.pid), Signal::SIGCONT).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(program.stands());
    drop(stopped);
    until(|| !program.stands());
    program.end();
}

#[test]
fn stopped_process_can_be_killed() {
    let program = Program::start();
    let (_stopped, result) = program.stop(program.pid);
    assert_eq!(result, Ok(()));
    program.end();
}

#[test]
fn process_of_another_number_than_that_of_the_descriptor_is_not_stopped() {
    let (program, other) = (Program::start(), Program::start());
    let (_stopped, result) = program.stop(other.pid);
    assert_eq!(result, Err("the process has ended".into()));
    assert!(!other.stands() && !program.stands());
    program.end();
    other.end();
}

/// The first thread of this program ends while another one computes. The kernel keeps it as a zombie, which cannot be traced.
const LEADERLESS: &str = "#include <pthread.h>\n\
    static void *compute(void *none) { for (;;) __asm__ volatile(\"\"); return none; }\n\
    int main(void) { pthread_t thread; pthread_create(&thread, 0, compute, 0); pthread_exit(0); }\n";

#[test]
fn process_whose_first_thread_has_ended_is_stopped() {
    let program = compiled("leaderless", LEADERLESS, 2);
    until(|| has_ended(program.pid, program.pid));
    let (_stopped, result) = program.stop(program.pid);
    assert_eq!(result, Ok(()));
    assert!(program.stands());
    program.end();
}

/// A thread of this program calls execve some milliseconds after the program has begun, beside many others.
const RESTARTS: &str = "#include <pthread.h>\n#include <stdlib.h>\n#include <time.h>\n#include <unistd.h>\n\
    static char **words;\n\
    static void *stand(void *none) { for (;;) pause(); return none; }\n\
    static void *restart(void *none) { struct timespec now; clock_gettime(CLOCK_MONOTONIC, &now); \
        usleep(now.tv_nsec % 3000); execv(\"/proc/self/exe\", words); abort(); return none; }\n\
    int main(int count, char **given) { pthread_t thread; words = given; (void)count; \
        for (int at = 0; at < 400; at++) pthread_create(&thread, 0, stand, 0); \
        pthread_create(&thread, 0, restart, 0); for (;;) pause(); }\n";

/// The kernel lets execve wait for the tracing thread, and the tracing thread for execve.
#[test]
fn process_whose_other_threads_call_execve_is_stopped() {
    let program = compiled("restarts", RESTARTS, 2);
    for _ in 0..50 {
        let (stopped, result) = program.stop(program.pid);
        assert_eq!(result, Ok(()));
        until(|| program.stands());
        std::thread::sleep(Duration::from_millis(10));
        assert!(program.stands());
        drop(stopped);
        until(|| !program.stands());
    }
    program.end();
}
