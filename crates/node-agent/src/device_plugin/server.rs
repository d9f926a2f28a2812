//! The plugin's socket in kubelet's folder, and the gRPC server behind it.

use super::error::{Error, Result};
use super::folder_watch::SocketIdentity;
use super::service::{OpenStreams, PluginService};
use sluice_proto::deviceplugin::device_plugin_server::DevicePluginServer;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

/// How long the server may take to finish the calls under way before it is aborted.
const GRACE: Duration = Duration::from_secs(1);

pub(super) struct PluginServer {
    path: PathBuf,
    identity: SocketIdentity,
    streams: Arc<OpenStreams>,
    stop: CancellationToken,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
}

/// Which process the socket's name belongs to.
pub(super) enum SocketOwner {
    /// This server.
    Ours,
    /// No process: the file was removed. Kubelet removes all plugins' sockets when it starts.
    Missing,
    /// Another process.
    Foreign,
}

impl PluginServer {
    /// Starts to listen under this name. A socket that a killed agent left behind is replaced. `service` receives the
    /// counter of open streams and the token that ends them.
    pub(super) fn start(
        path: &Path,
        service: impl FnOnce(Arc<OpenStreams>, CancellationToken) -> PluginService,
    ) -> Result<Self> {
        remove(path)?;
        let listener = UnixListener::bind(path).map_err(Error::system("listen on", path))?;
        let identity = SocketIdentity::of(path)?.ok_or_else(|| Error::TakenOver(path.to_owned()))?;
        let streams = Arc::new(OpenStreams::default());
        let stop = CancellationToken::new();
        let service = service(Arc::clone(&streams), stop.clone());
        let service = DevicePluginServer::new(service);
        let connections = UnixListenerStream::new(listener);
        let server = Server::builder().serve_with_incoming_shutdown(
            service,
            connections,
            stop.clone().cancelled_owned(),
        );
        Ok(Self { path: path.to_owned(), identity, streams, stop, server: tokio::spawn(server) })
    }

    /// Finds out which process the socket's name belongs to.
    pub(super) fn socket_owner(&self) -> Result<SocketOwner> {
        Ok(match SocketIdentity::of(&self.path)? {
            Some(identity) if identity == self.identity => SocketOwner::Ours,
            Some(_) => SocketOwner::Foreign,
            None => SocketOwner::Missing,
        })
    }

    /// Returns when kubelet's last stream has ended.
    ///
    /// # Errors
    /// The server has ended by itself.
    pub(super) async fn all_streams_closed(&mut self) -> Result<()> {
        let why = tokio::select! {
            () = self.streams.all_closed.notified() => return Ok(()),
            ended = &mut self.server => match ended {
                Ok(Ok(())) => "no reason given".to_owned(),
                Ok(Err(why)) => why.to_string(),
                Err(why) => why.to_string(),
            },
        };
        Err(Error::Server { path: self.path.clone(), why })
    }

    /// Ends streams and connections, and removes the socket if it is still ours.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        if tokio::time::timeout(GRACE, &mut self.server).await.is_err() {
            tracing::warn!(socket = %self.path.display(), "the server did not end in time; aborting it");
        }
        let removed = match self.socket_owner() {
            Ok(SocketOwner::Ours) => remove(&self.path),
            Ok(SocketOwner::Missing | SocketOwner::Foreign) => Ok(()),
            Err(why) => Err(why),
        };
        if let Err(why) = removed {
            tracing::warn!("{why}");
        }
    }
}

/// A plugin that is dropped without [`PluginServer::stop`] must not go on serving.
impl Drop for PluginServer {
    fn drop(&mut self) {
        self.stop.cancel();
        self.server.abort();
    }
}

/// Removes a socket. An absent file is fine; a file that is no socket is an error.
fn remove(path: &Path) -> Result<()> {
    if SocketIdentity::of(path)?.is_none() {
        return Ok(());
    }
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(Error::system("remove", path)(why)),
        _ => Ok(()),
    }
}
