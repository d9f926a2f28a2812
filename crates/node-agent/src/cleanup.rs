//! Leaves a node for good: what Sluice put there goes, once no pod needs it.
//!
//! An uninstall leaves running pods their library and sockets' folder; this is how the rest goes. It has to run when the
//! node's agent no longer does.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::Config;
use crate::library::{Library, Usage, Version};
use crate::managers::Backoff;
use crate::node::marks;

/// Pods end in their own time.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why there is still something to wait for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Waiting {
    #[error("pods still have the library mounted: {0:?}")]
    Mounted(BTreeSet<Version>),
    #[error("an agent still serves this node: {} answers", .0.display())]
    Served(PathBuf),
    #[error("cannot see what is in use: {0}")]
    Blind(String),
}

/// Takes the node's annotation and labels away, waits until no pod uses the library, and removes our folders. Ends early
/// when told to.
///
/// # Errors
/// The disk's.
pub(crate) async fn clean(
    config: &Config,
    client: Client,
    usage: Usage,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let all = async {
        // First: while the marks are there, schedulers send pods here.
        unmark(client.clone(), &config.node).await;
        let mut said = None;
        while let Some(waiting) = in_use(config, &client, usage.clone()).await {
            if said.as_ref() != Some(&waiting) {
                info!(%waiting, "waiting");
                said = Some(waiting);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        for folder in [&config.state_folder, &config.socket_folder] {
            remove(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        info!("nothing of Sluice is left on this node");
        Ok(())
    };
    stop.run_until_cancelled(all).await.unwrap_or(Ok(()))
}

async fn unmark(client: Client, node: &str) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    while let Err(why) = marks::remove(client.clone(), node).await {
        warn!(%why, "cannot remove the node's annotation and labels");
        tokio::time::sleep(backoff.delay()).await;
    }
    info!(node, "annotation and labels are removed");
}

/// What there is to wait for.
async fn in_use(config: &Config, client: &Client, usage: Usage) -> Option<Waiting> {
    for control in sockets(&config.control_folder()) {
        if UnixStream::connect(&control).await.is_ok() {
            return Some(Waiting::Served(control));
        }
    }
    let pods = match pods_there(client, &config.node).await {
        Ok(pods) => pods,
        Err(why) => return Some(Waiting::Blind(why.to_string())),
    };
    let library = Library::new(config.library_folder());
    let looked = tokio::task::spawn_blocking(move || {
        let ours = library.versions().map_err(|why| why.to_string())?;
        if ours.is_empty() {
            return Ok(BTreeSet::new());
        }
        let used = usage.versions_of(|uid| pods.contains(uid)).map_err(|why| why.to_string())?;
        Ok(ours.intersection(&used).cloned().collect())
    });
    match looked.await {
        Ok(Ok(used)) => (!used.is_empty()).then_some(Waiting::Mounted(used)),
        Ok(Err(why)) => Some(Waiting::Blind(why)),
        Err(why) => Some(Waiting::Blind(why.to_string())),
    }
}

/// Uids of the node's pods that have not ended.
async fn pods_there(client: &Client, node: &str) -> kube::Result<BTreeSet<String>> {
    let on_this_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = Api::<Pod>::all(client.clone()).list(&on_this_node).await?;
    Ok(pods.items.into_iter().filter(has_not_ended).filter_map(|pod| pod.metadata.uid).collect())
}

fn has_not_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

fn sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Removes a folder with all that is in it; of one that is a mount point only what is in it.
fn remove(folder: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let is_folder = entry.file_type()?.is_dir();
        if is_folder { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
    }
    match fs::remove_dir(folder) {
        Err(why) if why.kind() == ErrorKind::ResourceBusy => {
            info!(folder = %folder.display(), "left empty: it is mounted");
            Ok(())
        }
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PodStatus;

    #[test]
    fn a_pod_that_has_ended_keeps_nothing() {
        let in_phase = |phase: &str| {
            let status = PodStatus { phase: Some(phase.into()), ..PodStatus::default() };
            Pod { status: Some(status), ..Pod::default() }
        };
        assert!(has_not_ended(&Pod::default()));
        assert!(["Pending", "Running", "Unknown"].into_iter().all(|phase| has_not_ended(&in_phase(phase))));
        assert!(!["Succeeded", "Failed"].into_iter().any(|phase| has_not_ended(&in_phase(phase))));
    }

    #[test]
    fn a_node_that_never_had_an_agent_has_nothing_to_wait_for() {
        let root = tempfile::tempdir().unwrap();
        assert!(Library::new(root.path().join("lib")).versions().unwrap().is_empty());
        let no_folder = root.path().join("file");
        fs::write(&no_folder, "x").unwrap();
        assert!(Library::new(no_folder).versions().is_err(), "what cannot be read is not taken for nothing");
    }

    #[test]
    fn a_folder_goes_with_all_that_is_in_it_and_an_absent_one_is_no_error() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sluice");
        fs::create_dir_all(folder.join("lib/abc")).unwrap();
        fs::write(folder.join("lib/abc/libsluice.so"), "x").unwrap();
        std::os::unix::fs::symlink("/etc", folder.join("link")).unwrap();
        remove(&folder).unwrap();
        assert!(!folder.exists() && Path::new("/etc").exists());
        remove(&folder).unwrap();
    }
}
