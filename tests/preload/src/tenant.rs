//! One process under test: how it is started, talked to, killed, and what became of it.

use crate::artifacts;
use crate::node::Node;
use crate::patience::PATIENCE;
use crate::programs::{Linking, compiled};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

/// A process to be started. Made by [`crate::Node::tenant`].
#[must_use = "a tenant runs only once started"]
pub struct TenantOptions {
    pub(crate) client: String,
    pub(crate) program: String,
    pub(crate) linking: Linking,
    pub(crate) libraries: Vec<PathBuf>,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) preload: Vec<PathBuf>,
    pub(crate) library_path: PathBuf,
    pub(crate) shell: Option<String>,
    pub(crate) stderr: PathBuf,
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

    /// Links the program against a library of ours as well.
    pub fn linked_with(mut self, library: &Path) -> Self {
        self.libraries.push(library.to_path_buf());
        self
    }

    /// An example of REEF's interface, linked against `libcudareef.so`; the loader finds it if it is not preloaded already.
    pub fn linked_with_reef(mut self) -> Self {
        self.linking = Linking::Reef;
        self
    }

    /// A folder in which libraries are looked for as well, behind the others.
    pub fn library_folder(mut self, folder: &Path) -> Self {
        self.library_path.as_mut_os_string().push(":");
        self.library_path.as_mut_os_string().push(folder);
        self
    }

    /// The program opens the driver itself and is linked against nothing of CUDA.
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
        let stderr = File::create(&self.stderr)
            .unwrap_or_else(|error| panic!("creating {}: {error}", self.stderr.display()));
        command
            .args(&self.arguments)
            .env("LD_LIBRARY_PATH", &self.library_path)
            .envs(self.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            // A group of its own, so that its children can be ended with it.
            .process_group(0);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("starting {command:?}: {error}"));
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        let stdin = child.stdin.take();
        Tenant { client: self.client, program: self.program, child, stdin, lines, stderr: self.stderr }
    }
}

/// A running process. Dropping it kills it and all its children.
pub struct Tenant {
    client: String,
    program: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: PathBuf,
}

/// What became of a process.
#[derive(Debug)]
pub struct Ending {
    /// How it ended.
    pub status: ExitStatus,
    /// What it had printed and nobody had read yet.
    pub lines: Vec<String>,
    /// What it wrote to stderr.
    pub errors: String,
}

impl Ending {
    /// Whether it ended with code 0, as every program here does when all its results were right.
    ///
    /// # Panics
    /// When it did not.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(self.status.success(), "it ended with {:?}, saying: {}", self.status, self.errors);
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
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }

    /// Sends one line and returns the one that answers it.
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
    /// When it does not read any more.
    #[track_caller]
    pub fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap_or_else(|| panic!("stdin is closed"));
        if let Err(error) = writeln!(stdin, "{line}") {
            panic!("{}: telling it {line:?}: {error}; it said: {}", self.name(), self.errors());
        }
    }

    /// The next line it prints.
    ///
    /// # Panics
    /// When it ends instead.
    #[track_caller]
    pub fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("{} has said nothing for {PATIENCE:?}", self.name()),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait();
                panic!("{} ended ({status:?}) and said: {}", self.name(), self.errors())
            }
        }
    }

    /// The line `expected`.
    ///
    /// # Panics
    /// When another line comes.
    #[track_caller]
    pub fn expect(&mut self, expected: &str) {
        let line = self.line();
        assert_eq!(line, expected, "said by {}", self.name());
    }

    /// Closes its input, which asks it to end.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When there is no such process any more.
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

    /// Waits for its end, its input left open.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn ending(&mut self) -> Ending {
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => {}
                Err(error) => panic!("waiting for {}: {error}", self.name()),
            }
            assert!(start.elapsed() < PATIENCE, "{} does not end; it said: {}", self.name(), self.errors());
            thread::sleep(std::time::Duration::from_millis(2));
        };
        // Its last lines may still be on their way; the channel ends with the pipe.
        let lines = std::iter::from_fn(|| match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("{} has left its stdout to somebody", self.name()),
        });
        Ending { status, lines: lines.collect(), errors: self.errors() }
    }

    /// What it has written to stderr so far.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    fn name(&self) -> String {
        format!("{} ({}, pid {})", self.program, self.client, self.pid())
    }

    fn nix_pid(&self) -> Pid {
        Pid::from_raw(self.pid())
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        // The group outlives its leader while children of it live, so its number is not in use by strangers; without any,
        // nobody is hit, because the leader is not yet waited for.
        let _ = killpg(self.nix_pid(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Starts processes of the program `busy` with these arguments, one for each client's name, and waits until all of them have run
/// kernels.
///
/// # Panics
/// When one of them does not get that far.
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
/// When one of them does not.
pub fn end(tenants: Vec<Tenant>) {
    for tenant in tenants {
        tenant.finish().expect_success();
    }
}
