//! What a client is, whoever says so: the resource file or the node agent.

use sluice_core::ledger::ClientSpec;
use sluice_core::resources::{ClientEntry, Resources};
use std::fmt;

/// What clients are told apart by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// A name of the resource file.
    Named(String),
    /// A pod; one of the same name with another uid is somebody else.
    Pod { uid: String, namespace: String, name: String },
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Pod { namespace, name, .. } => write!(f, "{namespace}/{name}"),
        }
    }
}

/// A client and what it was promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) who: Who,
    pub(crate) spec: ClientSpec,
    /// Memory its processes may have together, bytes.
    pub(crate) memory: u64,
    /// Latency objective, nanoseconds; 0: none.
    pub(crate) slo_ns: u64,
}

impl From<ClientEntry> for Definition {
    fn from(entry: ClientEntry) -> Self {
        let (spec, memory) = (entry.spec(), entry.memory);
        Self { who: Who::Named(entry.name), spec, memory, slo_ns: 0 }
    }
}

/// The clients of a resource file.
pub(crate) fn of_file(resources: Resources) -> Vec<Definition> {
    resources.clients.into_iter().map(Definition::from).collect()
}
