//! The trace socket, on a thread of its own, which asks the event loop for events every 20 ms. Only processes of the manager's own user are served.

use crate::error::Result;
use crate::listen::{UnixSocket, peers_of_own_user};
use crate::message::{Message, Remote};
use crate::side_thread::SideThread;
use crate::trace::TraceBatch;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;
use tracing::{error, warn};

/// Time between two questions for events.
const READ_EVERY: Duration = Duration::from_millis(20);

/// A reader that takes nothing for so long is disconnected, so that the event loop stops to record for it.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// Serves on an open socket.
pub(crate) fn start(socket: UnixSocket, remote: Remote) -> Result<SideThread> {
    SideThread::serve("trace", serve(socket, remote))
}

async fn serve(socket: UnixSocket, remote: Remote) {
    let incoming = socket.listener.try_clone().and_then(|listener| peers_of_own_user(listener, "trace"));
    let mut incoming = match incoming {
        Ok(incoming) => incoming,
        Err(error) => return error!(%error, "trace socket cannot be served"),
    };
    while let Some(stream) = incoming.next().await {
        match stream {
            Ok(stream) => drop(tokio::spawn(serve_reader(stream, remote.clone()))),
            Err(error) => {
                warn!(%error, "reader of the trace cannot be accepted");
                sleep(READ_EVERY).await;
            }
        }
    }
}

/// Counts as a reader until it is dropped.
struct Reader(Remote);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.send(Message::TraceLeft);
    }
}

/// Sends events until the reader closes the connection or does not read any more.
async fn serve_reader(stream: UnixStream, remote: Remote) {
    let Some(Some(mut batch)) = remote.ask(Message::TraceJoined).await else { return };
    let reader = Reader(remote);
    let ((mut closed, mut lines), mut byte) = (stream.into_split(), [0]);
    loop {
        match timeout(STALLED_AFTER, lines.write_all(&as_lines(&batch))).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => return warn!("reader of the trace takes no events: it is disconnected"),
        }
        if !batch.has_more {
            // A reader sends nothing: what can be read is the end of its connection.
            tokio::select! {
                _ = closed.read(&mut byte) => return,
                () = sleep(READ_EVERY) => {}
            }
        }
        let next = batch.next;
        match reader.0.ask(|answer| Message::ReadTrace(next, answer)).await {
            Some(Some(following)) => batch = following,
            _ => return,
        }
    }
}

fn as_lines(batch: &TraceBatch) -> Vec<u8> {
    let mut lines = Vec::new();
    for event in &batch.events {
        // Numbers and strings can always be written to memory.
        let _ = serde_json::to_writer(&mut lines, event);
        lines.push(b'\n');
    }
    lines
}
