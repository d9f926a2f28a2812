//! Removes what Sluice put on a node, once no pod needs it.
//!
//! An uninstall leaves the library and the folder of the sockets for running pods. This task removes the rest. It has
//! to run after the node agent of this node has ended.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use sluice_rate_limiter::Backoff;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::Config;
use crate::library::{Library, Usage, Version};
use crate::node::node_object;

/// Interval between two checks for pods that still use the library. Pods may run for days.
const CHECK_EVERY: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why the cleanup has to wait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Blocker {
    #[error("pods still have the library mounted: {0:?}")]
    Mounted(BTreeSet<Version>),
    #[error("an agent still serves this node: {} accepts connections", .0.display())]
    Served(PathBuf),
    #[error("cannot find out what is in use: {0}")]
    Unknown(String),
}

/// Removes the node's annotation, labels and amounts, waits until no pod uses the library, and removes Sluice's folders. Ends
/// early when `stop` is cancelled.
pub(crate) async fn clean(
    config: &Config,
    client: Client,
    usage: Usage,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let all = async {
        // First, because schedulers send pods to this node as long as it has the annotation.
        remove_metadata(client.clone(), &config.node).await;
        let mut logged = None;
        while let Some(blocker) = find_blocker(config, &client, usage.clone()).await {
            if logged.as_ref() != Some(&blocker) {
                info!(%blocker, "the cleanup waits");
                logged = Some(blocker);
            }
            tokio::time::sleep(CHECK_EVERY).await;
        }
        for folder in [&config.host.state_folder, &config.host.socket_folder] {
            remove(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        info!("Sluice is removed from this node");
        Ok(())
    };
    stop.run_until_cancelled(all).await.unwrap_or(Ok(()))
}

async fn remove_metadata(client: Client, node: &str) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    while let Err(why) = node_object::remove(client.clone(), node).await {
        warn!(%why, "cannot remove the node's annotation, labels and amounts");
        tokio::time::sleep(backoff.next_delay()).await;
    }
    info!(node, "removed the node's annotation, labels and amounts");
}

/// Returns what the cleanup has to wait for; `None` if nothing.
async fn find_blocker(config: &Config, client: &Client, usage: Usage) -> Option<Blocker> {
    for control in sockets(&config.control_folder()) {
        if UnixStream::connect(&control).await.is_ok() {
            return Some(Blocker::Served(control));
        }
    }
    let pods = match running_pods(client, &config.node).await {
        Ok(pods) => pods,
        Err(why) => return Some(Blocker::Unknown(why.to_string())),
    };
    let library = Library::new(config.library_folder());
    let result = tokio::task::spawn_blocking(move || {
        let ours = library.versions().map_err(|why| why.to_string())?;
        if ours.is_empty() {
            return Ok(BTreeSet::new());
        }
        let used = usage.versions_of(|uid| pods.contains(uid)).map_err(|why| why.to_string())?;
        Ok(ours.intersection(&used).cloned().collect())
    });
    match result.await {
        Ok(Ok(used)) => (!used.is_empty()).then_some(Blocker::Mounted(used)),
        Ok(Err(why)) => Some(Blocker::Unknown(why)),
        Err(why) => Some(Blocker::Unknown(why.to_string())),
    }
}

/// Uids of the node's pods that have not ended.
async fn running_pods(client: &Client, node: &str) -> kube::Result<BTreeSet<String>> {
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

/// Removes a folder with its content; of a mount point only the content.
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
            info!(folder = %folder.display(), "kept the empty folder: it is a mount point");
            Ok(())
        }
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests;
