//! The client of a manager's control API: gRPC over a unix socket that only the agent can reach.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use sluice_proto::control::pod_manager_client::PodManagerClient;
use sluice_proto::control::{
    ExceededLimit, NextReadingRequest, ReportMemoryRequest, SetClientsRequest, SnapshotRequest,
    SnapshotResponse, ViolationsRequest, ViolationsResponse,
};
use tonic::transport::{Channel, Endpoint};

/// Why a call of a manager failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Its socket cannot be reached.
    #[error("cannot reach the manager at {}: {why}", socket.display())]
    Unreachable {
        /// The control socket.
        socket: PathBuf,
        /// The transport's error with its causes.
        why: String,
    },
    /// The agent itself has run out of descriptors or memory. This says nothing about the manager.
    #[error("cannot reach the manager at {}, because the agent lacks a resource: {why}", socket.display())]
    LocalResources {
        /// The control socket.
        socket: PathBuf,
        /// The kernel's error.
        why: io::Error,
    },
    /// The manager did not answer in time.
    #[error("the manager did not answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The manager refused the request.
    #[error("the manager refuses ({:?}): {}", .0.code(), .0.message())]
    Refused(Box<tonic::Status>),
}

/// What every client of this manager is promised and has used.
///
/// # Errors
/// No answer within `deadline`, or a refusal.
pub async fn snapshot(socket: &Path, deadline: Duration) -> Result<SnapshotResponse, ControlError> {
    within(deadline, async {
        let mut manager = connect(socket).await?;
        let answer = manager.snapshot(SnapshotRequest {}).await;
        answer.map(tonic::Response::into_inner).map_err(|status| ControlError::Refused(Box::new(status)))
    })
    .await
}

/// For questions that the manager answers after 20 s at the latest.
const NEXT_DEADLINE: Duration = Duration::from_secs(25);

/// The violations after number `after`, as soon as there is one, or an empty answer after 20 s.
pub(crate) async fn violations(socket: &Path, after: u64) -> Result<ViolationsResponse, ControlError> {
    within(NEXT_DEADLINE, async {
        let mut manager = connect(socket).await?;
        let answer = manager.violations(ViolationsRequest { after }).await;
        answer.map(tonic::Response::into_inner).map_err(|status| ControlError::Refused(Box::new(status)))
    })
    .await
}

/// Replaces the manager's set of clients. Returns the generation in force afterwards.
pub(crate) async fn set_clients(
    socket: &Path,
    request: SetClientsRequest,
    deadline: Duration,
) -> Result<u64, ControlError> {
    within(deadline, async {
        let mut manager = connect(socket).await?;
        let answer = manager.set_clients(request).await;
        answer
            .map(|answer| answer.into_inner().generation)
            .map_err(|status| ControlError::Refused(Box::new(status)))
    })
    .await
}

/// Sends a reading of the memory of processes. Returns the clients whose overhead alone reaches their limit.
pub(crate) async fn report_memory(
    socket: &Path,
    request: ReportMemoryRequest,
    deadline: Duration,
) -> Result<Vec<ExceededLimit>, ControlError> {
    within(deadline, async {
        let mut manager = connect(socket).await?;
        let answer = manager.report_memory(request).await;
        answer
            .map(|answer| answer.into_inner().exceeded)
            .map_err(|status| ControlError::Refused(Box::new(status)))
    })
    .await
}

/// Returns `true` as soon as a process waits for a reading of its memory, `false` after 20 s.
pub(crate) async fn next_reading(socket: &Path) -> Result<bool, ControlError> {
    within(NEXT_DEADLINE, async {
        let mut manager = connect(socket).await?;
        let answer = manager.next_reading(NextReadingRequest {}).await;
        answer
            .map(|answer| answer.into_inner().wanted)
            .map_err(|status| ControlError::Refused(Box::new(status)))
    })
    .await
}

async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = Result<T, ControlError>>,
) -> Result<T, ControlError> {
    tokio::time::timeout(deadline, call).await.unwrap_or(Err(ControlError::Timeout(deadline)))
}

/// One connection per call: a unix socket costs microseconds, and the end of a manager needs no detection on an idle
/// connection.
async fn connect(socket: &Path) -> Result<PodManagerClient<Channel>, ControlError> {
    let unreachable = |why: tonic::transport::Error| {
        let (socket, why) = (socket.to_owned(), anyhow::Error::new(why));
        match why.chain().find_map(|cause| own_want(cause.downcast_ref::<io::Error>()?)) {
            Some(why) => ControlError::LocalResources { socket, why },
            None => ControlError::Unreachable { socket, why: format!("{why:#}") },
        }
    };
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).map_err(unreachable)?;
    Ok(PodManagerClient::new(endpoint.connect().await.map_err(unreachable)?))
}

/// The error, if it says that this process or the machine has run out of a resource.
fn own_want(error: &io::Error) -> Option<io::Error> {
    let number = error.raw_os_error()?;
    let wants = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS];
    wants.contains(&Errno::from_raw(number)).then(|| io::Error::from_raw_os_error(number))
}
