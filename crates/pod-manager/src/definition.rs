//! What a client is promised, as the resource file or the node agent defines it.

use sluice_core::ledger::ClientSpec;
use sluice_core::resources::ClientEntry;
use std::fmt;

/// What distinguishes clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientKey {
    /// A name of the resource file.
    Named(String),
    /// A pod. A pod of the same name with another uid is another client.
    Pod { uid: String, namespace: String, name: String },
}

impl ClientKey {
    /// The uid of the pod, if the client is one.
    pub(crate) fn pod_uid(&self) -> Option<&str> {
        match self {
            Self::Named(_) => None,
            Self::Pod { uid, .. } => Some(uid),
        }
    }
}

impl fmt::Display for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Pod { namespace, name, .. } => write!(f, "{namespace}/{name}"),
        }
    }
}

/// A client and what it is promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) key: ClientKey,
    pub(crate) spec: ClientSpec,
    /// Memory that its processes may reserve together, bytes.
    pub(crate) memory: u64,
    /// Latency objective, nanoseconds; 0: none.
    pub(crate) slo_ns: u64,
    /// Its memory may leave the GPU for that of others.
    pub(crate) overcommit: bool,
    /// It gets no grants, and memory that may leave the GPU does.
    pub(crate) suspended: bool,
    /// Name of a gang of pods in its namespace.
    pub(crate) gang: Option<String>,
}

impl Definition {
    /// What its processes on other GPUs of the node, and clients of the same gang there, have in common.
    pub(crate) fn gang_name(&self) -> String {
        match (&self.key, &self.gang) {
            (ClientKey::Named(name), _) => format!("client/{name}"),
            (ClientKey::Pod { namespace, .. }, Some(gang)) => format!("gang/{namespace}/{gang}"),
            (ClientKey::Pod { uid, .. }, None) => format!("pod/{uid}"),
        }
    }
}

impl From<ClientEntry> for Definition {
    fn from(entry: ClientEntry) -> Self {
        let (spec, memory, slo_ns) = (entry.spec(), entry.memory, entry.slo_ns);
        let key = ClientKey::Named(entry.name);
        let (overcommit, suspended) = (entry.overcommit, entry.suspended);
        Self { key, spec, memory, slo_ns, overcommit, suspended, gang: None }
    }
}

/// The clients of a resource file.
pub(crate) fn of_file(entries: Vec<ClientEntry>) -> Vec<Definition> {
    entries.into_iter().map(Definition::from).collect()
}
