//! By which path the node's containers get their GPUs, and its publication.

use std::time::Duration;

use sluice_placement::inventory::NodeInventory;
use tokio::sync::watch;
use tracing::info;

use super::cdi::Devices;
use super::{CdiFolders, Registration};
use crate::node::events::{EventQueue, Reason, about_node};
use crate::tasks::replace_if_new;

/// CDI specifications may appear at any time: NVIDIA's tools write them after the driver's start.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// The path that the operator wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Injection {
    /// NRI where the runtime and the CDI specifications allow it, else NVIDIA's container runtime.
    Auto,
    /// NRI only.
    Nri,
    /// NVIDIA's container runtime only.
    #[default]
    Runtime,
}

/// The path in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InForce {
    /// The runtime has not answered yet.
    Unknown,
    /// This plugin: the runtime's name, and why some GPUs have no CDI device.
    Nri(String, Option<String>),
    /// NVIDIA's container runtime, and why not NRI.
    Runtime(String),
    /// Kubelet, by the CDI devices of prepared claims.
    Claims,
    /// None, because pods have claims that the node is not to give any more.
    Closed,
    /// None, and why.
    None(String),
}

impl InForce {
    /// Whether containers can get GPUs.
    #[must_use]
    pub fn works(&self) -> bool {
        matches!(self, Self::Nri(..) | Self::Runtime(_) | Self::Claims)
    }

    /// Value of the metric's label; `None` while it is unknown.
    #[must_use]
    pub fn label(&self) -> Option<&'static str> {
        match self {
            Self::Unknown => None,
            Self::Nri(..) => Some("nri"),
            Self::Runtime(_) => Some("runtime"),
            Self::Claims => Some("claims"),
            Self::Closed => Some("closed"),
            Self::None(_) => Some("none"),
        }
    }

    /// Why some GPUs have no CDI device.
    fn missing(&self) -> Option<&str> {
        match self {
            Self::Nri(_, missing) => missing.as_deref(),
            Self::Unknown | Self::Runtime(_) | Self::Claims | Self::Closed | Self::None(_) => None,
        }
    }

    /// For an operator.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Unknown => "the container runtime has not answered yet on its NRI socket".to_owned(),
            Self::Nri(runtime, None) => format!("containers get their GPUs by NRI of {runtime} and CDI"),
            Self::Nri(runtime, Some(missing)) => {
                format!("containers get their GPUs by NRI of {runtime} and CDI, but not all: {missing}")
            }
            Self::Runtime(why) => {
                format!(
                    "containers get their GPUs by NVIDIA's container runtime from NVIDIA_VISIBLE_DEVICES: {why}"
                )
            }
            Self::Claims => "containers get their GPUs by CDI from claims".to_owned(),
            Self::Closed => "no container gets a GPU, because pods have claims and claims are off".to_owned(),
            Self::None(why) => {
                format!("containers cannot get GPUs, and --injection=nri allows no other path: {why}")
            }
        }
    }
}

/// Decides the path in force. A GPU without a CDI device does not keep the others from NRI.
#[must_use]
fn decide(wanted: Injection, registration: &Registration, gpus: Devices) -> InForce {
    let why = match (wanted, registration, gpus.missing) {
        (Injection::Runtime, ..) => return InForce::Runtime("--injection=runtime".to_owned()),
        (_, None, _) => return InForce::Unknown,
        (_, Some(Ok(_)), Some(why)) if gpus.qualified.is_empty() => why,
        (_, Some(Ok(runtime)), missing) => return InForce::Nri(runtime.clone(), missing),
        (_, Some(Err(why)), _) => format!("no NRI: {why}"),
    };
    if wanted == Injection::Nri { InForce::None(why) } else { InForce::Runtime(why) }
}

/// What [`follow`] needs.
#[derive(Debug)]
pub struct Settings {
    /// The node's name.
    pub node: String,
    /// The path that the operator wants.
    pub wanted: Injection,
    /// Where CDI specifications are.
    pub cdi: CdiFolders,
}

/// Publishes the path in force whenever it changes, until the inventory ends. Each change is an Event on the node, also one of the GPUs
/// that have no CDI device.
pub async fn follow(
    settings: Settings,
    mut registration: watch::Receiver<Registration>,
    mut inventory: watch::Receiver<NodeInventory>,
    in_force: watch::Sender<InForce>,
    events: EventQueue,
) {
    let mut check = tokio::time::interval(CHECK_EVERY);
    // The first tick comes at once.
    let mut ticks = 0_u32;
    loop {
        let uuids: Vec<String> =
            inventory.borrow_and_update().gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        let folders = settings.cdi.clone();
        let named = tokio::task::spawn_blocking(move || folders.find(&uuids)).await;
        let known = registration.borrow_and_update().clone();
        // If the runtime does not answer for 10 s, NRI counts as absent.
        let known = known.or_else(|| {
            (ticks > 1).then(|| Err("the runtime accepts the connection and does not answer".to_owned()))
        });
        let failed = |why: tokio::task::JoinError| Devices {
            qualified: Vec::new(),
            missing: Some(format!("CDI specifications were not read: {why}")),
        };
        let now = decide(settings.wanted, &known, named.unwrap_or_else(failed));
        let before = in_force.borrow().clone();
        if (now.label(), now.missing()) != (before.label(), before.missing()) {
            info!(path = now.label(), "{}", now.text());
            // NVIDIA's runtime serves a GPU without a CDI device, unless only NRI is wanted.
            let has_refused = settings.wanted == Injection::Nri && now.missing().is_some();
            let is_complete = now.works() && !has_refused;
            let reason = if is_complete { Reason::InjectionChanged } else { Reason::InjectionUnavailable };
            if now != InForce::Unknown {
                events.publish(about_node(&settings.node), reason, now.text());
            }
        }
        in_force.send_if_modified(|last| replace_if_new(last, now));
        tokio::select! {
            // With --injection=runtime there is no plugin, so this branch is disabled.
            Ok(()) = registration.changed() => {}
            changed = inventory.changed() => if changed.is_err() { return },
            _ = check.tick() => ticks = ticks.saturating_add(1),
        }
    }
}

#[cfg(test)]
mod tests;
