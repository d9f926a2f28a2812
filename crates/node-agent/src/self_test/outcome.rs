//! The outcome of a GPU's self-test.

use sluice_nvrm::self_test::{SelfTestResult, UsableControls};

/// What is known of a GPU's driver controls.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// The test has not run yet.
    #[default]
    Pending,
    /// The test is off.
    Off,
    /// Disabling channel groups and time slices both have their effect.
    Proven,
    /// Disabling channel groups has its effect, time slices have not.
    StopsOnly {
        /// What time slices do instead.
        why: String,
    },
    /// Disabling channel groups has no effect: every process is scheduled by token.
    NoEffect {
        /// What disabling does instead.
        why: String,
    },
    /// The test measured too little to decide.
    Inconclusive {
        /// What was missing.
        why: String,
    },
    /// Not tested, because processes use the GPU.
    InUse {
        /// Number of these processes.
        processes: u32,
    },
    /// Not tested, for another reason.
    Untried {
        /// The reason.
        why: String,
    },
    /// The test itself failed.
    Failed {
        /// Its message.
        why: String,
    },
}

impl Outcome {
    /// The outcome of a result.
    #[must_use]
    pub fn of(result: &SelfTestResult) -> Self {
        let SelfTestResult { slices, stops, .. } = result;
        match result.usable_controls() {
            UsableControls::All => Self::Proven,
            _ if result.is_inconclusive() => {
                let first = if stops.is_inconclusive() { stops } else { slices };
                Self::Inconclusive { why: first.to_string() }
            }
            UsableControls::DisableOnly => Self::StopsOnly { why: slices.to_string() },
            UsableControls::NoControls => Self::NoEffect { why: stops.to_string() },
        }
    }

    /// The name in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// A text for the administrator of the node; `None` if the controls work or the test is repeated later.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        match self {
            Self::StopsOnly { why } => Some(format!(
                "time slices have no effect ({why}): a latency-critical request waits for the time slice of the running process"
            )),
            Self::NoEffect { why } => Some(format!(
                "channel groups cannot be disabled ({why}): all processes are scheduled by token"
            )),
            Self::Failed { why } => {
                Some(format!("the self-test failed ({why}): the driver's version decides instead"))
            }
            Self::Pending
            | Self::Off
            | Self::Proven
            | Self::Inconclusive { .. }
            | Self::InUse { .. }
            | Self::Untried { .. } => None,
        }
    }

    /// Whether another test would have the same outcome.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        matches!(self, Self::Proven | Self::StopsOnly { .. } | Self::NoEffect { .. })
    }
}

#[cfg(test)]
mod tests;
