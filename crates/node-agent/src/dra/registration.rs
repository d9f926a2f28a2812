//! The socket in kubelet's folder `plugins_registry`, by which kubelet finds the driver.
//!
//! Kubelet's client sends the socket's path, percent-encoded, as the `:authority` of its requests (`dial` in
//! pkg/kubelet/pluginmanager/operationexecutor). The `h2` crate below tonic refuses such a request as malformed, so this module answers by
//! itself: the few frames of HTTP/2 that two small calls need. It reads no headers, because the bodies tell the calls apart: the request of
//! `GetInfo` is empty, and a registration status never is (it is true, or has an error).

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use prost::Message;
use sluice_proto::pluginregistration::{PluginInfo, RegistrationStatus};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::prepared_claims::DRIVER;

const PLUGIN_TYPE: &str = "DRAPlugin";
/// The only service that the driver has.
const SERVICE: &str = "v1.DRAPlugin";

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The longest frame that a client may send to a server with default settings.
const LONGEST_FRAME: usize = 1 << 14;
/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
/// Flags of frames.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
/// `:status: 200` by its index, `content-type: application/grpc` with an indexed name (HPACK).
const ANSWER_HEADERS: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// `grpc-status: 0`.
const TRAILERS: &[u8] = b"\x00\x0bgrpc-status\x010";

/// What kubelet learns about the driver.
#[derive(Debug)]
pub(super) struct Registrar {
    /// The driver's own socket.
    pub(super) endpoint: PathBuf,
    pub(super) registered: watch::Sender<bool>,
}

impl Registrar {
    /// Answers the calls of one connection until it ends.
    ///
    /// # Errors
    /// The connection fails, or its other end does not send HTTP/2 as kubelet does.
    pub(super) async fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut preface = [0; PREFACE.len()];
        stream.read_exact(&mut preface).await?;
        if preface != *PREFACE {
            return Err(unexpected("no HTTP/2 preface"));
        }
        write_frame(&mut stream, SETTINGS, 0, 0, &[]).await?;
        let mut bodies: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        loop {
            let Some((kind, flags, number, payload)) = read_frame(&mut stream).await? else { return Ok(()) };
            match kind {
                HEADERS => _ = bodies.insert(number, Vec::new()),
                DATA if flags & PADDED != 0 => return Err(unexpected("a padded frame")),
                DATA => {
                    let body = bodies.entry(number).or_default();
                    body.extend(payload);
                    if body.len() > LONGEST_FRAME {
                        return Err(unexpected("a longer body than any of kubelet's"));
                    }
                    if flags & END_STREAM != 0 {
                        let body = bodies.remove(&number).unwrap_or_default();
                        write_answer(&mut stream, number, &self.answer(&body)?).await?;
                    }
                }
                RESET => _ = bodies.remove(&number),
                SETTINGS if flags & ACK == 0 => write_frame(&mut stream, SETTINGS, ACK, 0, &[]).await?,
                PING if flags & ACK == 0 => write_frame(&mut stream, PING, ACK, 0, &payload).await?,
                GO_AWAY => return Ok(()),
                _ => {}
            }
        }
    }

    /// The answer to a request. Both are messages of gRPC.
    fn answer(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        // A byte for the compression and four for the length.
        let message = match request.split_at_checked(5) {
            Some(([0, ..], message)) => message,
            Some(_) | None => return Err(unexpected("no uncompressed message of gRPC")),
        };
        if message.is_empty() {
            let info = PluginInfo {
                r#type: PLUGIN_TYPE.to_owned(),
                name: DRIVER.to_owned(),
                endpoint: self.endpoint.to_string_lossy().into_owned(),
                supported_versions: vec![SERVICE.to_owned()],
            };
            return Ok(info.encode_to_vec());
        }
        let RegistrationStatus { plugin_registered, error } =
            RegistrationStatus::decode(message).map_err(|why| unexpected(&why.to_string()))?;
        if plugin_registered {
            info!(driver = DRIVER, "registered with kubelet");
        } else {
            warn!(driver = DRIVER, error, "kubelet refuses the driver");
        }
        self.registered.send_replace(plugin_registered);
        Ok(Vec::new())
    }
}

fn unexpected(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("kubelet sent {what}"))
}

/// Type, flags, stream and payload; `None` at the end of the connection.
async fn read_frame(stream: &mut UnixStream) -> io::Result<Option<(u8, u8, u32, Vec<u8>)>> {
    let mut head = [0; 9];
    match stream.read_exact(&mut head).await {
        Ok(_) => {}
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(why) => return Err(why),
    }
    let [high, middle, low, kind, flags, number @ ..] = head;
    let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
    if length > LONGEST_FRAME {
        return Err(unexpected("a frame that is too long"));
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await?;
    Ok(Some((kind, flags, u32::from_be_bytes(number) & 0x7fff_ffff, payload)))
}

async fn write_answer(stream: &mut UnixStream, number: u32, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    let mut body = vec![0];
    body.extend(length.to_be_bytes());
    body.extend(message);
    write_frame(stream, HEADERS, END_HEADERS, number, ANSWER_HEADERS).await?;
    write_frame(stream, DATA, 0, number, &body).await?;
    write_frame(stream, HEADERS, END_HEADERS | END_STREAM, number, TRAILERS).await
}

async fn write_frame(
    stream: &mut UnixStream,
    kind: u8,
    flags: u8,
    number: u32,
    payload: &[u8],
) -> io::Result<()> {
    let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
    let mut frame: Vec<u8> = length.to_be_bytes().into_iter().skip(1).collect();
    frame.extend([kind, flags]);
    frame.extend(number.to_be_bytes());
    frame.extend(payload);
    stream.write_all(&frame).await
}
