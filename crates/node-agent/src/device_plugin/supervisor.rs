//! Keeps the plugin served and registered while kubelet starts, stops and restarts.
//!
//! The supervisor compares the state of the folder with the wanted state; it does not rely on the order of events. Is
//! our socket in its place, and does the kubelet behind the current kubelet.sock know the plugin? An event only
//! triggers the next comparison, so a missed event does no harm.
//!
//! Three properties of kubelet 1.34 shape this code. At its start it removes all plugins' sockets, then creates its
//! own. During Register it connects back before it answers. When a stream ends, it disconnects the plugin that has the
//! resource *now*, even a newer one. So the plugin never registers a second time while a stream is open.

use super::error::{Error, Result};
use super::folder_watch::{FolderWatch, SocketIdentity};
use super::held_slots;
use super::registration;
use super::server::{PluginServer, SocketOwner};
use super::service::{Metrics, PluginService};
use super::slots::{DeviceSlots, Provision};
use crate::capacity::NodeCapacity;
use crate::kubelet_checkpoint;
use crate::tasks::replace_if_new;
use sluice_placement::annotations::keys;
use sluice_rate_limiter::Backoff;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Kubelet creates its socket a moment before it listens on it, so the first attempts follow each other quickly.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const LONGEST_DELAY: Duration = Duration::from_secs(10);
/// A registration that lasted this long counts as a success.
const STABLE_REGISTRATION: Duration = Duration::from_secs(10);

/// Where the plugin is served, and what it hands out.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Kubelet's folder of device plugins.
    pub folder: PathBuf,
    /// What containers get.
    pub provision: Provision,
}

/// Serves the plugin and keeps it registered until `stop`. `registered` tells readiness whether kubelet knows the
/// plugin.
///
/// # Errors
/// The folder is gone or unusable, another agent took over, or the inventory ended. An absent or refusing kubelet is
/// no error: registration is retried.
pub async fn run(
    settings: Settings,
    capacity: watch::Receiver<NodeCapacity>,
    metrics: Metrics,
    registered: watch::Sender<bool>,
    stop: CancellationToken,
) -> Result<()> {
    let mut supervisor = PluginSupervisor {
        folder: FolderWatch::watch(&settings.folder)?,
        kubelet_socket: settings.folder.join(super::KUBELET_SOCKET),
        socket: settings.folder.join(super::SOCKET),
        checkpoint: settings.folder.join(kubelet_checkpoint::FILE),
        checkpoint_error: None,
        slots: watch::Sender::default(),
        provision: Arc::new(settings.provision),
        capacity,
        metrics,
        registered,
        server: None,
        kubelet_socket_seen: None,
        registered_since: None,
        backoff: Backoff::new(FIRST_DELAY, LONGEST_DELAY),
    };
    let ended = stop.run_until_cancelled(supervisor.supervise()).await;
    supervisor.mark_unregistered();
    if let Some(server) = supervisor.server.take() {
        server.stop().await;
    }
    match ended {
        None => Ok(()),
        Some(Err(why)) => Err(why),
        Some(Ok(never)) => match never {},
    }
}

struct PluginSupervisor {
    folder: FolderWatch,
    kubelet_socket: PathBuf,
    socket: PathBuf,
    checkpoint: PathBuf,
    /// Why the checkpoint could not be read at the last comparison.
    checkpoint_error: Option<String>,
    slots: watch::Sender<Arc<DeviceSlots>>,
    provision: Arc<Provision>,
    capacity: watch::Receiver<NodeCapacity>,
    metrics: Metrics,
    registered: watch::Sender<bool>,
    server: Option<PluginServer>,
    /// Identity of kubelet.sock at the last comparison. The fields below refer to the kubelet behind it.
    kubelet_socket_seen: Option<SocketIdentity>,
    /// When kubelet accepted the registration.
    registered_since: Option<Instant>,
    backoff: Backoff,
}

impl PluginSupervisor {
    async fn supervise(&mut self) -> Result<Infallible> {
        loop {
            self.update_slots();
            let wait = self.reconcile().await?;
            self.sleep(wait).await?;
        }
    }

    /// Brings the folder closer to the wanted state. Returns after how long to compare again at the latest.
    async fn reconcile(&mut self) -> Result<Option<Duration>> {
        let kubelet = SocketIdentity::of(&self.kubelet_socket)?;
        if self.kubelet_socket_seen != kubelet {
            let is_there = kubelet.is_some();
            tracing::info!(socket = %self.kubelet_socket.display(), is_there, "kubelet's socket has changed");
            self.kubelet_socket_seen = kubelet;
            self.backoff.succeeded();
            self.stop_server().await;
        }
        match self.server.as_ref().map(PluginServer::socket_owner).transpose()? {
            Some(SocketOwner::Ours) => {}
            Some(SocketOwner::Foreign) => return Err(Error::TakenOver(self.socket.clone())),
            Some(SocketOwner::Missing) => {
                tracing::info!(socket = %self.socket.display(), "our socket was removed; creating a new one");
                self.stop_server().await;
                self.server = Some(self.serve()?);
            }
            None => self.server = Some(self.serve()?),
        }
        match kubelet {
            Some(_) if self.registered_since.is_none() => Ok(self.register().await),
            Some(_) | None => Ok(None),
        }
    }

    async fn register(&mut self) -> Option<Duration> {
        match registration::register(&self.kubelet_socket).await {
            Ok(()) => {
                tracing::info!(resource = keys::RESOURCE, "registered with kubelet");
                self.metrics.registrations.with_label_values(&["ok"]).inc();
                self.metrics.registered.set(1);
                self.registered_since = Some(Instant::now());
                self.registered.send_replace(true);
                None
            }
            Err(why) => {
                self.metrics.registrations.with_label_values(&["error"]).inc();
                let wait = self.backoff.next_delay();
                tracing::warn!(socket = %self.kubelet_socket.display(), ?wait, "cannot register with kubelet: {why}");
                Some(wait)
            }
        }
    }

    /// Returns when it is time to compare again: something has changed, or `longest` is over.
    async fn sleep(&mut self, mut longest: Option<Duration>) -> Result<()> {
        loop {
            let Some(server) = &mut self.server else { return Ok(()) };
            let over = async {
                match longest {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.folder.changed() => return changed,
                () = over => return Ok(()),
                changed = self.capacity.changed() => return changed.map_err(|_| Error::NoInventory),
                gone = server.all_streams_closed() => {
                    gone?;
                    longest = self.on_streams_closed().or(longest);
                }
            }
        }
    }

    /// Kubelet closed its streams: it ends, or it has an error. Returns how long to wait before the next registration.
    fn on_streams_closed(&mut self) -> Option<Duration> {
        let since = self.registered_since?;
        if since.elapsed() >= STABLE_REGISTRATION {
            self.backoff.succeeded();
        }
        let wait = self.backoff.next_delay();
        tracing::warn!(?wait, "kubelet has closed its stream");
        self.mark_unregistered();
        Some(wait)
    }

    fn serve(&self) -> Result<PluginServer> {
        PluginServer::start(&self.socket, |streams, stop| PluginService {
            provision: Arc::clone(&self.provision),
            slots: self.slots.subscribe(),
            metrics: self.metrics.clone(),
            streams,
            stop,
        })
    }

    async fn stop_server(&mut self) {
        self.mark_unregistered();
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
    }

    fn mark_unregistered(&mut self) {
        self.registered_since = None;
        self.metrics.registered.set(0);
        self.registered.send_replace(false);
    }

    /// Kubelet replaces its checkpoint in the watched folder, so each allocation is seen.
    fn update_slots(&mut self) {
        let (held, error) = match held_slots::read(&self.checkpoint) {
            Ok(held) => (Some(held), None),
            Err(why) => (None, Some(why)),
        };
        if let Some(why) = error.as_ref().filter(|_| self.checkpoint_error != error) {
            tracing::warn!(path = %self.checkpoint.display(), %why, "cannot read kubelet's checkpoint: no device slot is unhealthy");
        }
        self.checkpoint_error = error;
        let now = DeviceSlots::new(&self.capacity.borrow_and_update(), held.as_ref());
        let slots = now.counts();
        self.slots.send_if_modified(|last| replace_if_new(last, Arc::new(now)));
        let unhealthy = slots.total.saturating_sub(slots.healthy);
        for (health, count) in [("healthy", slots.healthy), ("unhealthy", unhealthy)] {
            self.metrics.slots.with_label_values(&[health]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
