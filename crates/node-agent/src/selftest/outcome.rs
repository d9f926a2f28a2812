//! What is known of a GPU's controls.

use sluice_nvrm::selftest::{Allows, Verdict};

/// What came of the self-test of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It has not been looked at yet.
    #[default]
    Pending,
    /// Nobody asked for it.
    Off,
    /// Turns and slices can be built on the controls.
    Proven,
    /// Turns can, slices cannot.
    StopsOnly {
        /// What slices do instead.
        why: String,
    },
    /// Nothing can: everybody takes turns by token.
    NoEffect {
        /// What a stop does instead.
        why: String,
    },
    /// Too little was seen to tell.
    Inconclusive {
        /// What was missing.
        why: String,
    },
    /// Not tried, for somebody uses the GPU.
    InUse {
        /// Processes that do.
        processes: u32,
    },
    /// Not tried, for another reason.
    Untried {
        /// The reason.
        why: String,
    },
    /// The test itself did not work.
    Failed {
        /// What it said.
        why: String,
    },
}

impl Outcome {
    /// What a verdict says.
    #[must_use]
    pub fn of(verdict: &Verdict) -> Self {
        let Verdict { slices, stops, .. } = verdict;
        match verdict.allows() {
            Allows::Everything => Self::Proven,
            _ if verdict.is_inconclusive() => {
                let first = if stops.is_inconclusive() { stops } else { slices };
                Self::Inconclusive { why: first.to_string() }
            }
            Allows::Stops => Self::StopsOnly { why: slices.to_string() },
            Allows::Nothing => Self::NoEffect { why: stops.to_string() },
        }
    }

    /// As metrics have it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Off => "off",
            Self::Proven => "proven",
            Self::StopsOnly { .. } => "stops-only",
            Self::NoEffect { .. } => "no-effect",
            Self::Inconclusive { .. } => "inconclusive",
            Self::InUse { .. } => "in-use",
            Self::Untried { .. } => "untried",
            Self::Failed { .. } => "failed",
        }
    }

    /// What somebody should know who looks after the node; `None` if all is well or it is tried again.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        match self {
            Self::StopsOnly { why } => Some(format!(
                "time slices cannot be built on ({why}): a latency-critical request waits for a slice of whoever has the GPU"
            )),
            Self::NoEffect { why } => {
                Some(format!("channel groups cannot be stopped ({why}): everybody takes turns by token"))
            }
            Self::Failed { why } => {
                Some(format!("the self-test does not work ({why}): the driver's version decides instead"))
            }
            Self::Pending
            | Self::Off
            | Self::Proven
            | Self::Inconclusive { .. }
            | Self::InUse { .. }
            | Self::Untried { .. } => None,
        }
    }

    /// Whether another attempt would come to the same.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        matches!(self, Self::Proven | Self::StopsOnly { .. } | Self::NoEffect { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_nvrm::selftest::{About, Effect};

    fn of(stops: Effect, slices: Effect) -> Outcome {
        let about = About::now("1", "GPU-1");
        Outcome::of(&Verdict { about, slices, stops, counts: Effect::Proven })
    }

    #[test]
    fn what_was_not_proven_is_told_apart_from_what_could_not_be_seen() {
        let unclear = || Effect::inconclusive("few");
        let cases = [
            (of(Effect::Proven, Effect::Proven), "proven", false),
            (of(Effect::Proven, Effect::NoEffect), "stops-only", true),
            (of(Effect::Proven, unclear()), "inconclusive", false),
            (of(unclear(), Effect::Proven), "inconclusive", false),
            (of(Effect::NoEffect, Effect::Proven), "no-effect", true),
            (of(Effect::NotUndone, Effect::NoEffect), "no-effect", true),
        ];
        for (outcome, name, complains) in cases {
            assert_eq!((outcome.name(), outcome.complaint().is_some()), (name, complains), "{outcome:?}");
            let page = serde_json::to_value(&outcome).unwrap();
            assert_eq!(page["outcome"], name, "the page and the metrics use the same word");
        }
    }
}
