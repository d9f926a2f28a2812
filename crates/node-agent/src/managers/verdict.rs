//! What a GPU's manager is told of its self-test, over the manager's lives.

use std::path::Path;

use crate::selftest::{Outcome, Tester, Tried};

/// A manager that ends again and again does not wait for a test each time.
const TRIES: u32 = 3;

/// The verdict as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    tried: Option<Tried>,
    tries: u32,
}

impl Verdict {
    /// Finds it out unless it is known. A GPU that is not healthy would fail for another reason.
    pub(super) async fn learn(&mut self, tester: Option<&Tester>, gpu: &str, healthy: bool) {
        let settled = self.tried.as_ref().is_some_and(|tried| tried.outcome.is_settled());
        if settled || self.tries >= TRIES {
            return;
        }
        self.tried = Some(match tester {
            None => Tried { outcome: Outcome::Off, verdict: None },
            Some(_) if !healthy => Tried {
                outcome: Outcome::Untried { why: "the GPU is not healthy".to_owned() },
                verdict: None,
            },
            Some(tester) => {
                let tried = tester.verdict(gpu).await;
                // Who uses the GPU today may be gone tomorrow.
                self.tries += u32::from(!matches!(tried.outcome, Outcome::InUse { .. }));
                tried
            }
        });
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.tried.as_ref().map_or(Outcome::Pending, |tried| tried.outcome.clone())
    }

    /// For the manager.
    pub(super) fn file(&self) -> Option<&Path> {
        self.tried.as_ref()?.verdict.as_deref()
    }
}
