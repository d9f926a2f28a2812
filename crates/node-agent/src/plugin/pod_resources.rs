//! Asks kubelet which pods hold seats: the public record behind its checkpoint, complete after any restart of ours.
//!
//! A pod is in it from a moment after its Allocate until kubelet has seen it end.

use super::unix_channel;
use sluice_proto::podresources::pod_resources_lister_client::PodResourcesListerClient;
use sluice_proto::podresources::{GetPodResourcesRequest, ListPodResourcesRequest, PodResources};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Kubelet's socket under its usual `--root-dir`.
pub const SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";
/// Kubelet answers from memory.
const PATIENCE: Duration = Duration::from_secs(5);
/// Kubelet's own clients take as much: a big node's list is longer than gRPC's usual 4 MiB.
const LONGEST_ANSWER: usize = 16 << 20;

/// A container that holds seats.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// The seats.
    pub seats: Vec<String>,
}

/// Why kubelet's record cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PodResourcesError {
    /// No kubelet there.
    #[error("cannot connect to {}: {why}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        why: String,
    },
    /// It does not answer the question.
    #[error("{} refuses {call}: {}", socket.display(), status.message())]
    Refused {
        /// The socket.
        socket: PathBuf,
        /// The question.
        call: &'static str,
        /// What it said.
        status: Box<Status>,
    },
    /// It does not answer at all.
    #[error("{} does not answer within {} s", socket.display(), PATIENCE.as_secs())]
    Silence {
        /// The socket.
        socket: PathBuf,
    },
}

/// A question to kubelet. Connects anew each time: between two questions kubelet may have been restarted.
#[derive(Debug, Clone)]
pub struct PodResourcesReader {
    socket: PathBuf,
    resource: String,
}

impl PodResourcesReader {
    /// Who holds this resource, by the kubelet behind this socket.
    pub fn new(socket: impl Into<PathBuf>, resource: impl Into<String>) -> Self {
        Self { socket: socket.into(), resource: resource.into() }
    }

    /// All containers that hold seats, in order of their names.
    ///
    /// # Errors
    /// Kubelet does not answer.
    pub async fn holders(&self) -> Result<Vec<Holder>, PodResourcesError> {
        let ask = async {
            let answer = self.client().await?.list(ListPodResourcesRequest {}).await;
            let pods = answer.map_err(|status| self.refused("List", status))?.into_inner().pod_resources;
            let mut holders: Vec<_> =
                pods.into_iter().flat_map(|pod| holders_in(pod, &self.resource)).collect();
            holders.sort();
            Ok(holders)
        };
        self.in_time(ask).await
    }

    /// The containers of one pod that hold seats; empty if kubelet does not know the pod.
    ///
    /// # Errors
    /// Kubelet does not answer, or is older than 1.34 and has no such question: use [`Self::holders`] then.
    pub async fn holders_of(&self, namespace: &str, pod: &str) -> Result<Vec<Holder>, PodResourcesError> {
        let request =
            GetPodResourcesRequest { pod_name: pod.to_owned(), pod_namespace: namespace.to_owned() };
        let ask = async {
            match self.client().await?.get(request).await {
                Ok(answer) => {
                    let pod = answer.into_inner().pod_resources;
                    Ok(pod.map(|pod| holders_in(pod, &self.resource)).unwrap_or_default())
                }
                Err(status) if is_unknown_pod(&status) => Ok(Vec::new()),
                Err(status) => Err(self.refused("Get", status)),
            }
        };
        self.in_time(ask).await
    }

    async fn client(&self) -> Result<PodResourcesListerClient<Channel>, PodResourcesError> {
        let connect = |why| PodResourcesError::Connect { socket: self.socket.clone(), why };
        let channel = unix_channel::connect(Path::new(&self.socket)).await.map_err(connect)?;
        Ok(PodResourcesListerClient::new(channel).max_decoding_message_size(LONGEST_ANSWER))
    }

    async fn in_time<T>(
        &self,
        ask: impl Future<Output = Result<T, PodResourcesError>>,
    ) -> Result<T, PodResourcesError> {
        let silence = || Err(PodResourcesError::Silence { socket: self.socket.clone() });
        tokio::time::timeout(PATIENCE, ask).await.unwrap_or_else(|_| silence())
    }

    fn refused(&self, call: &'static str, status: Status) -> PodResourcesError {
        PodResourcesError::Refused { socket: self.socket.clone(), call, status: Box::new(status) }
    }
}

/// Kubelet gives this case no code of its own, only these words.
fn is_unknown_pod(status: &Status) -> bool {
    status.code() == Code::NotFound
        || (status.code() == Code::Unknown && status.message().contains("not found"))
}

fn holders_in(pod: PodResources, resource: &str) -> Vec<Holder> {
    let PodResources { name, namespace, containers } = pod;
    let holder = |container: sluice_proto::podresources::ContainerResources| {
        let ours = container.devices.into_iter().filter(|devices| devices.resource_name == resource);
        let mut seats: Vec<_> = ours.flat_map(|devices| devices.device_ids).collect();
        seats.sort();
        let holder =
            Holder { namespace: namespace.clone(), pod: name.clone(), container: container.name, seats };
        (!holder.seats.is_empty()).then_some(holder)
    };
    containers.into_iter().filter_map(holder).collect()
}
