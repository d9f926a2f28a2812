//! A fake kubelet for DRA drivers, modelled on pkg/kubelet/pluginmanager and pkg/kubelet/cm/dra of 1.36: it asks the socket in its registry
//! for the driver, connects to the driver's own socket, and tells the driver that it is registered.

use std::path::Path;

use sluice_proto::dra::dra_plugin_client::DraPluginClient;
use sluice_proto::dra::{Claim, Device, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest};
use sluice_proto::pluginregistration::registration_client::RegistrationClient;
use sluice_proto::pluginregistration::{InfoRequest, PluginInfo, RegistrationStatus};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tonic::transport::Channel;

use super::kubelet::connect;

/// A request of `GetInfo` as kubelet's client sends it: its authority is the path of the socket, percent-encoded, which tonic's client cannot send.
pub async fn get_info_as_kubelet(kubelet: &Path) -> Vec<u8> {
    let socket = kubelet.join("plugins_registry/gpu.sluice.dev-reg.sock");
    let authority = socket.to_str().unwrap().replace('/', "%2F");
    let mut headers = vec![0x83, 0x86];
    for (name, value) in [
        (":path", "/pluginregistration.Registration/GetInfo"),
        (":authority", authority.as_str()),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        // Literals without indexing; none is longer than 126 bytes.
        headers.extend([0, u8::try_from(name.len()).unwrap()]);
        headers.extend(name.as_bytes());
        headers.push(u8::try_from(value.len()).unwrap());
        headers.extend(value.as_bytes());
    }
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let mut frame = vec![0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream];
        frame.extend(payload);
        frame
    };
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(4, 0, 0, &[]));
    sent.extend(frame(1, 4, 1, &headers));
    sent.extend(frame(0, 1, 1, &[0; 5]));
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(&sent).await.unwrap();
    // Up to the trailers of the answer.
    let mut received = Vec::new();
    let answered = async {
        while !received.windows(12).any(|part| part == b"grpc-status\x01") {
            assert_ne!(
                stream.read_buf(&mut received).await.unwrap(),
                0,
                "the driver has ended the connection"
            );
        }
    };
    super::soon("the answer", answered).await;
    received
}

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
