//! GET /metrics and GET /healthz, on a thread of their own. /healthz may have a listener of its own, so that scrapes and probes do not
//! share the limit of connections.

use crate::error::Result;
use crate::message::{Message, Remote};
use crate::metrics::Exposition;
use crate::side_thread::SideThread;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::future::pending;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};

/// What a request needs. The lock is between HTTP requests only; the event loop never takes it.
#[derive(Clone)]
struct HttpState {
    remote: Remote,
    exposition: SharedExposition,
}

/// The series, for the HTTP server and for [`crate::Handle::exposition`].
pub(crate) type SharedExposition = Arc<Mutex<Exposition>>;

/// The open sockets of the two servers.
#[derive(Debug, Default)]
pub(crate) struct HttpListeners {
    /// For /metrics and /healthz.
    pub(crate) metrics: Option<TcpListener>,
    /// For /healthz alone.
    pub(crate) health: Option<TcpListener>,
}

/// Serves on open sockets.
pub(crate) fn start(
    listeners: HttpListeners,
    remote: Remote,
    exposition: SharedExposition,
) -> Result<SideThread> {
    let state = HttpState { remote, exposition };
    let health = Router::new().route("/healthz", get(healthz)).with_state(state.clone());
    let pages = health.clone().route("/metrics", get(metrics).with_state(state));
    SideThread::serve("http", async move {
        tokio::join!(serve(listeners.metrics, pages), serve(listeners.health, health));
    })
}

async fn serve(listener: Option<TcpListener>, pages: Router) {
    match listener.map(tokio::net::TcpListener::from_std) {
        Some(Ok(listener)) => sluice_daemon::pages::serve(listener, pages, pending()).await,
        Some(Err(error)) => tracing::error!(%error, "metrics and health cannot be served"),
        None => {}
    }
}

/// The answer when the event loop does not answer.
const HUNG: (StatusCode, &str) = (StatusCode::SERVICE_UNAVAILABLE, "the event loop does not answer\n");

async fn metrics(State(state): State<HttpState>) -> Response {
    if state.remote.ask(Message::Refresh).await.is_none() {
        return HUNG.into_response();
    }
    let exposition = state.exposition.lock().unwrap_or_else(PoisonError::into_inner);
    match exposition.text() {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn healthz(State(state): State<HttpState>) -> Response {
    if state.remote.ask(Message::Refresh).await.is_some() {
        "ok\n".into_response()
    } else {
        HUNG.into_response()
    }
}
