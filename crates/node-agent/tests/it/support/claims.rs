//! A fake kubelet for DRA drivers, modelled on pkg/kubelet/pluginmanager and pkg/kubelet/cm/dra of 1.36: it asks the socket in its registry
//! for the driver, connects to the driver's own socket, and tells the driver that it is registered.

use std::path::Path;

use sluice_proto::dra::dra_plugin_client::DraPluginClient;
use sluice_proto::dra::{Claim, Device, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest};
use sluice_proto::pluginregistration::registration_client::RegistrationClient;
use sluice_proto::pluginregistration::{InfoRequest, PluginInfo, RegistrationStatus};
use tonic::transport::Channel;

use super::kubelet::connect;

/// A registered driver.
pub struct Driver {
    pub info: PluginInfo,
    client: DraPluginClient<Channel>,
}

impl Driver {
    /// Waits for the driver's socket, and registers it.
    pub async fn registered(kubelet: &Path) -> Self {
        super::soon("the registration", Self::register(kubelet)).await
    }

    async fn register(kubelet: &Path) -> Self {
        let socket = kubelet.join("plugins_registry/gpu.sluice.dev-reg.sock");
        let channel = loop {
            match connect(socket.clone()).await {
                Ok(channel) => break channel,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let mut registration = RegistrationClient::new(channel);
        let info = registration.get_info(InfoRequest {}).await.unwrap().into_inner();
        let client = DraPluginClient::new(connect(info.endpoint.clone().into()).await.unwrap());
        let status = RegistrationStatus { plugin_registered: true, error: String::new() };
        registration.notify_registration_status(status).await.unwrap();
        Self { info, client }
    }

    /// Prepares one claim: its devices, or the driver's error.
    pub async fn prepare(&mut self, name: &str) -> Result<Vec<Device>, String> {
        let request = NodePrepareResourcesRequest { claims: vec![claim(name)] };
        let answer = super::soon("Prepare", self.client.node_prepare_resources(request)).await.unwrap();
        let mut answer = answer.into_inner();
        let one = answer.claims.remove(&uid(name)).expect("an entry for the claim");
        assert!(answer.claims.is_empty(), "{answer:?}");
        if one.error.is_empty() { Ok(one.devices) } else { Err(one.error) }
    }

    pub async fn unprepare(&mut self, name: &str) {
        let request = NodeUnprepareResourcesRequest { claims: vec![claim(name)] };
        let answer = super::soon("Unprepare", self.client.node_unprepare_resources(request)).await.unwrap();
        assert_eq!(answer.into_inner().claims[&uid(name)].error, "");
    }
}

pub fn uid(name: &str) -> String {
    format!("claim-{name}")
}

fn claim(name: &str) -> Claim {
    Claim { namespace: "ml".into(), uid: uid(name), name: name.into() }
}
