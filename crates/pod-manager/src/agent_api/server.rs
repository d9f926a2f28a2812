//! The control socket: a thread with a runtime of its own, which asks the event loop by messages.

use crate::client_set::{ClientSet, Outdated};
use crate::error::Result;
use crate::listen::{UnixSocket, peers_of_own_user};
use crate::message::{Message, Remote};
use crate::side_thread::SideThread;
use sluice_proto::control::pod_manager_server::{PodManager, PodManagerServer};
use sluice_proto::control::{
    NextReadingRequest, NextReadingResponse, ReportMemoryRequest, ReportMemoryResponse, SetClientsRequest,
    SetClientsResponse, SnapshotRequest, SnapshotResponse, ViolationsRequest, ViolationsResponse,
};
use std::io;
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};
use tracing::{error, info, warn};

/// How long a question for the next violation, or for a reading that is wanted, waits.
const NEXT_WITHIN: Duration = Duration::from_secs(20);

/// Serves on a socket that is published once the event loop has answered for the first time.
pub(crate) fn start(socket: UnixSocket, remote: Remote) -> Result<SideThread> {
    SideThread::serve("control", serve(socket, remote))
}

async fn serve(mut socket: UnixSocket, remote: Remote) {
    let (done, served) = oneshot::channel();
    remote.send(Message::Refresh(done));
    // Without an answer the event loop has ended before it served. Then the socket is not published.
    if served.await.is_err() {
        return;
    }
    let outcome = async {
        socket.publish().map_err(io::Error::other)?;
        let incoming = peers_of_own_user(socket.listener.try_clone()?, "control")?;
        info!("control socket is published");
        let service = PodManagerServer::new(Service { remote: remote.clone() });
        let server = tonic::transport::Server::builder().add_service(service);
        server.serve_with_incoming(incoming).await.map_err(io::Error::other)
    };
    if let Err(error) = outcome.await {
        // Without the control socket the manager gets no clients. Its supervisor restarts it.
        error!(%error, "control socket cannot be served, pod-manager stops");
        remote.send(Message::Stop);
    }
}

/// Passes requests on to the event loop.
struct Service {
    remote: Remote,
}

impl Service {
    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, Status> {
        let answer = self.remote.ask(question).await;
        answer.ok_or_else(|| Status::unavailable("the event loop does not answer"))
    }

    /// Asks a question that is answered when something happens; `None`: nothing has.
    async fn ask_next<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> Message,
    ) -> Result<Option<T>, Status> {
        let (sender, answer) = oneshot::channel();
        self.remote.send(question(sender));
        match tokio::time::timeout(NEXT_WITHIN, answer).await {
            Ok(Ok(answer)) => Ok(Some(answer)),
            Ok(Err(_)) => Err(Status::unavailable("the event loop has ended")),
            Err(_) => Ok(None),
        }
    }
}

#[tonic::async_trait]
impl PodManager for Service {
    async fn set_clients(
        &self,
        request: Request<SetClientsRequest>,
    ) -> Result<Response<SetClientsResponse>, Status> {
        let set = ClientSet::read(request.into_inner()).map_err(|mistakes| {
            warn!("set of clients is refused, the previous one stays in force: {mistakes}");
            Status::invalid_argument(mistakes)
        })?;
        let generation = set.generation;
        match self.ask(|answer| Message::SetClients(set, answer)).await? {
            Ok(()) => Ok(Response::new(SetClientsResponse { generation })),
            Err(Outdated { in_force }) => Err(Status::failed_precondition(format!(
                "generation {generation} is older than {in_force}, which is in force"
            ))),
        }
    }

    async fn violations(
        &self,
        request: Request<ViolationsRequest>,
    ) -> Result<Response<ViolationsResponse>, Status> {
        let after = request.into_inner().after;
        let next = self.ask_next(|answer| Message::Violations(after, answer)).await?;
        let none = || ViolationsResponse { last: after, violations: Vec::new() };
        Ok(Response::new(next.unwrap_or_else(none)))
    }

    async fn snapshot(
        &self,
        _request: Request<SnapshotRequest>,
    ) -> Result<Response<SnapshotResponse>, Status> {
        Ok(Response::new(self.ask(Message::Snapshot).await?))
    }

    async fn report_memory(
        &self,
        request: Request<ReportMemoryRequest>,
    ) -> Result<Response<ReportMemoryResponse>, Status> {
        let reading = request.into_inner().into();
        Ok(Response::new(self.ask(|answer| Message::MemoryReport(reading, answer)).await?))
    }

    async fn next_reading(
        &self,
        _request: Request<NextReadingRequest>,
    ) -> Result<Response<NextReadingResponse>, Status> {
        let wanted = self.ask_next(Message::NextReading).await?.is_some();
        Ok(Response::new(NextReadingResponse { wanted }))
    }
}
