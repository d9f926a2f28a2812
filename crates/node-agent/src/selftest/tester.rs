//! Decides whether a GPU is tried, and has it tried.

use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use sluice_nvrm::selftest::About;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};

use super::Outcome;
use super::records::Records;
use crate::gpu::Gpus;
use crate::gpu::source::Usage;

/// How long a driver may take to say who uses a GPU.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The test ends by itself before this.
const PATIENCE: Duration = Duration::from_secs(75);
/// How long the end of a test that was killed is waited for.
const BURIAL: Duration = Duration::from_secs(5);

/// What a test is made with.
#[derive(Debug, Clone)]
pub struct Tools {
    /// The `sluice` program.
    pub program: PathBuf,
    /// The library that pods get.
    pub library: PathBuf,
    /// Where verdicts are kept and tests may write; nobody else's.
    pub folder: PathBuf,
    /// Whether the GPUs are a simulator's.
    pub simulated: bool,
}

/// Tries GPUs.
#[derive(Clone)]
pub struct Tester {
    tools: Arc<Tools>,
    records: Records,
    gpus: Arc<dyn Gpus>,
}

impl fmt::Debug for Tester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tester").field("tools", &self.tools).finish_non_exhaustive()
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// In a word.
    pub outcome: Outcome,
    /// The verdict for the GPU's pod-manager, if there is one.
    pub verdict: Option<PathBuf>,
}

impl Tried {
    const fn without(outcome: Outcome) -> Self {
        Self { outcome, verdict: None }
    }
}

impl Tester {
    /// Tries these GPUs with these tools. No test may be under way.
    #[must_use]
    pub fn new(tools: Tools, gpus: Arc<dyn Gpus>) -> Self {
        let records = Records::at(tools.folder.clone());
        Self { tools: Arc::new(tools), records, gpus }
    }

    /// What is known of a GPU: by the verdict that is kept, or by a test if nobody uses it.
    pub async fn verdict(&self, gpu: &str) -> Tried {
        let usage = match self.usage(gpu).await {
            Ok(usage) => usage,
            Err(why) => {
                warn!(gpu, why, "the GPU's controls are not tried: the driver does not say who uses it");
                return Tried::without(Outcome::Untried { why });
            }
        };
        let about = About::now(usage.driver.trim(), gpu);
        if let Some(kept) = self.kept(&about).filter(|kept| kept.outcome.is_settled()) {
            return kept;
        }
        if usage.processes > 0 {
            let processes = usage.processes;
            warn!(gpu, processes, "the GPU's controls are not tried: it is in use");
            return self.kept(&about).unwrap_or(Tried::without(Outcome::InUse { processes }));
        }
        if let Err(why) = self.records.forget(gpu) {
            warn!(gpu, %why, "cannot remove older verdicts");
        }
        let failed = self.test(&about).await.err();
        let tried = self.kept(&about).unwrap_or_else(|| {
            let why = failed.unwrap_or_else(|| "it ended without a verdict".to_owned());
            Tried::without(Outcome::Failed { why })
        });
        match tried.outcome.complaint() {
            Some(complaint) => warn!(gpu, driver = about.driver, complaint, "the GPU's controls were tried"),
            None => info!(
                gpu,
                driver = about.driver,
                outcome = tried.outcome.name(),
                "the GPU's controls were tried"
            ),
        }
        tried
    }

    async fn usage(&self, gpu: &str) -> Result<Usage, String> {
        let (gpus, gpu) = (Arc::clone(&self.gpus), gpu.to_owned());
        match timeout(ANSWER_WITHIN, spawn_blocking(move || gpus.usage(&gpu))).await {
            Ok(Ok(answer)) => answer.map_err(|why| why.to_string()),
            Ok(Err(why)) => Err(format!("asking it ended in a panic: {why}")),
            Err(_) => Err(format!("no answer for {} s", ANSWER_WITHIN.as_secs())),
        }
    }

    fn kept(&self, about: &About) -> Option<Tried> {
        let outcome = Outcome::of(&self.records.kept(about)?);
        Some(Tried { outcome, verdict: Some(self.records.file(about)) })
    }

    /// Has it tried by a process of its own, which is gone when this returns, unless the driver does not let go of it. It is killed
    /// when this is dropped, and dies with the *thread* that starts it: tokio's workers last.
    async fn test(&self, about: &About) -> Result<(), String> {
        let mut command = Command::new(&self.tools.program);
        command
            .args(["--parent", &std::process::id().to_string(), "self-test"])
            .args(["--gpu", if self.tools.simulated { "sim" } else { "real" }, "--gpu-uuid", &about.gpu])
            .arg("--library")
            .arg(&self.tools.library)
            .arg("--write")
            .arg(self.records.file(about))
            // Nothing else of this container need be writable.
            .env("TMPDIR", self.records.folder())
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|why| format!("{}: {why}", self.tools.program.display()))?;
        let mut errors = child.stderr.take();
        let mut said = Vec::new();
        let ended = timeout(PATIENCE, async {
            if let Some(errors) = &mut errors {
                errors.read_to_end(&mut said).await?;
            }
            child.wait().await
        });
        let status = match ended.await {
            Ok(status) => status.map_err(|why| why.to_string())?,
            Err(_) => {
                // The manager is not to begin beside it.
                let _ = child.start_kill();
                let _ = timeout(BURIAL, child.wait()).await;
                return Err(format!("it did not end within {} s", PATIENCE.as_secs()));
            }
        };
        if status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&said);
        Err(said.lines().last().map_or_else(|| status.to_string(), str::to_owned))
    }
}

#[cfg(test)]
#[path = "tester_tests.rs"]
mod tests;
