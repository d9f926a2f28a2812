//! Registers the plugin with kubelet.

use hyper_util::rt::TokioIo;
use sluice_placement::annotations::keys;
use sluice_proto::deviceplugin::registration_client::RegistrationClient;
use sluice_proto::deviceplugin::{DevicePluginOptions, RegisterRequest};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// The API's version, as kubelet compares it.
const VERSION: &str = "v1beta1";
/// Kubelet connects back to the plugin before it answers, with a timeout of 10 s of its own.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(12);
/// Go's gRPC servers require an authority. Kubelet's own clients send this one.
const AUTHORITY: &str = "http://localhost";

/// Why the registration failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegisterError {
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("it refuses: {}", .0.message())]
    Refused(tonic::Status),
    #[error("no answer within {} s", REGISTER_TIMEOUT.as_secs())]
    Silence,
}

/// Registers the plugin that serves our socket in kubelet's folder.
pub(super) async fn register(kubelet: &Path) -> Result<(), RegisterError> {
    let request = RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: super::SOCKET.to_owned(),
        resource_name: keys::RESOURCE.to_owned(),
        options: Some(DevicePluginOptions::default()),
    };
    let attempt = async {
        let channel = connect(kubelet).await.map_err(RegisterError::Connect)?;
        RegistrationClient::new(channel).register(request).await.map_err(RegisterError::Refused)?;
        Ok(())
    };
    tokio::time::timeout(REGISTER_TIMEOUT, attempt).await.unwrap_or(Err(RegisterError::Silence))
}

/// Connects at once, so that an error shows here and not in the first call.
async fn connect(socket: &Path) -> Result<Channel, String> {
    let socket: PathBuf = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static(AUTHORITY).connect_with_connector(connector).await.map_err(|why| {
        // The transport's own text is only "transport error"; its causes say what happened.
        format!("{:#}", anyhow::Error::new(why))
    })
}
