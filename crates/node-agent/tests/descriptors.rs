//! An agent that has run out of descriptors does not blame its managers. A binary of its own, because the descriptor
//! limit belongs to the process.
#![allow(clippy::unwrap_used, reason = "tests")]

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sluice_node_agent::managers::{ControlError, snapshot};
use std::time::Duration;

#[tokio::test]
async fn lack_of_descriptors_is_reported_as_the_agents_own() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let ask = || snapshot(&socket, Duration::from_secs(10));
    assert!(matches!(ask().await, Err(ControlError::Unreachable { .. })), "no manager listens");
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
    let outcome = ask().await;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    assert!(matches!(outcome, Err(ControlError::LocalResources { .. })), "{outcome:?}");
}
