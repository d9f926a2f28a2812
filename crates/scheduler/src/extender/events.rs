//! Events on pods about their assigned GPUs and about evictions. They are written outside the bind path, and dropped before they could
//! delay it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ObjectMeta, PostParams};
use prometheus::IntCounter;
use sluice_placement::Placement;
use sluice_rate_limiter::{Rate, RateLimiter};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::wire::ExtenderBindingArgs;

/// Events that may wait to be written; further ones are dropped.
const WAITING: usize = 256;
/// After a quiet time this many seconds' worth of events may be written at once.
const BURST_SECONDS: u32 = 10;

/// An event on a pod.
#[derive(Debug)]
pub(crate) struct PodEvent {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) reason: &'static str,
    pub(crate) text: String,
}

impl PodEvent {
    /// The pod got its GPUs.
    pub(crate) fn assigned(args: &ExtenderBindingArgs, choice: &Placement) -> Self {
        Self {
            namespace: args.pod_namespace.clone(),
            name: args.pod_name.clone(),
            uid: args.pod_uid.clone(),
            reason: "GpuAssigned",
            text: format!("assigned {choice}"),
        }
    }
}

/// The sending end of the queue.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    queue: mpsc::Sender<PodEvent>,
    dropped: IntCounter,
}

/// The receiving end of the queue.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: mpsc::Receiver<PodEvent>,
    per_second: u32,
}

pub(crate) fn pair(per_second: u32, dropped: IntCounter) -> (Events, Writer) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (Events { queue: sender, dropped }, Writer { queue: receiver, per_second })
}

impl Events {
    /// Puts an event into the queue; never waits.
    pub(crate) fn add(&self, event: PodEvent) {
        if self.queue.try_send(event).is_err() {
            self.dropped.inc();
        }
    }
}

impl Writer {
    /// Writes events at the permitted rate, for ever.
    pub(crate) async fn write(mut self, client: kube::Client, source: String) {
        if self.per_second == 0 {
            // Receives them, so that they are not counted as dropped.
            while self.queue.recv().await.is_some() {}
            return;
        }
        let rate = Rate::per_second(
            u64::from(self.per_second) * u64::from(BURST_SECONDS),
            u64::from(self.per_second),
        );
        let mut limiter = RateLimiter::full(rate);
        let began = Instant::now();
        // The burst is earned by a quiet time, not by a restart.
        limiter.take_up_to(u64::MAX, 0);
        while let Some(of_pod) = self.queue.recv().await {
            if let Some(ready_ns) = limiter.ready_at(1) {
                tokio::time::sleep_until(began + Duration::from_nanos(ready_ns)).await;
            }
            let elapsed_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            limiter.try_take(1, elapsed_ns);
            let api: Api<Event> = Api::namespaced(client.clone(), &of_pod.namespace);
            if let Err(error) = api.create(&PostParams::default(), &event(of_pod, &source)).await {
                tracing::debug!(%error, "event not written");
            }
        }
    }
}

fn event(of_pod: PodEvent, source: &str) -> Event {
    let now = Time(k8s_openapi::jiff::Timestamp::now());
    let unique = format!("{:x}", now.0.as_nanosecond());
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{unique}", of_pod.name)),
            namespace: Some(of_pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(of_pod.name),
            namespace: Some(of_pod.namespace),
            uid: Some(of_pod.uid),
            ..ObjectReference::default()
        },
        type_: Some("Normal".to_owned()),
        reason: Some(of_pod.reason.to_owned()),
        message: Some(of_pod.text),
        source: Some(EventSource { component: Some(source.to_owned()), host: None }),
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        ..Event::default()
    }
}
