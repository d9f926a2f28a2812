//! Decides whether a GPU is tested, and runs the test.

use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use sluice_nvrm::self_test::SelfTestSubject;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};

use super::Outcome;
use super::result_store::ResultStore;
use crate::gpus::GpuDriver;
use crate::gpus::driver::Usage;

/// How long a driver may take to report the use of a GPU.
const USAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// The test ends by itself before this.
const TEST_TIMEOUT: Duration = Duration::from_secs(75);
/// How long to wait for the end of a killed test.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// What a test needs.
#[derive(Debug, Clone)]
pub struct Tools {
    /// The `sluice` program.
    pub program: PathBuf,
    /// The library that pods get.
    pub library: PathBuf,
    /// Where results are stored and tests may write. Only the agent and its tests use it.
    pub folder: PathBuf,
    /// Whether the GPUs are simulated.
    pub simulated: bool,
}

/// Tests GPUs.
#[derive(Clone)]
pub struct Tester {
    tools: Arc<Tools>,
    results: ResultStore,
    gpus: Arc<dyn GpuDriver>,
}

impl fmt::Debug for Tester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tester").field("tools", &self.tools).finish_non_exhaustive()
    }
}

/// What is known after a call of [`Tester::result_for`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfTestRun {
    /// The outcome.
    pub outcome: Outcome,
    /// The result file for the GPU's pod-manager, if there is one.
    pub result_file: Option<PathBuf>,
}

impl SelfTestRun {
    const fn without(outcome: Outcome) -> Self {
        Self { outcome, result_file: None }
    }
}

impl Tester {
    /// A tester of these GPUs. No test may be running.
    #[must_use]
    pub fn new(tools: Tools, gpus: Arc<dyn GpuDriver>) -> Self {
        let results = ResultStore::at(tools.folder.clone());
        Self { tools: Arc::new(tools), results, gpus }
    }

    /// The result for a GPU: the stored one, or else that of a new test if no process uses the GPU.
    pub async fn result_for(&self, gpu: &str) -> SelfTestRun {
        let usage = match self.usage(gpu).await {
            Ok(usage) => usage,
            Err(why) => {
                warn!(gpu, why, "the GPU's controls are not tested: the driver does not report its use");
                return SelfTestRun::without(Outcome::Untried { why });
            }
        };
        let about = SelfTestSubject::now(usage.driver.trim(), gpu);
        if let Some(stored) = self.stored(&about).filter(|stored| stored.outcome.is_settled()) {
            return stored;
        }
        if usage.processes > 0 {
            let processes = usage.processes;
            warn!(gpu, processes, "the GPU's controls are not tested: it is in use");
            return self.stored(&about).unwrap_or(SelfTestRun::without(Outcome::InUse { processes }));
        }
        if let Err(why) = self.results.forget(gpu) {
            warn!(gpu, %why, "cannot remove older results");
        }
        let failed = self.test(&about).await.err();
        let run = self.stored(&about).unwrap_or_else(|| {
            let why = failed.unwrap_or_else(|| "it ended without a result".to_owned());
            SelfTestRun::without(Outcome::Failed { why })
        });
        match run.outcome.warning() {
            Some(warning) => warn!(gpu, driver = about.driver, warning, "the GPU's controls were tested"),
            None => info!(
                gpu,
                driver = about.driver,
                outcome = run.outcome.name(),
                "the GPU's controls were tested"
            ),
        }
        run
    }

    async fn usage(&self, gpu: &str) -> Result<Usage, String> {
        let (gpus, gpu) = (Arc::clone(&self.gpus), gpu.to_owned());
        match timeout(USAGE_TIMEOUT, spawn_blocking(move || gpus.usage(&gpu))).await {
            Ok(Ok(answer)) => answer.map_err(|why| why.to_string()),
            Ok(Err(why)) => Err(format!("the query panicked: {why}")),
            Err(_) => Err(format!("no answer for {} s", USAGE_TIMEOUT.as_secs())),
        }
    }

    fn stored(&self, about: &SelfTestSubject) -> Option<SelfTestRun> {
        let outcome = Outcome::of(&self.results.stored(about)?);
        Some(SelfTestRun { outcome, result_file: Some(self.results.file(about)) })
    }

    /// Runs the test in a process of its own. The process has ended when this returns, unless the driver blocks its
    /// end. It is killed when this future is dropped, and dies with the *thread* that starts it; tokio's workers
    /// outlive it.
    async fn test(&self, about: &SelfTestSubject) -> Result<(), String> {
        let mut command = Command::new(&self.tools.program);
        command
            .args(["--parent", &std::process::id().to_string(), "self-test"])
            .args(["--gpu", if self.tools.simulated { "sim" } else { "real" }, "--gpu-uuid", &about.gpu])
            .arg("--library")
            .arg(&self.tools.library)
            .arg("--write")
            .arg(self.results.file(about))
            // The container needs no other writable folder.
            .env("TMPDIR", self.results.folder())
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|why| format!("{}: {why}", self.tools.program.display()))?;
        let mut errors = child.stderr.take();
        let mut stderr = Vec::new();
        let ended = timeout(TEST_TIMEOUT, async {
            if let Some(errors) = &mut errors {
                errors.read_to_end(&mut stderr).await?;
            }
            child.wait().await
        });
        let status = match ended.await {
            Ok(status) => status.map_err(|why| why.to_string())?,
            Err(_) => {
                // The manager must not start beside it.
                let _ = child.start_kill();
                let _ = timeout(KILL_TIMEOUT, child.wait()).await;
                return Err(format!("it did not end within {} s", TEST_TIMEOUT.as_secs()));
            }
        };
        if status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&stderr);
        Err(stderr.lines().last().map_or_else(|| status.to_string(), str::to_owned))
    }
}

#[cfg(test)]
mod tests;
