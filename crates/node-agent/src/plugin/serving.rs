//! Our socket in kubelet's folder, and the server behind it.

use super::error::{Error, Result};
use super::folder::SocketIdentity;
use super::service::{Listeners, Service};
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

/// Calls under way are over at once; who keeps a connection longer is cut off.
const GRACE: Duration = Duration::from_secs(1);

/// A server that listens.
pub(super) struct Serving {
    path: PathBuf,
    identity: SocketIdentity,
    listeners: Arc<Listeners>,
    stop: CancellationToken,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
}

/// What has become of our socket's name.
pub(super) enum Place {
    /// It leads to us.
    Ours,
    /// Removed, as kubelet does with all plugins' when it starts.
    Empty,
    /// It leads to another process.
    Foreign,
}

impl Serving {
    /// Listens under this name, also where an agent that was killed has left its socket. `service` gets the counter of its
    /// streams and the token that ends them.
    pub(super) fn start(
        path: &Path,
        service: impl FnOnce(Arc<Listeners>, CancellationToken) -> Service,
    ) -> Result<Self> {
        remove(path)?;
        let listener = UnixListener::bind(path).map_err(Error::system("listen on", path))?;
        let identity = SocketIdentity::of(path)?.ok_or_else(|| Error::TakenOver { path: path.to_owned() })?;
        let listeners = Arc::new(Listeners::default());
        let stop = CancellationToken::new();
        let service = service(Arc::clone(&listeners), stop.clone());
        let service = DevicePluginServer::new(service);
        let connections = UnixListenerStream::new(listener);
        let server = Server::builder().serve_with_incoming_shutdown(
            service,
            connections,
            stop.clone().cancelled_owned(),
        );
        Ok(Self { path: path.to_owned(), identity, listeners, stop, server: tokio::spawn(server) })
    }

    /// Where the socket's name leads now.
    pub(super) fn place(&self) -> Result<Place> {
        Ok(match SocketIdentity::of(&self.path)? {
            Some(identity) if identity == self.identity => Place::Ours,
            Some(_) => Place::Foreign,
            None => Place::Empty,
        })
    }

    /// Returns when kubelet's last stream has ended.
    ///
    /// # Errors
    /// The server has ended by itself.
    pub(super) async fn all_listeners_gone(&mut self) -> Result<()> {
        let why = tokio::select! {
            () = self.listeners.all_gone.notified() => return Ok(()),
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
            tracing::warn!(socket = %self.path.display(), "a client keeps its connection; cutting it off");
        }
        let removed = match self.place() {
            Ok(Place::Ours) => remove(&self.path),
            Ok(Place::Empty | Place::Foreign) => Ok(()),
            Err(why) => Err(why),
        };
        if let Err(why) = removed {
            tracing::warn!("{why}");
        }
    }
}

/// Who drops the plugin without stopping it does not want it served either.
impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.cancel();
        self.server.abort();
    }
}

/// Removes a socket; nothing there is fine, anything else is not ours to remove.
fn remove(path: &Path) -> Result<()> {
    if SocketIdentity::of(path)?.is_none() {
        return Ok(());
    }
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(Error::system("remove", path)(why)),
        _ => Ok(()),
    }
}
