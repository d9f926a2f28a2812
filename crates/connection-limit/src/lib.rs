//! A limit on the HTTP connections of a daemon: at most [`MAX_CONNECTIONS`] at once, each for at most [`MAX_DURATION`].
//!
//! The pages of the daemons (metrics, state, probes) are open to the cluster's network. Without a limit a peer that opens many
//! connections could use up the descriptors that the rest of the daemon needs. [`ConnectionLimit`] takes the place of the bare listener:
//!
//! ```no_run
//! # async fn run(router: axum::Router) -> std::io::Result<()> {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:9400").await?;
//! axum::serve(sluice_connection_limit::ConnectionLimit::new(listener), router).await
//! # }
//! ```
#![forbid(unsafe_code)]

use axum::serve::Listener;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// Connections that are served at once. Further ones wait in the kernel's accept queue.
pub const MAX_CONNECTIONS: usize = 32;
/// Longest duration of a connection. A scraper that keeps its connection open has to connect again.
pub const MAX_DURATION: Duration = Duration::from_secs(60);

/// A listener that limits the number and the duration of its connections.
#[derive(Debug)]
pub struct ConnectionLimit {
    listener: TcpListener,
    free: Arc<Semaphore>,
}

impl ConnectionLimit {
    /// Limits the connections of this listener; none is open yet.
    pub fn new(listener: TcpListener) -> Self {
        Self { listener, free: Arc::new(Semaphore::new(MAX_CONNECTIONS)) }
    }
}

impl Listener for ConnectionLimit {
    type Io = LimitedConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LimitedConnection, SocketAddr) {
        // The semaphore is never closed, so this always yields a permit in the end.
        let permit = Arc::clone(&self.free).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (LimitedConnection { stream, deadline: Box::pin(sleep(MAX_DURATION)), _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection with a deadline. After it, reading and writing fail with `TimedOut`.
#[derive(Debug)]
pub struct LimitedConnection {
    stream: TcpStream,
    deadline: Pin<Box<Sleep>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl LimitedConnection {
    fn stream(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Pin::new(&mut self.stream))
    }
}

impl AsyncRead for LimitedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for LimitedConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream(cx)?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
