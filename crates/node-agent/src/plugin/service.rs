//! The calls that kubelet makes.

use super::allocation::Provision;
use super::metrics::Metrics;
use super::registration;
use super::seats::Seats;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use sluice_placement::inventory::NodeInventory;
use sluice_proto::deviceplugin::device_plugin_server::DevicePlugin;
use sluice_proto::deviceplugin::{
    AllocateRequest, AllocateResponse, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// One server's answers.
pub(super) struct Service {
    pub(super) provision: Arc<Provision>,
    pub(super) inventory: watch::Receiver<NodeInventory>,
    pub(super) metrics: Metrics,
    pub(super) listeners: Arc<Listeners>,
    /// Ends the streams.
    pub(super) stop: CancellationToken,
}

/// The open ListAndWatch streams. Kubelet keeps one for as long as it knows the plugin.
#[derive(Default)]
pub(super) struct Listeners {
    open: AtomicUsize,
    /// Told when the last one has ended.
    pub(super) all_gone: Notify,
}

/// Counts one stream while it lives.
struct Listener(Arc<Listeners>);

impl Listener {
    fn new(listeners: &Arc<Listeners>) -> Self {
        listeners.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(listeners))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.all_gone.notify_one();
        }
    }
}

/// What a ListAndWatch stream knows.
struct Listening {
    inventory: watch::Receiver<NodeInventory>,
    told: Option<Seats>,
    stop: CancellationToken,
    _listener: Listener,
}

impl Listening {
    /// The seats as soon as they are not those that were told last; none at the end.
    async fn next(mut self) -> Option<(Seats, Self)> {
        loop {
            let seats = Seats::of(&self.inventory.borrow_and_update());
            if self.stop.is_cancelled() {
                return None;
            }
            if self.told != Some(seats) {
                self.told = Some(seats);
                return Some((seats, self));
            }
            self.stop.run_until_cancelled(self.inventory.changed()).await?.ok()?;
        }
    }
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(registration::options()))
    }

    type ListAndWatchStream = BoxStream<'static, Result<ListAndWatchResponse, Status>>;

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let listening = Listening {
            inventory: self.inventory.clone(),
            told: None,
            stop: self.stop.clone(),
            _listener: Listener::new(&self.listeners),
        };
        let lists = stream::unfold(listening, Listening::next).map(|seats| {
            tracing::info!(total = seats.total, healthy = seats.healthy, "telling kubelet the seats");
            Ok(ListAndWatchResponse { devices: seats.devices() })
        });
        Ok(Response::new(lists.boxed()))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("all seats are alike: there is nothing to prefer"))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let _timer = self.metrics.allocate.start_timer();
        let seats = Seats::of(&self.inventory.borrow());
        match self.provision.answer(seats, request.get_ref()) {
            Ok(answer) => Ok(Response::new(answer)),
            Err(refusal) => {
                tracing::warn!(%refusal, "kubelet asks for what it cannot get");
                Err(Status::invalid_argument(refusal.to_string()))
            }
        }
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
