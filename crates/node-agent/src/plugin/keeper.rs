//! Keeps the plugin served and registered, whatever kubelet does.
//!
//! The rule looks at the state of the folder, not at the order of events: is our socket in its place, and does this very
//! kubelet (that is: this very kubelet.sock) know us? Events only say when to look again. So whatever was missed, the
//! next look finds it.
//!
//! Kubelet 1.34's side, which shapes ours: at its start it removes all plugins' sockets, then makes its own. During Register
//! it connects back before it answers. When a stream ends it disconnects the plugin that has the resource *now*, even if
//! that is a newer one: so we never register a second time beside a stream that is still open.

use super::allocation::Provision;
use super::backoff::Backoff;
use super::error::{Error, Result};
use super::folder::{Folder, SocketIdentity};
use super::metrics::Metrics;
use super::registration;
use super::seats::Seats;
use super::service::Service;
use super::serving::{Place, Serving};
use sluice_placement::inventory::NodeInventory;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Where and as what the plugin is served.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Kubelet's folder of device plugins.
    pub folder: PathBuf,
    /// The resource.
    pub resource: String,
    /// What containers get.
    pub provision: Provision,
}

impl Settings {
    /// As on every node.
    pub fn new(provision: Provision) -> Self {
        Self { folder: super::FOLDER.into(), resource: super::RESOURCE.to_owned(), provision }
    }
}

/// Serves the plugin and keeps it registered until `stop`. `registered` says whether kubelet knows us, for readiness.
///
/// # Errors
/// The folder is gone or cannot be used, another agent has taken over, or the inventory has ended. That kubelet is away or
/// refuses is none: it is tried again.
pub async fn run(
    settings: Settings,
    inventory: watch::Receiver<NodeInventory>,
    metrics: Metrics,
    registered: watch::Sender<bool>,
    stop: CancellationToken,
) -> Result<()> {
    let mut keeper = Keeper {
        folder: Folder::watch(&settings.folder)?,
        kubelet: settings.folder.join(super::KUBELET_SOCKET),
        socket: settings.folder.join(super::SOCKET),
        resource: settings.resource,
        provision: Arc::new(settings.provision),
        inventory,
        metrics,
        registered,
        serving: None,
        seen: None,
        known_since: None,
        backoff: Backoff::new(),
    };
    let ended = stop.run_until_cancelled(keeper.keep()).await;
    keeper.forget();
    if let Some(serving) = keeper.serving.take() {
        serving.stop().await;
    }
    match ended {
        None => Ok(()),
        Some(Err(why)) => Err(why),
        Some(Ok(never)) => match never {},
    }
}

struct Keeper {
    folder: Folder,
    kubelet: PathBuf,
    socket: PathBuf,
    resource: String,
    provision: Arc<Provision>,
    inventory: watch::Receiver<NodeInventory>,
    metrics: Metrics,
    registered: watch::Sender<bool>,
    serving: Option<Serving>,
    /// The kubelet.sock of the last look. All that follows is about the kubelet behind it.
    seen: Option<SocketIdentity>,
    /// When kubelet took us.
    known_since: Option<Instant>,
    backoff: Backoff,
}

impl Keeper {
    async fn keep(&mut self) -> Result<Infallible> {
        loop {
            self.count_seats();
            let wait = self.look().await?;
            self.sleep(wait).await?;
        }
    }

    /// Brings the folder into order as far as that goes now. Returns how long to wait before the next look at the latest.
    async fn look(&mut self) -> Result<Option<Duration>> {
        let kubelet = SocketIdentity::of(&self.kubelet)?;
        if self.seen != kubelet {
            let is_there = kubelet.is_some();
            tracing::info!(socket = %self.kubelet.display(), is_there, "kubelet's socket has changed");
            self.seen = kubelet;
            self.backoff = Backoff::new();
            self.end_serving().await;
        }
        match self.serving.as_ref().map(Serving::place).transpose()? {
            Some(Place::Ours) => {}
            Some(Place::Foreign) => return Err(Error::TakenOver { path: self.socket.clone() }),
            Some(Place::Empty) => {
                tracing::info!(socket = %self.socket.display(), "our socket was removed; making a new one");
                self.end_serving().await;
                self.serving = Some(self.serve()?);
            }
            None => self.serving = Some(self.serve()?),
        }
        match kubelet {
            Some(_) if self.known_since.is_none() => Ok(self.register().await),
            Some(_) | None => Ok(None),
        }
    }

    async fn register(&mut self) -> Option<Duration> {
        match registration::register(&self.kubelet, super::SOCKET, &self.resource).await {
            Ok(()) => {
                tracing::info!(resource = self.resource, "registered with kubelet");
                self.metrics.registrations.with_label_values(&["ok"]).inc();
                self.metrics.registered.set(1);
                self.known_since = Some(Instant::now());
                self.registered.send_replace(true);
                None
            }
            Err(why) => {
                self.metrics.registrations.with_label_values(&["error"]).inc();
                let wait = self.backoff.after_failure();
                tracing::warn!(socket = %self.kubelet.display(), ?wait, "cannot register with kubelet: {why}");
                Some(wait)
            }
        }
    }

    /// Returns when it is time to look again: something has changed, or the time is over.
    async fn sleep(&mut self, mut longest: Option<Duration>) -> Result<()> {
        loop {
            let Some(serving) = &mut self.serving else { return Ok(()) };
            let over = async {
                match longest {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.folder.changed() => return changed,
                () = over => return Ok(()),
                changed = self.inventory.changed() => return changed.map_err(|_| Error::NoInventory),
                gone = serving.all_listeners_gone() => {
                    gone?;
                    longest = self.lost().or(longest);
                }
            }
        }
    }

    /// Kubelet has let go of us: it ends, or it has an error. Returns how long it is to be left alone.
    fn lost(&mut self) -> Option<Duration> {
        let since = self.known_since?;
        let wait = self.backoff.after_loss(since.elapsed());
        tracing::warn!(?wait, "kubelet has closed its stream");
        self.forget();
        Some(wait)
    }

    fn serve(&self) -> Result<Serving> {
        Serving::start(&self.socket, |listeners, stop| Service {
            provision: Arc::clone(&self.provision),
            inventory: self.inventory.clone(),
            metrics: self.metrics.clone(),
            listeners,
            stop,
        })
    }

    async fn end_serving(&mut self) {
        self.forget();
        if let Some(serving) = self.serving.take() {
            serving.stop().await;
        }
    }

    fn forget(&mut self) {
        self.known_since = None;
        self.metrics.registered.set(0);
        self.registered.send_replace(false);
    }

    fn count_seats(&mut self) {
        let seats = Seats::of(&self.inventory.borrow_and_update());
        let unhealthy = seats.total.saturating_sub(seats.healthy);
        for (health, count) in [("healthy", seats.healthy), ("unhealthy", unhealthy)] {
            self.metrics.seats.with_label_values(&[health]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
