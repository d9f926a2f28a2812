//! The gRPC calls that kubelet makes.

use super::allocation::Provision;
use super::metrics::Metrics;
use super::registration;
use super::slots::DeviceSlots;
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

/// The handlers of one server.
pub(super) struct PluginService {
    pub(super) provision: Arc<Provision>,
    pub(super) inventory: watch::Receiver<NodeInventory>,
    pub(super) metrics: Metrics,
    pub(super) streams: Arc<OpenStreams>,
    /// Ends the streams.
    pub(super) stop: CancellationToken,
}

/// The open ListAndWatch streams. Kubelet keeps one open as long as it knows the plugin.
#[derive(Default)]
pub(super) struct OpenStreams {
    open: AtomicUsize,
    /// Notified when the last stream has ended.
    pub(super) all_closed: Notify,
}

/// Counts one stream while it lives.
struct StreamGuard(Arc<OpenStreams>);

impl StreamGuard {
    fn new(streams: &Arc<OpenStreams>) -> Self {
        streams.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(streams))
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.all_closed.notify_one();
        }
    }
}

/// State of one ListAndWatch stream.
struct SlotStream {
    inventory: watch::Receiver<NodeInventory>,
    sent: Option<DeviceSlots>,
    stop: CancellationToken,
    _guard: StreamGuard,
}

impl SlotStream {
    /// Waits until the slots differ from those sent last, and returns them; `None` when the stream ends.
    async fn next(mut self) -> Option<(DeviceSlots, Self)> {
        loop {
            let slots = DeviceSlots::of(&self.inventory.borrow_and_update());
            if self.stop.is_cancelled() {
                return None;
            }
            if self.sent != Some(slots) {
                self.sent = Some(slots);
                return Some((slots, self));
            }
            self.stop.run_until_cancelled(self.inventory.changed()).await?.ok()?;
        }
    }
}

#[tonic::async_trait]
impl DevicePlugin for PluginService {
    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(registration::options()))
    }

    type ListAndWatchStream = BoxStream<'static, Result<ListAndWatchResponse, Status>>;

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let stream_state = SlotStream {
            inventory: self.inventory.clone(),
            sent: None,
            stop: self.stop.clone(),
            _guard: StreamGuard::new(&self.streams),
        };
        let lists = stream::unfold(stream_state, SlotStream::next).map(|slots| {
            tracing::info!(total = slots.total, healthy = slots.healthy, "sent the device slots to kubelet");
            Ok(ListAndWatchResponse { devices: slots.devices() })
        });
        Ok(Response::new(lists.boxed()))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("all device slots are equal: there is no preference"))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let _timer = self.metrics.allocate.start_timer();
        let slots = DeviceSlots::of(&self.inventory.borrow());
        match self.provision.answer(slots, request.get_ref()) {
            Ok(answer) => Ok(Response::new(answer)),
            Err(refusal) => {
                tracing::warn!(%refusal, "refused an Allocate request of kubelet");
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
