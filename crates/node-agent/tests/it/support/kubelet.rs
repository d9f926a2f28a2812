//! A fake kubelet for device plugins, modelled on pkg/kubelet/cm/devicemanager/plugin/v1beta1 of 1.34. It removes all
//! sockets at its start, creates its own, and connects back to a plugin before it answers Register.

use hyper_util::rt::TokioIo;
use sluice_proto::deviceplugin::device_plugin_client::DevicePluginClient;
use sluice_proto::deviceplugin::registration_server::{Registration, RegistrationServer};
use sluice_proto::deviceplugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, Device, Empty, ListAndWatchResponse,
    RegisterRequest,
};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tonic::{Request, Response, Status, Streaming};

pub struct Kubelet {
    server: JoinHandle<()>,
    plugins: mpsc::UnboundedReceiver<Plugin>,
}

/// A plugin that has registered, with kubelet's connection to it.
pub struct Plugin {
    pub request: RegisterRequest,
    pub client: DevicePluginClient<Channel>,
}

struct Registry {
    folder: PathBuf,
    refusals: Arc<AtomicUsize>,
    plugins: mpsc::UnboundedSender<Plugin>,
}

impl Kubelet {
    pub fn start(folder: &Path) -> Self {
        Self::start_refusing(folder, 0)
    }

    /// Refuses this many registrations before it accepts one.
    pub fn start_refusing(folder: &Path, refusals: usize) -> Self {
        for item in fs::read_dir(folder).unwrap() {
            let item = item.unwrap();
            if item.file_type().unwrap().is_socket() {
                fs::remove_file(item.path()).unwrap();
            }
        }
        Self::serve(folder, refusals)
    }

    /// Unlike any known kubelet: the plugins' sockets stay.
    pub fn start_beside_plugins(folder: &Path) -> Self {
        fs::remove_file(folder.join("kubelet.sock")).unwrap();
        Self::serve(folder, 0)
    }

    fn serve(folder: &Path, refusals: usize) -> Self {
        let listener = UnixListener::bind(folder.join("kubelet.sock")).unwrap();
        let (sender, plugins) = mpsc::unbounded_channel();
        let refusals = Arc::new(AtomicUsize::new(refusals));
        let registry =
            RegistrationServer::new(Registry { folder: folder.to_owned(), refusals, plugins: sender });
        let server = async move {
            let connections = UnixListenerStream::new(listener);
            Server::builder().serve_with_incoming(registry, connections).await.unwrap();
        };
        Self { server: tokio::spawn(server), plugins }
    }

    /// The next plugin that registers.
    pub async fn next_plugin(&mut self) -> Plugin {
        super::soon("a registration", self.plugins.recv()).await.unwrap()
    }

    /// Whether a plugin has registered that `next_plugin` has not returned.
    pub fn has_plugin(&self) -> bool {
        !self.plugins.is_empty()
    }

    /// Ends like a killed process: the socket's file remains.
    pub async fn kill(self) {
        self.server.abort();
        let _cancelled = self.server.await;
    }
}

impl Plugin {
    pub async fn listen(&mut self) -> SlotStream {
        SlotStream(self.client.list_and_watch(Empty {}).await.unwrap().into_inner())
    }

    /// Allocates for one container per list of slots.
    pub async fn allocate(&mut self, containers: &[&[&str]]) -> Result<AllocateResponse, Status> {
        let container = |slots: &&[&str]| ContainerAllocateRequest {
            devices_ids: slots.iter().map(|slot| (*slot).to_owned()).collect(),
        };
        let request = AllocateRequest { container_requests: containers.iter().map(container).collect() };
        Ok(self.client.allocate(request).await?.into_inner())
    }
}

/// An open ListAndWatch.
pub struct SlotStream(Streaming<ListAndWatchResponse>);

impl SlotStream {
    /// The next list: ids and health. `None` when the stream ends orderly.
    pub async fn next(&mut self) -> Option<Vec<(String, String)>> {
        let list = super::soon("a list of slots", self.0.message()).await.unwrap()?;
        Some(list.devices.into_iter().map(|Device { id, health, .. }| (id, health)).collect())
    }

    /// Number of slots in the next list, and of healthy ones.
    pub async fn next_count(&mut self) -> (usize, usize) {
        let list = self.next().await.expect("the stream is open");
        (list.len(), list.iter().filter(|(_, health)| health == "Healthy").count())
    }
}

#[tonic::async_trait]
impl Registration for Registry {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        let more = |left: usize| left.checked_sub(1);
        if self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
            return Err(Status::unknown("not now"));
        }
        let channel = connect(self.folder.join(&request.endpoint)).await;
        let channel = channel.map_err(|why| Status::unknown(format!("failed to dial the plugin: {why}")))?;
        let plugin = Plugin { request, client: DevicePluginClient::new(channel) };
        self.plugins.send(plugin).map_err(|_| Status::unknown("the test is over"))?;
        Ok(Response::new(Empty {}))
    }
}

pub async fn connect(socket: PathBuf) -> Result<Channel, tonic::transport::Error> {
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await
}
