//! The self-test of a GPU's driver controls: run once per GPU, driver and boot, before the GPU's first pod-manager
//! starts. The manager receives the result as a file.
//!
//! The test runs in a process of its own (`sluice self-test`): a driver that hangs blocks only that process. Its result
//! is kept in the node's state folder, by GPU, driver and boot.
//!
//! The test needs an idle GPU for a moment. If the GPU is in use or cannot be tested, the pod-manager starts without a
//! result and decides by the driver's branch.

mod outcome;
mod result_store;
mod tester;

pub use outcome::Outcome;
pub use tester::{SelfTestRun, Tester, Tools};

use std::path::Path;

/// After this many tests that gave no result, a manager that restarts does not wait for another.
const MAX_RUNS: u32 = 3;

/// The self-test of one GPU across the restarts of its manager: its last result, and how often it ran.
#[derive(Debug, Default)]
pub(crate) struct SelfTestState {
    last_run: Option<SelfTestRun>,
    runs: u32,
}

impl SelfTestState {
    /// Runs the test unless its result is known. An unhealthy GPU is not tested: it would fail for another reason.
    pub(crate) async fn run_if_unknown(&mut self, tester: Option<&Tester>, gpu: &str, healthy: bool) {
        let settled = self.last_run.as_ref().is_some_and(|last_run| last_run.outcome.is_settled());
        if settled || self.runs >= MAX_RUNS {
            return;
        }
        self.last_run = Some(match tester {
            None => SelfTestRun { outcome: Outcome::Off, result_file: None },
            Some(_) if !healthy => SelfTestRun {
                outcome: Outcome::Untried { why: "the GPU is not healthy".to_owned() },
                result_file: None,
            },
            Some(tester) => {
                let last_run = tester.result_for(gpu).await;
                // A GPU in use may be idle later, so this attempt does not count.
                self.runs += u32::from(!matches!(last_run.outcome, Outcome::InUse { .. }));
                last_run
            }
        });
    }

    pub(crate) fn outcome(&self) -> Outcome {
        self.last_run.as_ref().map_or(Outcome::Pending, |last_run| last_run.outcome.clone())
    }

    /// The result file for the manager.
    pub(crate) fn result_file(&self) -> Option<&Path> {
        self.last_run.as_ref()?.result_file.as_deref()
    }
}
