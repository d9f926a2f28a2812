//! Kubernetes events on pods and on the node, as `kubectl describe` shows them.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use sluice_rate_limiter::Backoff;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::pods::PodView;

/// Events that may wait to be sent. While the queue is full, further events are dropped and logged.
const WAITING: usize = 1024;
/// The longest note that the API accepts, bytes.
const LONGEST_NOTE: usize = 1024;
/// The API server's status for too many requests.
const TOO_MANY: u16 = 429;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Attempts for one event while the API server is unavailable, some minutes. Later the event is outdated.
const ATTEMPTS: u32 = 20;

/// Reason of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A GPU takes no new pods, and the pods on it may be affected.
    GpuUnhealthy,
    /// A GPU is healthy again.
    GpuRecovered,
    /// A GPU's driver controls have no effect.
    GpuSelfTest,
    /// A pod requests a GPU and gets none.
    GpuRefused,
    /// The path by which containers get their GPUs is another one.
    InjectionChanged,
    /// There is no path by which containers could get their GPUs.
    InjectionUnavailable,
    /// A container of a pod was to get a GPU by the path in force, and did not.
    InjectionFailed,
    /// Programs in pods would ignore the library: the node offers no device slots.
    LibraryNotLoadable,
    /// A process of a pod did something against the pod's limits.
    LimitViolated,
    /// A pod was evicted because of a violation.
    EvictedForViolation,
    /// No program can work on a GPU since longer than the grace period.
    GpuLost,
    /// A pod was evicted because no program can work on a GPU of it.
    EvictedForLostGpu,
    /// A pod is to be evicted, and the API server does not do it yet.
    EvictionRefused,
    /// What the driver takes for a pod's processes alone reaches the pod's memory limit.
    GpuMemoryLimitReached,
    /// A pod gets no GPU time because of its annotation.
    Suspended,
    /// A pod that was suspended gets GPU time again.
    Resumed,
    /// A container was created without what the agent gives to it.
    NotInjected,
    /// The node's devices are not published, so no claim can be allocated on it.
    ClaimsUnavailable,
    /// Pods have claims, and claims are not wanted on the node any more.
    ClaimsKept,
}

impl Reason {
    /// The event's type, reason and action in the API.
    const fn in_api(self) -> (EventType, &'static str, &'static str) {
        match self {
            Self::GpuUnhealthy => (EventType::Warning, "GpuUnhealthy", "CheckGpu"),
            Self::GpuRecovered => (EventType::Normal, "GpuRecovered", "CheckGpu"),
            Self::GpuSelfTest => (EventType::Warning, "GpuSelfTest", "CheckGpu"),
            Self::GpuRefused => (EventType::Warning, "GpuRefused", "AssignGpu"),
            Self::InjectionChanged => (EventType::Normal, "InjectionChanged", "Inject"),
            Self::InjectionUnavailable => (EventType::Warning, "InjectionUnavailable", "Inject"),
            Self::InjectionFailed => (EventType::Warning, "InjectionFailed", "Inject"),
            Self::LibraryNotLoadable => (EventType::Warning, "LibraryNotLoadable", "Install"),
            Self::LimitViolated => (EventType::Warning, "LimitViolated", "Inspect"),
            Self::EvictedForViolation => (EventType::Warning, "EvictedForViolation", "Evict"),
            Self::GpuLost => (EventType::Warning, "GpuLost", "CheckGpu"),
            Self::EvictedForLostGpu => (EventType::Warning, "EvictedForLostGpu", "Evict"),
            Self::EvictionRefused => (EventType::Warning, "EvictionRefused", "Evict"),
            Self::GpuMemoryLimitReached => (EventType::Warning, "GpuMemoryLimitReached", "LimitMemory"),
            Self::Suspended => (EventType::Normal, "Suspended", "Suspend"),
            Self::Resumed => (EventType::Normal, "Resumed", "Resume"),
            Self::NotInjected => (EventType::Warning, "NotInjected", "Inject"),
            Self::ClaimsUnavailable => (EventType::Warning, "ClaimsUnavailable", "PublishDevices"),
            Self::ClaimsKept => (EventType::Warning, "ClaimsKept", "PublishDevices"),
        }
    }
}

/// An event that waits to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingEvent {
    /// The object that it is about.
    pub about: ObjectReference,
    /// Its reason.
    pub reason: Reason,
    /// Its text.
    pub note: String,
}

/// Reference to a pod for an event.
#[must_use]
pub fn about_pod(pod: &PodView) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(pod.namespace.clone()),
        name: Some(pod.name.clone()),
        uid: Some(pod.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Reference to the node for an event. The uid is the node's name, as in kubelet's events, because `kubectl describe`
/// searches for that.
#[must_use]
pub fn about_node(node: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(node.to_owned()),
        uid: Some(node.to_owned()),
        ..ObjectReference::default()
    }
}

/// The sending end of the queue of events. Publishing never waits for the API server.
#[derive(Debug, Clone)]
pub struct EventQueue(mpsc::Sender<PendingEvent>);

impl EventQueue {
    /// The sending end, and the receiving end for [`send`].
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<PendingEvent>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Puts an event into the queue.
    pub fn publish(&self, about: ObjectReference, reason: Reason, note: impl Into<String>) {
        let pending = PendingEvent { about, reason, note: note.into() };
        if let Err(why) = self.0.try_send(pending) {
            warn!(%why, "the event queue is full; an event is dropped");
        }
    }
}

/// Sends the events one after the other, for ever.
pub async fn send(client: Client, node: String, mut receiver: mpsc::Receiver<PendingEvent>) {
    let reporter = Reporter { controller: "sluice.dev/node-agent".into(), instance: Some(node) };
    let recorder = Recorder::new(client, reporter);
    while let Some(pending) = receiver.recv().await {
        let (type_, reason, action) = pending.reason.in_api();
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(cut(&pending.note).to_owned()),
            action: action.into(),
            secondary: None,
        };
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        for attempt in 1..=ATTEMPTS {
            match recorder.publish(&event, &pending.about).await {
                Ok(()) => break,
                // The API server refused it: the namespace is being deleted, or the agent lacks the right.
                Err(kube::Error::Api(why)) if why.code < 500 && why.code != TOO_MANY => {
                    warn!(%why, name = pending.about.name, reason = event.reason, "the API server refused an event");
                    break;
                }
                Err(why) => {
                    debug!(%why, attempt, "an event could not be sent");
                    tokio::time::sleep(backoff.next_delay()).await;
                }
            }
        }
    }
}

/// The beginning of a note, as long as the API accepts.
fn cut(note: &str) -> &str {
    let mut end = note.len().min(LONGEST_NOTE);
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    note.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests;
