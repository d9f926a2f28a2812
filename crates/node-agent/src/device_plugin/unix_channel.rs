//! gRPC over a unix socket.

use hyper_util::rt::TokioIo;
use std::error::Error as _;
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Error, Uri};

/// Go's gRPC servers require an authority. Kubelet's own clients send this one.
const AUTHORITY: &str = "http://localhost";

/// Connects at once, so that an error shows here and not in the first call.
pub(super) async fn connect(socket: &Path) -> Result<Channel, String> {
    let socket: PathBuf = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static(AUTHORITY).connect_with_connector(connector).await.map_err(|why| causes(&why))
}

/// The transport's own text is only "transport error"; its causes say what happened.
fn causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(why) = cause {
        text = format!("{text}: {why}");
        cause = why.source();
    }
    text
}
