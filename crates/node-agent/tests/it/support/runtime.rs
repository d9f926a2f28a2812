//! A fake container runtime with NRI, modelled on pkg/adaptation of containerd/nri v0.11.0: it waits for the registration,
//! configures and synchronises the plugin, then asks it about containers. Bytes by hand: another writer than the agent's.

use std::path::Path;

use prost::Message;
use sluice_proto::nri::{
    ConfigureRequest, ConfigureResponse, CreateContainerRequest, CreateContainerResponse,
    RegisterPluginRequest, SynchronizeRequest,
};
use sluice_proto::ttrpc::{Request, Response, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

pub struct Runtime {
    listener: UnixListener,
}

/// A plugin that is registered.
pub struct Registered {
    pub name: String,
    stream: UnixStream,
    next: u32,
}

impl Runtime {
    pub fn listen(socket: &Path) -> Self {
        Self { listener: UnixListener::bind(socket).unwrap() }
    }

    /// Accepts the next connection, and registers the plugin.
    pub async fn next_plugin(&self, existing: SynchronizeRequest) -> Registered {
        super::soon("a plugin", self.register(existing)).await
    }

    async fn register(&self, existing: SynchronizeRequest) -> Registered {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let (connection, number, call) = read(&mut stream).await;
        let call = Request::decode(call.as_slice()).unwrap();
        assert_eq!((connection, call.service.as_str()), (2, "nri.pkg.api.v1alpha1.Runtime"));
        let request = RegisterPluginRequest::decode(call.payload.as_slice()).unwrap();
        assert!(request.plugin_idx.len() == 2, "{request:?}");
        write(&mut stream, 2, number, 2, &Response::default().encode_to_vec()).await;
        let mut plugin = Registered { name: request.plugin_name, stream, next: 1 };
        let configure = ConfigureRequest {
            runtime_name: "containerd".into(),
            runtime_version: "v2.2.9".into(),
            request_timeout: 2000,
        };
        let answer = plugin.call("Configure", &configure).await.unwrap();
        // Only the event CREATE_CONTAINER.
        assert_eq!(ConfigureResponse::decode(answer.as_slice()).unwrap().events, 8);
        plugin.call("Synchronize", &existing).await.unwrap();
        plugin
    }
}

impl Registered {
    pub async fn create(
        &mut self,
        request: &CreateContainerRequest,
    ) -> Result<CreateContainerResponse, Status> {
        let answer = super::soon("the plugin's answer", self.call("CreateContainer", request)).await?;
        Ok(CreateContainerResponse::decode(answer.as_slice()).unwrap())
    }

    async fn call(&mut self, method: &str, request: &impl Message) -> Result<Vec<u8>, Status> {
        let call = Request {
            service: "nri.pkg.api.v1alpha1.Plugin".into(),
            method: method.into(),
            payload: request.encode_to_vec(),
        };
        write(&mut self.stream, 1, self.next, 1, &call.encode_to_vec()).await;
        let (connection, number, answer) = read(&mut self.stream).await;
        assert_eq!((connection, number), (1, self.next));
        self.next += 2;
        let answer = Response::decode(answer.as_slice()).unwrap();
        match answer.status {
            Some(status) if status.code != 0 => Err(status),
            _ => Ok(answer.payload),
        }
    }
}

/// Header and payload are frames of their own, as Go's buffered writer may write them.
async fn write(stream: &mut UnixStream, connection: u32, number: u32, kind: u8, payload: &[u8]) {
    let mut header = u32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
    header.extend(number.to_be_bytes());
    header.extend([kind, 0]);
    for part in [header.as_slice(), payload] {
        stream.write_all(&connection.to_be_bytes()).await.unwrap();
        stream.write_all(&u32::try_from(part.len()).unwrap().to_be_bytes()).await.unwrap();
        stream.write_all(part).await.unwrap();
    }
}

/// Connection, number and payload of the next message, which is in one frame.
async fn read(stream: &mut UnixStream) -> (u32, u32, Vec<u8>) {
    let connection = stream.read_u32().await.unwrap();
    let frame = stream.read_u32().await.unwrap();
    let length = stream.read_u32().await.unwrap();
    assert_eq!(frame, length + 10, "short messages are in one frame");
    let number = stream.read_u32().await.unwrap();
    let (_kind, _flags) = (stream.read_u8().await.unwrap(), stream.read_u8().await.unwrap());
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).await.unwrap();
    (connection, number, payload)
}
