//! Child processes that never outlive their parent, and whose output can be quoted in an error.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// Time between two polls of a child that is to end.
const POLL_EVERY: Duration = Duration::from_millis(2);
/// How long a child that was killed may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Lines of a child's log that an error quotes.
const QUOTED_LINES: usize = 12;

/// Where a child's standard output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// To the parent, line by line: [`Process::next_line`].
    Lines,
    /// Into the log, with the standard error.
    Log,
}

/// Why there is no further line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLine {
    /// The time is over.
    TimedOut,
    /// The child has closed its standard output, as it does when it ends.
    Closed,
}

/// A child of this process. It is killed and reaped when it is dropped. If this process is killed, the kernel kills the child
/// too, provided that it is a `sluice` with `--parent` ([`Process::command`]).
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    lines: Option<Receiver<String>>,
}

impl Process {
    /// A command for a program of this workspace: told to end with this process, in a process group of its own so that Ctrl-C
    /// reaches only the parent.
    pub fn command(program: &Path) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(program);
        command.args(["--parent", &std::process::id().to_string()]).process_group(0);
        // Variables that the user's shell sets for other tenants must not reach this one.
        for (name, _) in std::env::vars_os() {
            let is_of_sluice =
                name.to_str().is_some_and(|name| name.starts_with("SLUICE_") || name.starts_with("POD_"));
            if is_of_sluice || name == "LD_PRELOAD" {
                command.env_remove(name);
            }
        }
        command
    }

    /// Starts it. Its standard error is appended to `NAME.log` in `logs`.
    pub fn start(name: &str, mut command: Command, logs: &Path, output: Output) -> anyhow::Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log);
        let file = file.with_context(|| format!("cannot create {}", log.display()))?;
        let stdout = match output {
            Output::Lines => Stdio::piped(),
            Output::Log => file.try_clone().context("cannot share a log")?.into(),
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}: {command:?}"))?;
        let stdout = child.stdout.take();
        let mut process = Self { name: name.to_owned(), child, log, lines: None };
        if let Some(stdout) = stdout {
            let (sender, lines) = channel();
            thread::Builder::new().name(format!("{name}-output")).spawn(move || {
                BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
            })?;
            process.lines = Some(lines);
        }
        Ok(process)
    }

    /// The name given at the start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Process id. The kernel keeps it reserved until the child has been waited for.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }

    /// The exit status, if the child has ended.
    pub fn exit_status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot poll {}", self.name))
    }

    /// Fails, with the end of the child's log, if the child has ended.
    pub fn check_running(&mut self) -> anyhow::Result<()> {
        match self.exit_status()? {
            None => Ok(()),
            Some(status) => bail!("{} ended early ({status}){}", self.name, self.log_tail()),
        }
    }

    /// Writes a line to the child's standard input. Fails if the child no longer reads.
    pub fn send_line(&mut self, text: &str) -> anyhow::Result<()> {
        let Some(input) = &mut self.child.stdin else { bail!("the input of {} is closed", self.name) };
        writeln!(input, "{text}").with_context(|| format!("{} does not read its input", self.name))
    }

    /// Closes the child's standard input. Load generators end then.
    pub fn close_input(&mut self) {
        self.child.stdin = None;
    }

    /// The next line of its standard output, waiting until `deadline`.
    pub fn next_line(&self, deadline: Instant) -> Result<String, NoLine> {
        let Some(lines) = &self.lines else { return Err(NoLine::Closed) };
        lines.recv_timeout(deadline.saturating_duration_since(Instant::now())).map_err(|error| match error {
            RecvTimeoutError::Timeout => NoLine::TimedOut,
            RecvTimeoutError::Disconnected => NoLine::Closed,
        })
    }

    /// Waits for the child's end until `deadline`; `None` if it still runs then.
    pub fn wait(&mut self, deadline: Instant) -> anyhow::Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = self.exit_status()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(POLL_EVERY);
        }
    }

    /// Kills it with SIGKILL and reaps it. A child inside a driver that hangs does not end, and is left behind.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.wait(Instant::now() + KILL_TIMEOUT);
    }

    /// Everything in its log.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines of its log, ready to follow a message; empty if it wrote none.
    pub fn log_tail(&self) -> String {
        let text = self.log();
        let skipped = text.lines().count().saturating_sub(QUOTED_LINES);
        text.lines().skip(skipped).map(|line| format!("\n    {line}")).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests;
