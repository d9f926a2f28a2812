//! Where a manager listens.

use std::path::PathBuf;

use sluice_hook_core::config::Managers;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// A pod-manager, on a unix socket.
    Unix(PathBuf),
    /// A manager with Gemini's protocol.
    Tcp(String, u16),
}

impl Address {
    /// The address of a device's manager; `None` if it has none.
    pub(crate) fn of_manager(managers: &Managers, ordinal: usize, uuid: &[u8; 16]) -> Option<Self> {
        match managers {
            Managers::Socket(path) => Some(Self::Unix(path.clone())),
            Managers::Tcp(list) => list.get(ordinal).map(|(ip, port)| Self::Tcp(ip.clone(), *port)),
            Managers::Directory { path, explicit } => {
                let uuid = format_uuid(uuid);
                let named = |prefix: &str| -> PathBuf { path.join(format!("{prefix}{uuid}.sock")) };
                let candidates = [named("GPU-"), named("MIG-"), named("")];
                let found = candidates.iter().find(|path| path.exists()).cloned();
                let [usual, ..] = candidates;
                found.or_else(|| explicit.then_some(usual)).map(Self::Unix)
            }
        }
    }
}

/// A UUID as NVIDIA's tools write it.
fn format_uuid(uuid: &[u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex).join("-")
}
