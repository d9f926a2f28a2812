//! The self-test of one GPU across the restarts of its manager.

use std::path::Path;

use crate::self_test::{Outcome, SelfTestRun, Tester};

/// After this many tests that gave no result, a manager that restarts does not wait for another.
const TRIES: u32 = 3;

/// The result as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct SelfTestState {
    tried: Option<SelfTestRun>,
    tries: u32,
}

impl SelfTestState {
    /// Runs the test unless its result is known. An unhealthy GPU is not tested: it would fail for another reason.
    pub(super) async fn run_if_unknown(&mut self, tester: Option<&Tester>, gpu: &str, healthy: bool) {
        let settled = self.tried.as_ref().is_some_and(|tried| tried.outcome.is_settled());
        if settled || self.tries >= TRIES {
            return;
        }
        self.tried = Some(match tester {
            None => SelfTestRun { outcome: Outcome::Off, result_file: None },
            Some(_) if !healthy => SelfTestRun {
                outcome: Outcome::Untried { why: "the GPU is not healthy".to_owned() },
                result_file: None,
            },
            Some(tester) => {
                let tried = tester.result_for(gpu).await;
                // A GPU in use may be idle later, so this attempt does not count.
                self.tries += u32::from(!matches!(tried.outcome, Outcome::InUse { .. }));
                tried
            }
        });
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.tried.as_ref().map_or(Outcome::Pending, |tried| tried.outcome.clone())
    }

    /// The result file for the manager.
    pub(super) fn result_file(&self) -> Option<&Path> {
        self.tried.as_ref()?.result_file.as_deref()
    }
}
