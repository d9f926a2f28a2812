//! Connections that are few and do not last: whoever opens many to a daemon's pages takes no descriptors from the rest of
//! the daemon.
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

/// Connections at once; further ones wait in the kernel's queue.
pub const SEATS: usize = 32;
/// How long one may last. Scrapers that keep connections open connect anew.
pub const LIFE: Duration = Duration::from_secs(60);

/// A listener with [`SEATS`] seats, each for [`LIFE`]: what `axum::serve` takes in place of the bare one.
#[derive(Debug)]
pub struct Seats {
    listener: TcpListener,
    free: Arc<Semaphore>,
}

impl Seats {
    /// All seats are free.
    #[must_use]
    pub fn new(listener: TcpListener) -> Self {
        Self { listener, free: Arc::new(Semaphore::new(SEATS)) }
    }
}

impl Listener for Seats {
    type Io = Seated;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Seated, SocketAddr) {
        // It is never closed, so there always is one in the end.
        let seat = Arc::clone(&self.free).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (Seated { stream, end: Box::pin(sleep(LIFE)), _seat: seat }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection on its seat; reading and writing fail with `TimedOut` when its time is up.
#[derive(Debug)]
pub struct Seated {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _seat: Option<OwnedSemaphorePermit>,
}

impl Seated {
    fn stream(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Pin::new(&mut self.stream))
    }
}

impl AsyncRead for Seated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Seated {
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
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn one_more_than_there_are_seats_waits_until_one_is_free() {
        let mut seats = Seats::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = seats.local_addr().unwrap();
        let mut guests = Vec::new();
        for _ in 0..=SEATS {
            guests.push(TcpStream::connect(address).await.unwrap());
        }
        let mut seated = Vec::new();
        for _ in 0..SEATS {
            seated.push(seats.accept().await.0);
        }
        assert!(futures::poll!(std::pin::pin!(seats.accept())).is_pending());
        seated.pop();
        let (mut last, _) = seats.accept().await;
        guests.pop().unwrap().write_all(b"x").await.unwrap();
        assert_eq!(last.read_u8().await.unwrap(), b'x');
    }

    #[tokio::test]
    async fn a_connection_ends_when_its_time_is_up() {
        let mut seats = Seats::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let _guest = TcpStream::connect(seats.local_addr().unwrap()).await.unwrap();
        let (mut seated, _) = seats.accept().await;
        seated.end = Box::pin(sleep(Duration::ZERO));
        let why = seated.read_u8().await.unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::TimedOut);
    }
}
