//! The two sockets for kubelet: one in its folder `plugins_registry`, by which it finds the driver, and the driver's own.
//!
//! Kubelet watches the folder and asks each socket that appears, also after its own restart. So the driver waits to be asked.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sluice_proto::dra::dra_plugin_server::DraPluginServer;
use sluice_proto::pluginregistration::registration_server::{Registration, RegistrationServer};
use sluice_proto::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tracing::{info, warn};

use super::{ClaimDriver, DRIVER};

const PLUGIN_TYPE: &str = "DRAPlugin";
/// The only service that the driver has.
const SERVICE: &str = "v1.DRAPlugin";
/// How long calls under way may take at the end.
const GRACE: Duration = Duration::from_secs(2);

struct Registrar {
    endpoint: PathBuf,
    registered: watch::Sender<bool>,
}

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
    let registrar = Registrar { endpoint: endpoint.clone(), registered };
    // Kubelet holds its connections open, so the servers end when they are dropped.
    let serving = async {
        tokio::try_join!(
            Server::builder().add_service(DraPluginServer::from_arc(driver)).serve_with_incoming_shutdown(
                UnixListenerStream::new(driver_socket),
                stop.clone().cancelled_owned()
            ),
            Server::builder().add_service(RegistrationServer::new(registrar)).serve_with_incoming_shutdown(
                UnixListenerStream::new(registration_socket),
                stop.clone().cancelled_owned()
            ),
        )
    };
    let ended = tokio::select! {
        ended = serving => ended.map(drop),
        () = async { stop.cancelled().await; tokio::time::sleep(GRACE).await } => Ok(()),
    };
    // Kubelet deletes the node's ResourceSlices 30 s after the socket is gone.
    for socket in [&registry, &endpoint] {
        if let Err(why) = remove(socket) {
            warn!(socket = %socket.display(), %why, "cannot remove a socket");
        }
    }
    ended.context("a server for kubelet has ended")
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

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: PLUGIN_TYPE.to_owned(),
            name: DRIVER.to_owned(),
            endpoint: self.endpoint.to_string_lossy().into_owned(),
            supported_versions: vec![SERVICE.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        if plugin_registered {
            info!(driver = DRIVER, "registered with kubelet");
        } else {
            warn!(driver = DRIVER, error, "kubelet refuses the driver");
        }
        self.registered.send_replace(plugin_registered);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
