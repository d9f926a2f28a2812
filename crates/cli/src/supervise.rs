//! Child processes that never outlive this one, and whose output is at hand when something goes wrong.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// How often a child that is to end is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long a child that was killed may take to end.
const BURIAL: Duration = Duration::from_secs(5);
/// Lines of a child's log that an error quotes.
const QUOTED_LINES: usize = 12;

/// A line that a child wrote to its standard output.
#[derive(Debug)]
pub(crate) struct Line {
    /// The child's name.
    pub(crate) from: String,
    /// Without its end.
    pub(crate) text: String,
}

/// A child of this process. It is killed and reaped when it is dropped, and by the kernel if this process is killed: it has to
/// be a `sluice` that is given `--parent`.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// A command for a child: this program, told to end with us, in a process group of its own so that Ctrl-C reaches only us.
    pub(crate) fn command(program: &Path) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(program);
        command.args(["--parent", &std::process::id().to_string()]).process_group(0);
        // What the user's shell sets for tenants of its own must not reach these.
        for (name, _) in std::env::vars_os() {
            let ours =
                name.to_str().is_some_and(|name| name.starts_with("SLUICE_") || name.starts_with("POD_"));
            if ours || name == "LD_PRELOAD" {
                command.env_remove(name);
            }
        }
        command
    }

    /// Starts it. Its standard error goes to `NAME.log` in `logs`, its standard output line by line to `lines`, or after
    /// its standard error.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start(
        name: &str,
        mut command: Command,
        logs: &Path,
        lines: Option<Sender<Line>>,
    ) -> anyhow::Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let out = if lines.is_some() {
            Stdio::piped()
        } else {
            file.try_clone().context("cannot share a log")?.into()
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(out)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let out = child.stdout.take();
        let process = Self { name: name.to_owned(), child, log };
        if let (Some(out), Some(lines)) = (out, lines) {
            let from = process.name.clone();
            thread::Builder::new().name(format!("{name}-output")).spawn(move || {
                for text in BufReader::new(out).lines().map_while(Result::ok) {
                    if lines.send(Line { from: from.clone(), text }).is_err() {
                        return;
                    }
                }
            })?;
        }
        Ok(process)
    }

    /// The name given at the start.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Process id; it stays reserved until the child has been waited for.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }

    /// Fails, with the end of its log, if it has ended.
    pub(crate) fn check_running(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait().with_context(|| format!("cannot look at {}", self.name))? {
            None => Ok(()),
            Some(status) => bail!("{} ended early ({status}){}", self.name, self.log_tail()),
        }
    }

    /// Whether it has ended otherwise than in success.
    pub(crate) fn has_failed(&mut self) -> anyhow::Result<bool> {
        let status = self.child.try_wait().with_context(|| format!("cannot look at {}", self.name))?;
        Ok(status.is_some_and(|status| !status.success()))
    }

    /// Writes an empty line to its standard input.
    ///
    /// # Errors
    /// If it no longer reads.
    pub(crate) fn mark(&mut self) -> anyhow::Result<()> {
        self.tell("")
    }

    /// Writes a line with this text to its standard input.
    ///
    /// # Errors
    /// If it no longer reads.
    pub(crate) fn tell(&mut self, text: &str) -> anyhow::Result<()> {
        let Some(input) = &mut self.child.stdin else { bail!("{}'s input is closed", self.name) };
        writeln!(input, "{text}").with_context(|| format!("{} does not read its input", self.name))
    }

    /// Closes its standard input: generators end then.
    pub(crate) fn close_input(&mut self) {
        self.child.stdin = None;
    }

    /// Waits for its end until `deadline`; `None` if it is still running then.
    pub(crate) fn wait(&mut self, deadline: Instant) -> anyhow::Result<Option<ExitStatus>> {
        loop {
            if let Some(status) =
                self.child.try_wait().with_context(|| format!("cannot wait for {}", self.name))?
            {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Kills it with SIGKILL and reaps it. One that is inside a driver that hangs does not end, and is left behind.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let deadline = Instant::now() + BURIAL;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The last lines of its log, ready to follow a message; empty if it wrote none.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines
            .iter()
            .skip(lines.len().saturating_sub(QUOTED_LINES))
            .map(|line| format!("\n    {line}"))
            .collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::kill;
    use nix::unistd::Pid;

    fn shell(script: &str, logs: &Path, lines: Option<Sender<Line>>) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start("child", command, logs, lines).unwrap()
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let logs = tempfile::tempdir().unwrap();
        let process = shell("exec sleep 1000", logs.path(), None);
        let pid = Pid::from_raw(process.pid());
        assert!(kill(pid, None).is_ok());
        drop(process);
        assert_eq!(kill(pid, None), Err(nix::errno::Errno::ESRCH));
    }

    #[test]
    fn one_that_ended_early_is_reported_with_what_it_said() {
        let logs = tempfile::tempdir().unwrap();
        let mut process = shell("echo the reason >&2; exit 3", logs.path(), None);
        process.wait(Instant::now() + Duration::from_secs(20)).unwrap();
        let said = process.check_running().unwrap_err().to_string();
        assert!(said.contains("the reason") && said.contains('3'), "{said}");
    }

    #[test]
    fn closing_its_input_lets_a_reader_end_by_itself() {
        let logs = tempfile::tempdir().unwrap();
        let (lines, seen) = std::sync::mpsc::channel();
        let mut process = shell("read x; echo marked; cat; exit 7", logs.path(), Some(lines));
        process.mark().unwrap();
        assert_eq!(seen.recv().unwrap().text, "marked");
        process.close_input();
        let status = process.wait(Instant::now() + Duration::from_secs(20)).unwrap().unwrap();
        assert_eq!(status.code(), Some(7));
    }
}
