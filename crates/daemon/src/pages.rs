//! The HTTP server of a daemon's pages (metrics, state, probes), with limits: [`serve`].
//!
//! The pages are open to the cluster's network. A peer that opens many connections, or sends half of a request, must neither use up the
//! descriptors that the rest of the daemon needs nor keep a probe from its answer. Therefore a new connection is always accepted, and an
//! older one is closed for it ([`MAX_OF_ADDRESS`], [`MAX_CONNECTIONS`]).
//!
//! ```no_run
//! # async fn run(router: axum::Router) -> std::io::Result<()> {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:9400").await?;
//! sluice_daemon::pages::serve(listener, router, std::future::pending()).await;
//! # Ok(())
//! # }
//! ```
mod open;

use axum::Router;
use axum::serve::Listener;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use open::OpenConnections;
use std::future::Future;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// Connections that are open at once. Above it the oldest connection of the address with the most connections is closed.
pub const MAX_CONNECTIONS: usize = 32;
/// Connections of one address that are open at once. Above it the oldest of them is closed.
pub const MAX_OF_ADDRESS: usize = 8;
/// Time in which a peer has to send the head of a request. It also bounds the pause between two requests on one connection, so a scraper
/// that keeps its connection open has to connect again.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest duration of a connection. It bounds the time that a peer takes to read its answers.
pub const MAX_DURATION: Duration = Duration::from_secs(60);

/// Serves the pages until `stop` is ready. Requests that have begun are answered.
pub async fn serve(mut listener: TcpListener, pages: Router, stop: impl Future<Output = ()>) {
    let (stopping, stopped) = watch::channel(());
    let mut open = OpenConnections::default();
    let mut stop = std::pin::pin!(stop);
    loop {
        // Errors of accept are logged by axum, and repeated after a second if descriptors have run out.
        let (stream, address) = tokio::select! {
            accepted = Listener::accept(&mut listener) => accepted,
            () = &mut stop => break,
        };
        let connection = serve_connection(stream, pages.clone(), stopped.clone());
        open.add(address.ip(), tokio::spawn(connection)).await;
    }
    drop((listener, stopped));
    let _ = stopping.send(());
    open.join().await;
}

async fn serve_connection(stream: TcpStream, pages: Router, mut stopped: watch::Receiver<()>) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(pages));
    let mut connection = std::pin::pin!(connection);
    let _ = timeout(MAX_DURATION, async {
        // A request that is wrong or does not end is the peer's affair: its connection is closed.
        tokio::select! {
            _ = &mut connection => return,
            _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    })
    .await;
}

#[cfg(test)]
mod tests;
