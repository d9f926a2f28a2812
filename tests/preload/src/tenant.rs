//! A process under test: its start, its input and output, its end.

use crate::artifacts;
use crate::compiled_programs::{Linking, compiled};
use crate::node::Node;
use crate::stepped_clock::SteppedClock;
use crate::waiting::{POLL_EVERY, TIMEOUT};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use sluice_test_bed::{NoLine, Output, Process};
use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Instant;

/// A process to be started. Made by [`crate::Node::tenant`].
#[must_use = "a tenant runs only once started"]
pub struct TenantOptions {
    pub(crate) name: String,
    pub(crate) stepped: Option<SteppedClock>,
    pub(crate) logs: PathBuf,
    pub(crate) client: String,
    pub(crate) program: String,
    pub(crate) linking: Linking,
    pub(crate) libraries: Vec<PathBuf>,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) preload: Vec<PathBuf>,
    pub(crate) library_path: PathBuf,
    pub(crate) shell: Option<String>,
}

impl TenantOptions {
    /// Arguments of the program, separated by blanks.
    pub fn arguments(mut self, arguments: &str) -> Self {
        self.arguments.extend(arguments.split_whitespace().map(str::to_owned));
        self
    }

    /// One more environment variable.
    pub fn environment(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Without an environment variable that every tenant has.
    pub fn without_environment(mut self, name: &str) -> Self {
        self.environment.retain(|(variable, _)| variable != name);
        self
    }

    /// Without the hook: bare on the simulated GPU.
    pub fn without_hook(mut self) -> Self {
        self.preload.clear();
        self
    }

    /// With the hook in the place of `libcuda.so.1` and not preloaded.
    pub fn as_shim(mut self) -> Self {
        let artifacts = artifacts::built();
        self.preload.clear();
        self.library_path.clone_from(&artifacts.shim);
        self.environment("SLUICE_REAL_LIBCUDA", artifacts.driver.join("libcuda.so.1"))
    }

    /// Preloads one more library after the hook.
    pub fn preload_after(mut self, library: &Path) -> Self {
        self.preload.push(library.to_path_buf());
        self
    }

    /// Preloads one more library ahead of the hook.
    pub fn preload_before(mut self, library: &Path) -> Self {
        self.preload.insert(0, library.to_path_buf());
        self
    }

    /// Links the program against a further library.
    pub fn linked_with(mut self, library: &Path) -> Self {
        self.libraries.push(library.to_path_buf());
        self
    }

    /// An example of REEF's interface, linked against `libcudareef.so`.
    pub fn linked_with_reef(mut self) -> Self {
        self.linking = Linking::Reef;
        self
    }

    /// One more folder in the library path, after the others.
    pub fn library_folder(mut self, folder: &Path) -> Self {
        self.library_path.as_mut_os_string().push(":");
        self.library_path.as_mut_os_string().push(folder);
        self
    }

    /// The program is not linked against CUDA and opens the driver itself.
    pub fn opening_the_driver_late(mut self) -> Self {
        self.linking = Linking::Late;
        self
    }

    /// Started by `sh -c SCRIPT`, in which `"$@"` is the program and its arguments; the script runs without the hook.
    pub fn through_shell(mut self, script: &str) -> Self {
        self.shell = Some(script.to_owned());
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be compiled or started.
    pub fn start(self) -> Tenant {
        let libraries: Vec<&Path> = self.libraries.iter().map(PathBuf::as_path).collect();
        let program = compiled(&self.program, self.linking, &libraries);
        let preload = self
            .preload
            .iter()
            .map(|path| path.as_os_str())
            .collect::<Vec<_>>()
            .join(std::ffi::OsStr::new(" "));
        let mut command = match &self.shell {
            None => {
                let mut command = Command::new(&program);
                command.env("LD_PRELOAD", &preload);
                command
            }
            Some(script) => {
                let mut command = Command::new("sh");
                command
                    .args(["-c", script, "sh", "env"])
                    .arg(format!("LD_PRELOAD={}", preload.to_string_lossy()));
                command.arg(&program);
                command
            }
        };
        command
            .args(&self.arguments)
            .env("LD_LIBRARY_PATH", &self.library_path)
            .envs(self.environment)
            // A group of its own, so that its children can be ended with it.
            .process_group(0);
        let process = Process::start(&self.name, command, &self.logs, Output::Lines)
            .unwrap_or_else(|error| panic!("{error:#}"));
        Tenant { client: self.client, stepped: self.stepped, process }
    }
}

/// A running process. Dropping it kills it and all its children.
pub struct Tenant {
    client: String,
    stepped: Option<SteppedClock>,
    process: Process,
}

/// The end of a process.
#[derive(Debug)]
pub struct Ending {
    /// How it ended.
    pub status: ExitStatus,
    /// Printed lines that the test had not read.
    pub lines: Vec<String>,
    /// Its standard error.
    pub errors: String,
}

impl Ending {
    /// Checks that it ended with code 0, as every program here does if all its results were right.
    ///
    /// # Panics
    /// When it did not.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(self.status.success(), "it ended with {:?}: {}", self.status, self.errors);
        self
    }

    /// The exit code, if it exited.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The signal that killed it, if one did.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

impl Tenant {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Sends one line and returns the line that answers it.
    ///
    /// # Panics
    /// When it ends instead of answering.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.line()
    }

    /// Sends one line.
    ///
    /// # Panics
    /// When it no longer reads.
    #[track_caller]
    pub fn send(&mut self, line: &str) {
        if let Err(error) = self.process.send_line(line) {
            panic!("sending {line:?} to {}: {error:#}; its log: {}", self.name(), self.errors());
        }
    }

    /// The next line that it prints.
    ///
    /// # Panics
    /// When it ends instead.
    #[track_caller]
    pub fn line(&mut self) -> String {
        match self.next_line() {
            Ok(line) => line,
            Err(NoLine::TimedOut) => panic!("{} has printed nothing for {TIMEOUT:?}", self.name()),
            Err(NoLine::Closed) => {
                let status = self.wait();
                panic!("{} ended ({status:?}); its log: {}", self.name(), self.errors())
            }
        }
    }

    /// Checks that the next line is `expected`.
    ///
    /// # Panics
    /// When another line comes.
    #[track_caller]
    pub fn expect(&mut self, expected: &str) {
        let line = self.line();
        assert_eq!(line, expected, "printed by {}", self.name());
    }

    /// Closes its input, which asks it to end.
    pub fn close_input(&mut self) {
        self.process.close_input();
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When the process no longer exists.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill(self.nix_pid(), signal).unwrap_or_else(|error| panic!("{signal} to {}: {error}", self.name()));
    }

    /// Closes its input and waits for its end.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn finish(mut self) -> Ending {
        self.close_input();
        self.ending()
    }

    /// Waits for its end; its input stays open.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn ending(&mut self) -> Ending {
        let status = self.wait();
        let Some(status) = status else { panic!("{} does not end; its log: {}", self.name(), self.errors()) };
        // Its last lines may come late; the channel ends with the pipe.
        let lines = std::iter::from_fn(|| match self.next_line() {
            Ok(line) => Some(line),
            Err(NoLine::Closed) => None,
            Err(NoLine::TimedOut) => panic!("another process has the standard output of {}", self.name()),
        });
        Ending { status, lines: lines.collect(), errors: self.errors() }
    }

    fn next_line(&self) -> Result<String, NoLine> {
        let end = Instant::now() + TIMEOUT;
        loop {
            match self.process.next_line(self.end_of_poll(end)) {
                Err(NoLine::TimedOut) if Instant::now() < end => self.step(),
                other => return other,
            }
        }
    }

    fn wait(&mut self) -> Option<ExitStatus> {
        let end = Instant::now() + TIMEOUT;
        loop {
            match self.process.wait(self.end_of_poll(end)) {
                Ok(None) if Instant::now() < end => self.step(),
                ended => return ended.unwrap_or_else(|error| panic!("{error:#}")),
            }
        }
    }

    /// How long one poll waits. Only on a stepped node is something to be done between two polls.
    fn end_of_poll(&self, end: Instant) -> Instant {
        if self.stepped.is_some() { end.min(Instant::now() + POLL_EVERY) } else { end }
    }

    /// Lets a stepped GPU's time go on.
    fn step(&self) {
        if let Some(clock) = &self.stepped {
            clock.step();
        }
    }

    /// Its standard error so far.
    pub fn errors(&self) -> String {
        self.process.log()
    }

    fn name(&self) -> String {
        format!("{} ({}, pid {})", self.process.name(), self.client, self.pid())
    }

    fn nix_pid(&self) -> Pid {
        Pid::from_raw(self.pid())
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        // The kernel reserves the group's number while a process of the group lives or its leader is not reaped.
        let _ = killpg(self.nix_pid(), Signal::SIGKILL);
    }
}

/// Starts the program `busy` with these arguments for each client, and waits until all processes have run kernels.
///
/// # Panics
/// When a process does not run kernels.
pub fn busy(node: &Node, clients: &[&str], arguments: &str) -> Vec<Tenant> {
    let mut tenants: Vec<Tenant> =
        clients.iter().map(|client| node.tenant(client, "busy").arguments(arguments).start()).collect();
    for tenant in &mut tenants {
        tenant.expect("ready");
    }
    for tenant in &tenants {
        node.when_completed(tenant, 16);
    }
    tenants
}

/// Ends processes that have to succeed.
///
/// # Panics
/// When a process fails.
pub fn end(tenants: Vec<Tenant>) {
    for tenant in tenants {
        tenant.finish().expect_success();
    }
}
