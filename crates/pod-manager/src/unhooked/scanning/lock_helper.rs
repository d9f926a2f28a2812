//! The lock helper: a child process, `sluice lock-helper`, that makes the driver's lock calls. Its protocol is one line in and one line
//! out.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Limit for an answer; the first lock may have to load the driver.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit for loading the driver in advance: on a node with many idle GPUs every GPU is initialised.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit for the helper's end. A helper inside a driver call that hangs does not end, and is left to a thread.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval at which the end is checked.
const CHECK_EVERY: Duration = Duration::from_millis(1);

/// A running lock helper.
#[derive(Debug)]
pub(super) struct LockHelper {
    /// `None` once its end was awaited.
    child: Option<Child>,
    stream: BufReader<UnixStream>,
}

impl LockHelper {
    /// Starts a helper that has not loaded the driver.
    pub(super) fn start(program: &Path) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let output = OwnedFd::from(theirs.try_clone()?);
        // A signal to the manager's process group must not end the helper before it has unlocked its processes.
        let child = Command::new(program)
            .arg("lock-helper")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(output))
            .process_group(0)
            .spawn()?;
        Ok(Self { child: Some(child), stream: BufReader::new(ours) })
    }

    /// Kills the helper.
    pub(super) fn kill(&mut self) {
        let _ = self.child.as_mut().map(Child::kill);
    }

    /// Makes the helper load the driver.
    pub(super) fn with_driver(mut self) -> io::Result<Self> {
        self.stream.get_ref().set_read_timeout(Some(LOAD_TIMEOUT))?;
        let answer = self.request("open").inspect_err(|_| self.kill())?;
        self.stream.get_ref().set_read_timeout(Some(ANSWER_TIMEOUT))?;
        if answer == "ok" { Ok(self) } else { Err(io::Error::other(answer)) }
    }

    /// Sends a command and reads the answer.
    pub(super) fn request(&mut self, command: &str) -> io::Result<String> {
        writeln!(self.stream.get_mut(), "{command}")?;
        let mut answer = String::new();
        if self.stream.read_line(&mut answer)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(answer.trim_end().to_owned())
    }
}

impl Drop for LockHelper {
    /// Closes the helper's input: it unlocks its processes and ends.
    fn drop(&mut self) {
        let _ = self.stream.get_ref().shutdown(std::net::Shutdown::Write);
        if let Some(child) = self.child.take() {
            await_end(child);
        }
    }
}

/// Waits for the end of a child, up to [`END_TIMEOUT`]; then a thread continues to wait.
fn await_end(mut child: Child) {
    let deadline = Instant::now() + END_TIMEOUT;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= deadline {
            let wait = move || drop(child.wait());
            // If no thread can be started, the child stays a zombie after its end.
            let _ = std::thread::Builder::new().name("sluice-wait".into()).spawn(wait);
            return;
        }
        std::thread::sleep(CHECK_EVERY);
    }
}
