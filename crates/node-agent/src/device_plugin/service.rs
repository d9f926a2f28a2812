//! The gRPC calls that kubelet makes, and the plugin's metrics.

use super::slots::{DeviceSlots, Provision};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
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
    pub(super) slots: watch::Receiver<Arc<DeviceSlots>>,
    pub(super) metrics: Metrics,
    pub(super) streams: Arc<OpenStreams>,
    pub(super) stop: CancellationToken,
}

/// The open ListAndWatch streams. Kubelet keeps one open as long as it knows the plugin.
#[derive(Default)]
pub(super) struct OpenStreams {
    open: AtomicUsize,
    /// Notified when the last stream has ended.
    pub(super) all_closed: Notify,
}

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

struct SlotStream {
    slots: watch::Receiver<Arc<DeviceSlots>>,
    sent: Option<Arc<DeviceSlots>>,
    stop: CancellationToken,
    _guard: StreamGuard,
}

impl SlotStream {
    /// Waits until the slots differ from those sent last, and returns them; `None` when the stream ends.
    async fn next(mut self) -> Option<(Arc<DeviceSlots>, Self)> {
        loop {
            let slots = Arc::clone(&self.slots.borrow_and_update());
            if self.stop.is_cancelled() {
                return None;
            }
            if self.sent.as_ref() != Some(&slots) {
                self.sent = Some(Arc::clone(&slots));
                return Some((slots, self));
            }
            self.stop.run_until_cancelled(self.slots.changed()).await?.ok()?;
        }
    }
}

#[tonic::async_trait]
impl DevicePlugin for PluginService {
    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions::default()))
    }

    type ListAndWatchStream = BoxStream<'static, Result<ListAndWatchResponse, Status>>;

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let stream_state = SlotStream {
            slots: self.slots.clone(),
            sent: None,
            stop: self.stop.clone(),
            _guard: StreamGuard::new(&self.streams),
        };
        let lists = stream::unfold(stream_state, SlotStream::next).map(|slots| {
            let counts = slots.counts();
            tracing::info!(
                total = counts.total,
                healthy = counts.healthy,
                "sent the device slots to kubelet"
            );
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
        let slots = Arc::clone(&self.slots.borrow());
        match self.provision.answer(&slots, request.get_ref()) {
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

/// Buckets from 50 µs to 1 s; the target is 5 ms.
const ALLOCATE_BUCKETS: [f64; 12] =
    [0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.1, 0.5, 1.0];

/// Handles to the plugin's series. Clones share the same series.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub(super) allocate: Histogram,
    pub(super) registrations: IntCounterVec,
    pub(super) registered: IntGauge,
    pub(super) slots: IntGaugeVec,
}

impl Metrics {
    /// Creates the series and registers them.
    ///
    /// # Errors
    /// The registry already has series of these names.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let allocate = HistogramOpts::new(
            "sluice_device_plugin_allocate_seconds",
            "Time from kubelet's Allocate request to the answer, seconds.",
        );
        let registrations = Opts::new(
            "sluice_device_plugin_registrations_total",
            "Attempts to register the plugin with kubelet, by outcome (ok, error).",
        );
        let slots = Opts::new(
            "sluice_device_plugin_seats",
            "DeviceSlots of the node by health (healthy, unhealthy), held or not.",
        );
        let metrics = Self {
            allocate: Histogram::with_opts(allocate.buckets(ALLOCATE_BUCKETS.to_vec()))?,
            registrations: IntCounterVec::new(registrations, &["outcome"])?,
            registered: IntGauge::new(
                "sluice_device_plugin_registered",
                "1 while the plugin is registered with kubelet, else 0.",
            )?,
            slots: IntGaugeVec::new(slots, &["health"])?,
        };
        for outcome in ["ok", "error"] {
            metrics.registrations.with_label_values(&[outcome]);
        }
        registry.register(Box::new(metrics.allocate.clone()))?;
        registry.register(Box::new(metrics.registrations.clone()))?;
        registry.register(Box::new(metrics.registered.clone()))?;
        registry.register(Box::new(metrics.slots.clone()))?;
        Ok(metrics)
    }
}
