//! Registers the plugin with kubelet.

use super::unix_channel;
use sluice_proto::deviceplugin::registration_client::RegistrationClient;
use sluice_proto::deviceplugin::{DevicePluginOptions, RegisterRequest};
use std::path::Path;
use std::time::Duration;

/// The API's version, as kubelet compares it.
const VERSION: &str = "v1beta1";
/// Kubelet connects back to the plugin before it answers, with a timeout of 10 s of its own.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(12);

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

/// The plugin's options, the same in every call.
pub(super) fn options() -> DevicePluginOptions {
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: false }
}

/// Registers the plugin that serves the socket `endpoint`, a file name in kubelet's folder.
pub(super) async fn register(kubelet: &Path, endpoint: &str, resource: &str) -> Result<(), RegisterError> {
    let request = RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: endpoint.to_owned(),
        resource_name: resource.to_owned(),
        options: Some(options()),
    };
    let attempt = async {
        let channel = unix_channel::connect(kubelet).await.map_err(RegisterError::Connect)?;
        RegistrationClient::new(channel).register(request).await.map_err(RegisterError::Refused)?;
        Ok(())
    };
    tokio::time::timeout(REGISTER_TIMEOUT, attempt).await.unwrap_or(Err(RegisterError::Silence))
}
