//! The plugin that gives the node agent itself the driver, on nodes without NVIDIA's container runtime, or whose runtime does not give it.
//!
//! It runs in a container of the agent's pod that kubelet starts before the agent's own container. When the runtime creates
//! that one, the plugin adds the CDI device `all`. It has to stay, for the times when the agent's container is created again. With
//! `--injection=auto` a node without NRI or CDI leaves the container as it is: NVIDIA's runtime serves it.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use sluice_proto::nri::{CdiDevice, Container, ContainerAdjustment, KeyValue, PodSandbox};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::cdi::unsupported_reason;
use super::session::{Plugin, RuntimeName};
use super::{Injection, Places, VISIBLE_DEVICES, VOID, supervisor};
use crate::injection_proof::OWN_DRIVER;
use crate::listener_of;

/// The agent's container in its pod.
const CONTAINER: &str = "node-agent";
/// The device of NVIDIA's CDI specifications that stands for all GPUs.
const ALL: &str = "all";

/// With `auto`, how long the agent's container waits for the registration with a runtime that has NRI. A restart of the runtime takes less.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

struct OwnDriverPlugin {
    places: Places,
    pod_uid: String,
    injection: Injection,
    ready: CancellationToken,
    /// Why the runtime is not known to apply the device.
    unsupported_reason: Option<String>,
}

/// Serves until `stop`. From the moment at which the agent's container may be created, it answers `/readyz` at `health`: when the plugin is
/// registered. With `auto` also when the runtime's socket does not exist, because the runtime then has no NRI, and after [`LONGEST_WAIT`].
///
/// # Errors
/// The address of the probe is in use.
pub(crate) async fn give_own_driver(
    places: Places,
    pod_uid: String,
    injection: Injection,
    health: SocketAddr,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let ready = CancellationToken::new();
    let socket = places.socket.clone();
    let mut plugin =
        OwnDriverPlugin { places, pod_uid, injection, ready: ready.clone(), unsupported_reason: None };
    let answer = async {
        let waits = ready.cancelled();
        match injection {
            Injection::Auto => drop(tokio::time::timeout(LONGEST_WAIT, waits).await),
            Injection::Nri | Injection::Runtime => waits.await,
        }
        let listener = listener_of("health", health)?;
        let pages = Router::new().route("/readyz", get(async || "ok\n"));
        sluice_daemon::pages::serve(listener, pages, stop.cancelled()).await;
        anyhow::Ok(())
    };
    let connected = supervisor::keep_connected(&socket, &mut plugin, |_why| {
        if injection == Injection::Auto && socket.try_exists().is_ok_and(|exists| !exists) {
            ready.cancel();
        }
    });
    tokio::select! {
        answered = answer => answered,
        () = connected => Ok(()),
        () = stop.cancelled() => Ok(()),
    }
}

impl Plugin for OwnDriverPlugin {
    fn name(&self) -> &'static str {
        "sluice-own-driver"
    }

    fn index(&self) -> &'static str {
        "49"
    }

    fn registered(&mut self, runtime: RuntimeName, _pods: &[PodSandbox], _containers: &[Container]) {
        info!(runtime, "registered with the runtime's NRI");
        self.unsupported_reason = unsupported_reason(&runtime);
        self.ready.cancel();
    }

    async fn adjust(
        &mut self,
        pod: &PodSandbox,
        container: &Container,
        _within: Duration,
    ) -> Result<ContainerAdjustment, String> {
        if pod.uid != self.pod_uid || container.name != CONTAINER {
            return Ok(ContainerAdjustment::default());
        }
        let devices = match &self.unsupported_reason {
            Some(why) => Err(why.clone()),
            None => self.places.cdi.qualified(&[ALL.to_owned()]),
        };
        let devices = match devices {
            Ok(devices) => devices,
            Err(why) if self.injection == Injection::Auto => {
                info!("the agent's container gets the driver by NVIDIA's runtime: {why}");
                return Ok(ContainerAdjustment::default());
            }
            Err(why) => return Err(format!("sluice: {why}")),
        };
        let variable = |key: &str, value: &str| KeyValue { key: key.into(), value: value.into() };
        Ok(ContainerAdjustment {
            env: vec![variable(VISIBLE_DEVICES, VOID), variable(OWN_DRIVER, "cdi")],
            cdi_devices: devices.into_iter().map(|name| CdiDevice { name }).collect(),
            ..ContainerAdjustment::default()
        })
    }
}

#[cfg(test)]
mod tests;
