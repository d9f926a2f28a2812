//! One connection to the runtime: the registration, then the runtime's calls, one after the other as the runtime makes them.

use std::io;
use std::time::Duration;

use prost::Message as _;
use sluice_proto::nri::{
    ConfigureRequest, ConfigureResponse, Container, ContainerAdjustment, CreateContainerRequest,
    CreateContainerResponse, Empty, PodSandbox, RegisterPluginRequest, SynchronizeRequest,
    SynchronizeResponse,
};
use sluice_proto::ttrpc::{Request, Response, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::wire::{Connection, Decoder, Kind, Message, WireError};

const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";
/// Stream of the only call that the plugin makes. A client's streams are odd.
const REGISTRATION: u32 = 1;
/// The bit of the event CREATE_CONTAINER (4).
const CREATE_CONTAINER: i32 = 1 << 3;
/// Codes of gRPC.
const UNKNOWN: i32 = 2;
const INVALID_ARGUMENT: i32 = 3;
const UNIMPLEMENTED: i32 = 12;
/// The runtime's default, if it names none.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The name and version of a container runtime, as it reports them.
pub(super) type RuntimeName = String;

/// What a plugin decides.
pub(super) trait Plugin: Send {
    /// Name of the plugin, unique on the node.
    fn name(&self) -> &'static str;
    /// Two digits: the runtime calls plugins in ascending order.
    fn index(&self) -> &'static str;
    /// The containers that exist when the plugin is registered. From now on every new container is announced.
    fn registered(&mut self, runtime: RuntimeName, pods: &[PodSandbox], containers: &[Container]);
    /// What a new container gets. The answer must come `within` this time, else the runtime creates the container without it.
    ///
    /// An error refuses the container: kubelet shows it on the pod and tries again.
    fn adjust(
        &mut self,
        pod: &PodSandbox,
        container: &Container,
        within: Duration,
    ) -> impl Future<Output = Result<ContainerAdjustment, String>> + Send;
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("the runtime closed the connection")]
    Closed,
    #[error("the runtime sent {0}")]
    Wire(#[from] WireError),
    #[error("the runtime refused the registration: {0}")]
    Refused(String),
    #[error("the runtime's {method} cannot be read: {why}")]
    Call { method: &'static str, why: prost::DecodeError },
}

/// State of one connection.
#[derive(Debug, Default)]
struct Session {
    runtime: RuntimeName,
    request_timeout: Duration,
    pods: Vec<PodSandbox>,
    containers: Vec<Container>,
    is_registered: bool,
}

/// Registers and answers until the connection ends. Returns why it ended, and whether the plugin was registered.
pub(super) async fn serve(mut stream: UnixStream, plugin: &mut impl Plugin) -> (SessionError, bool) {
    let mut session = Session { request_timeout: REQUEST_TIMEOUT, ..Session::default() };
    match answer_calls(&mut stream, &mut session, plugin).await {
        Ok(never) => match never {},
        Err(why) => (why, session.is_registered),
    }
}

async fn answer_calls(
    stream: &mut UnixStream,
    session: &mut Session,
    plugin: &mut impl Plugin,
) -> Result<std::convert::Infallible, SessionError> {
    let request =
        RegisterPluginRequest { plugin_name: plugin.name().into(), plugin_idx: plugin.index().into() };
    let request = Request {
        service: RUNTIME_SERVICE.into(),
        method: "RegisterPlugin".into(),
        payload: request.encode_to_vec(),
    };
    send(stream, Connection::Runtime, REGISTRATION, Kind::Request, request.encode_to_vec()).await?;
    let mut decoder = Decoder::default();
    let mut bytes = vec![0; 64 << 10];
    loop {
        let length = stream.read(&mut bytes).await?;
        if length == 0 {
            return Err(SessionError::Closed);
        }
        for message in decoder.push(bytes.get(..length).unwrap_or_default())? {
            match (message.connection, message.kind) {
                (Connection::Plugin, Kind::Request) => {
                    let response = session.answer(&message, plugin).await;
                    let payload = response.encode_to_vec();
                    send(stream, Connection::Plugin, message.stream, Kind::Response, payload).await?;
                }
                (Connection::Runtime, Kind::Response) => check_registration(&message)?,
                // Neither side sends these.
                (Connection::Plugin, Kind::Response) | (Connection::Runtime, Kind::Request) => {}
            }
        }
    }
}

async fn send(
    stream: &mut UnixStream,
    connection: Connection,
    number: u32,
    kind: Kind,
    payload: Vec<u8>,
) -> io::Result<()> {
    stream.write_all(&Message { connection, stream: number, kind, payload }.encode()).await
}

fn check_registration(message: &Message) -> Result<(), SessionError> {
    let decoded = Response::decode(message.payload.as_slice());
    let response = decoded.map_err(|why| SessionError::Call { method: "answer to RegisterPlugin", why })?;
    match response.status {
        Some(status) if status.code != 0 => Err(SessionError::Refused(status.message)),
        _ => Ok(()),
    }
}

impl Session {
    async fn answer(&mut self, message: &Message, plugin: &mut impl Plugin) -> Response {
        let outcome = match Request::decode(message.payload.as_slice()) {
            Ok(call) => self.call(&call.method, &call.payload, plugin).await,
            Err(why) => Err((INVALID_ARGUMENT, format!("the request cannot be read: {why}"))),
        };
        match outcome {
            Ok(payload) => Response { status: None, payload },
            Err((code, message)) => Response { status: Some(Status { code, message }), payload: Vec::new() },
        }
    }

    async fn call(
        &mut self,
        method: &str,
        payload: &[u8],
        plugin: &mut impl Plugin,
    ) -> Result<Vec<u8>, (i32, String)> {
        let unreadable =
            |why: prost::DecodeError| (INVALID_ARGUMENT, format!("{method} cannot be read: {why}"));
        match method {
            "Configure" => {
                let request = ConfigureRequest::decode(payload).map_err(unreadable)?;
                self.runtime = format!("{} {}", request.runtime_name, request.runtime_version);
                if let Some(milliseconds) = u64::try_from(request.request_timeout).ok().filter(|ms| *ms > 0) {
                    self.request_timeout = Duration::from_millis(milliseconds);
                }
                Ok(ConfigureResponse { events: CREATE_CONTAINER }.encode_to_vec())
            }
            "Synchronize" => {
                let request = SynchronizeRequest::decode(payload).map_err(unreadable)?;
                self.pods.extend(request.pods);
                self.containers.extend(request.containers);
                if !request.more {
                    let (pods, containers) =
                        (std::mem::take(&mut self.pods), std::mem::take(&mut self.containers));
                    plugin.registered(self.runtime.clone(), &pods, &containers);
                    self.is_registered = true;
                }
                Ok(SynchronizeResponse { more: request.more }.encode_to_vec())
            }
            "CreateContainer" => {
                let request = CreateContainerRequest::decode(payload).map_err(unreadable)?;
                let (pod, container) =
                    (request.pod.unwrap_or_default(), request.container.unwrap_or_default());
                // Half, because the answer has to arrive in time also on a busy node.
                let within = self.request_timeout / 2;
                let adjusted = plugin.adjust(&pod, &container, within).await;
                let adjust = Some(adjusted.map_err(|why| (UNKNOWN, why))?);
                Ok(CreateContainerResponse { adjust }.encode_to_vec())
            }
            "StateChange" | "Shutdown" => Ok(Empty {}.encode_to_vec()),
            other => Err((UNIMPLEMENTED, format!("{other} is not served"))),
        }
    }
}
