//! The two sockets for kubelet: one in its folder `plugins_registry`, by which it finds the driver, and the driver's own.
//!
//! Kubelet watches the folder and asks each socket that appears, also after its own restart. So the driver waits to be asked.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sluice_proto::dra::dra_plugin_server::DraPluginServer;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tracing::warn;

use super::driver::ClaimDriver;
use super::registration::Registrar;
use crate::prepared_claims::DRIVER;

/// How long calls under way may take at the end.
const GRACE: Duration = Duration::from_secs(2);

/// Serves kubelet until `stop`. `registered` tells readiness whether kubelet has accepted the driver.
///
/// # Errors
/// A socket cannot be created, or a server has ended by itself.
pub(crate) async fn serve(
    driver: Arc<ClaimDriver>,
    kubelet: &Path,
    registered: watch::Sender<bool>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let endpoint = kubelet.join("plugins").join(DRIVER).join("dra.sock");
    let registry = kubelet.join("plugins_registry").join(format!("{DRIVER}-reg.sock"));
    let driver_socket = listen(&endpoint)?;
    // Last, because kubelet connects to both as soon as this one exists.
    let registration_socket = listen(&registry)?;
    let registrar = Arc::new(Registrar { endpoint: endpoint.clone(), registered });
    let serving = Server::builder()
        .add_service(DraPluginServer::from_arc(driver))
        .serve_with_incoming_shutdown(UnixListenerStream::new(driver_socket), stop.clone().cancelled_owned());
    // Kubelet holds its connection open, so the server ends when it is dropped.
    let ended = tokio::select! {
        ended = serving => ended.context("the server for kubelet has ended"),
        failed = register(registrar, registration_socket) => Err(failed).context("cannot accept kubelet's connections"),
        () = async { stop.cancelled().await; tokio::time::sleep(GRACE).await } => Ok(()),
    };
    // Kubelet deletes the node's ResourceSlices 30 s after the socket is gone.
    for socket in [&registry, &endpoint] {
        if let Err(why) = remove(socket) {
            warn!(socket = %socket.display(), %why, "cannot remove a socket");
        }
    }
    ended
}

/// Answers kubelet whenever it connects. Returns only after an error of the socket.
async fn register(registrar: Arc<Registrar>, socket: UnixListener) -> std::io::Error {
    loop {
        let stream = match socket.accept().await {
            Ok((stream, _)) => stream,
            Err(why) => return why,
        };
        let registrar = Arc::clone(&registrar);
        tokio::spawn(async move {
            if let Err(why) = registrar.serve(stream).await {
                warn!(%why, "a connection for the registration failed");
            }
        });
    }
}

/// A listener under this name, in place of a socket that an agent left behind.
fn listen(socket: &Path) -> anyhow::Result<UnixListener> {
    let context = || format!("cannot listen on {}", socket.display());
    if let Some(folder) = socket.parent() {
        fs::create_dir_all(folder).with_context(context)?;
    }
    remove(socket).with_context(context)?;
    UnixListener::bind(socket).with_context(context)
}

fn remove(socket: &Path) -> std::io::Result<()> {
    match fs::remove_file(socket) {
        Err(why) if why.kind() != ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}
