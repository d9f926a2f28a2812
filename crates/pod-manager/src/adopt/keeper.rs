//! Who makes the driver's locks: `sluice hold --locks`, a line in and a line out.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long an answer may take; the first lock may have to load the driver.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long loading the driver may take where nobody waits for it: on a node of many GPUs that were idle each is woken.
const LOADING: Duration = Duration::from_secs(60);
/// How long it may take to end. One that is inside a driver that hangs does not, and is left behind.
const BURIAL: Duration = Duration::from_secs(1);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// One of them.
#[derive(Debug)]
pub(super) struct Keeper {
    /// `None`: it is buried.
    child: Option<Child>,
    line: BufReader<UnixStream>,
}

impl Keeper {
    /// Starts it; it has not loaded the driver.
    pub(super) fn start(program: &Path) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        let output = OwnedFd::from(theirs.try_clone()?);
        // What ends this manager's group is not to end it before it has let everybody go.
        let child = Command::new(program)
            .args(["hold", "--locks"])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(output))
            .process_group(0)
            .spawn()?;
        Ok(Self { child: Some(child), line: BufReader::new(ours) })
    }

    /// Ends it, whatever it is at.
    pub(super) fn kill(&mut self) {
        let _ = self.child.as_mut().map(Child::kill);
    }

    /// Has it load the driver.
    pub(super) fn with_driver(mut self) -> io::Result<Self> {
        self.line.get_ref().set_read_timeout(Some(LOADING))?;
        let said = self.ask("open").inspect_err(|_| self.kill())?;
        self.line.get_ref().set_read_timeout(Some(PATIENCE))?;
        if said == "ok" { Ok(self) } else { Err(io::Error::other(said)) }
    }

    /// Says something, and waits for the answer.
    pub(super) fn ask(&mut self, command: &str) -> io::Result<String> {
        writeln!(self.line.get_mut(), "{command}")?;
        let mut said = String::new();
        if self.line.read_line(&mut said)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(said.trim_end().to_owned())
    }
}

impl Drop for Keeper {
    /// It ends by itself when its input ends, and lets everybody go before.
    fn drop(&mut self) {
        let _ = self.line.get_ref().shutdown(std::net::Shutdown::Write);
        if let Some(child) = self.child.take() {
            bury(child);
        }
    }
}

/// Waits for the end of a child, for [`BURIAL`]; after that a thread of its own does.
fn bury(mut child: Child) {
    let deadline = Instant::now() + BURIAL;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= deadline {
            let waits = move || drop(child.wait());
            // Without a thread it is left behind unburied.
            let _ = std::thread::Builder::new().name("sluice-burial".into()).spawn(waits);
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
