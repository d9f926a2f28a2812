//! Events on pods and on the node, for those who ask `kubectl describe`.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::managers::Backoff;
use crate::pods::PodView;

/// Events that wait to be sent; what comes while so many wait is dropped, and logged.
const WAITING: usize = 1024;
/// The longest note that the API takes, bytes.
const LONGEST_NOTE: usize = 1024;
/// The API server asks for patience.
const TOO_MANY: u16 = 429;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Attempts for one event while the API server is away: some minutes. Old news is no news.
const ATTEMPTS: u32 = 20;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A GPU takes no new pods, and those on it may suffer.
    GpuUnhealthy,
    /// It works again.
    GpuRecovered,
    /// A GPU's controls do not do what the driver says.
    GpuSelfTest,
    /// A pod gets no GPU although it asks for one.
    GpuRefused,
}

impl Reason {
    /// As `kubectl describe` shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GpuUnhealthy => "GpuUnhealthy",
            Self::GpuRecovered => "GpuRecovered",
            Self::GpuSelfTest => "GpuSelfTest",
            Self::GpuRefused => "GpuRefused",
        }
    }

    const fn kind(self) -> EventType {
        match self {
            Self::GpuUnhealthy | Self::GpuSelfTest | Self::GpuRefused => EventType::Warning,
            Self::GpuRecovered => EventType::Normal,
        }
    }

    const fn action(self) -> &'static str {
        match self {
            Self::GpuUnhealthy | Self::GpuRecovered | Self::GpuSelfTest => "CheckGpu",
            Self::GpuRefused => "AssignGpu",
        }
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    /// What it is about.
    pub about: ObjectReference,
    /// What happened.
    pub reason: Reason,
    /// In words.
    pub note: String,
}

/// What an event on a pod is about.
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

/// What an event on the node is about. Its uid is its name, as kubelet's events have it: `kubectl describe` looks for that.
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

/// Takes events from anywhere in the agent; nobody waits for the API server.
#[derive(Debug, Clone)]
pub struct Events(mpsc::Sender<Notice>);

impl Events {
    /// The taker, and what it takes, for [`send`].
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Notice>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Hands an event over.
    pub fn tell(&self, about: ObjectReference, reason: Reason, note: impl Into<String>) {
        let notice = Notice { about, reason, note: note.into() };
        if let Err(why) = self.0.try_send(notice) {
            warn!(%why, "an event is dropped");
        }
    }
}

/// Sends events one after the other, for ever.
pub async fn send(client: Client, node: String, mut notices: mpsc::Receiver<Notice>) {
    let reporter = Reporter { controller: "sluice.dev/node-agent".into(), instance: Some(node) };
    let recorder = Recorder::new(client, reporter);
    while let Some(notice) = notices.recv().await {
        let event = Event {
            type_: notice.reason.kind(),
            reason: notice.reason.name().into(),
            note: Some(cut(&notice.note).to_owned()),
            action: notice.reason.action().into(),
            secondary: None,
        };
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        for attempt in 1..=ATTEMPTS {
            match recorder.publish(&event, &notice.about).await {
                Ok(()) => break,
                // The API server has said no: the namespace is about to go, or we may not.
                Err(kube::Error::Api(why)) if why.code < 500 && why.code != TOO_MANY => {
                    warn!(%why, name = notice.about.name, reason = event.reason, "an event is refused");
                    break;
                }
                Err(why) => {
                    debug!(%why, attempt, "an event could not be sent");
                    tokio::time::sleep(backoff.delay()).await;
                }
            }
        }
    }
}

/// The beginning of a note, as much as the API takes.
fn cut(note: &str) -> &str {
    let mut end = note.len().min(LONGEST_NOTE);
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    note.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_where_a_character_ends() {
        let note = "é".repeat(600);
        assert_eq!(cut(&note).len(), 1024);
        assert_eq!(cut(&format!("x{note}")).len(), 1023);
        assert_eq!(cut("short"), "short");
    }
}
