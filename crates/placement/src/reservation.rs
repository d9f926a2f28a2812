//! What a pod holds, and until when.

use std::sync::Arc;

use super::demand::Demand;

/// How firmly a pod holds its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Offered to the scheduler, which may still choose otherwise. Given back at the deadline, or when the pod is placed anew.
    Reserved {
        /// On the caller's clock, nanoseconds.
        deadline_ns: u64,
    },
    /// A bind was sent, and may yet succeed: placing the pod anew does not give it back.
    Binding {
        /// When no answer can come any more.
        deadline_ns: u64,
    },
    /// The pod is bound with it.
    Confirmed,
}

impl Hold {
    /// When it ends by itself.
    pub fn deadline_ns(self) -> Option<u64> {
        match self {
            Self::Reserved { deadline_ns } | Self::Binding { deadline_ns } => Some(deadline_ns),
            Self::Confirmed => None,
        }
    }
}

/// GPUs of one node that one pod holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The node.
    pub node: Arc<str>,
    /// UUIDs of the GPUs.
    pub gpus: Vec<Arc<str>>,
    /// What it takes of each.
    pub demand: Arc<Demand>,
    /// How firmly.
    pub hold: Hold,
}
