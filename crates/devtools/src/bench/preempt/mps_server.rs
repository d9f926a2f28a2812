//! A private MPS server, identified by its folder.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;

const CONTROL: &str = "nvidia-cuda-mps-control";
/// How long the server may take to end; its clients have ended by then.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two polls.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// The server; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct MpsServer {
    dir: TempDir,
}

impl MpsServer {
    /// Starts the control daemon, which starts servers for clients.
    ///
    /// # Errors
    /// If the daemon is not installed or does not start.
    pub(super) fn start() -> anyhow::Result<Self> {
        let mps = Self {
            dir: tempfile::Builder::new()
                .prefix("sluice-mps-")
                .tempdir()
                .context("cannot make a directory")?,
        };
        let mut command = Command::new(CONTROL);
        mps.set_server(&mut command);
        let status =
            command.arg("-d").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status = status.with_context(|| format!("cannot start {CONTROL}"))?;
        if !status.success() {
            bail!("{CONTROL} ended with {status}");
        }
        Ok(mps)
    }

    /// Tells a command where the server is.
    pub(super) fn set_server(&self, command: &mut Command) {
        let dir: &Path = self.dir.path();
        command.env("CUDA_MPS_PIPE_DIRECTORY", dir).env("CUDA_MPS_LOG_DIRECTORY", dir);
    }
}

impl Drop for MpsServer {
    fn drop(&mut self) {
        let mut command = Command::new(CONTROL);
        self.set_server(&mut command);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        if let Ok(mut child) = child {
            if let Some(mut input) = child.stdin.take() {
                let _ = input.write_all(b"quit\n");
            }
            let until = Instant::now() + END_TIMEOUT;
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                thread::sleep(POLL_EVERY);
            }
            // A child that has ended is not killed.
            let _ = child.kill();
        }
    }
}
