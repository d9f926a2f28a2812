//! GET /metrics and GET /healthz, on a thread of their own.

use crate::error::Result;
use crate::message::{Message, Remote};
use crate::metrics::Exposition;
use crate::side_thread::SideThread;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sluice_connection_limit::ConnectionLimit;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};

/// What a request needs. The lock is between HTTP requests only; the event loop never takes it.
#[derive(Clone)]
struct HttpState {
    remote: Remote,
    exposition: Arc<Mutex<Exposition>>,
}

/// Serves on an open socket.
pub(crate) fn start(listener: TcpListener, remote: Remote, exposition: Exposition) -> Result<SideThread> {
    let state = HttpState { remote, exposition: Arc::new(Mutex::new(exposition)) };
    SideThread::serve("http", async move {
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => ConnectionLimit::new(listener),
            Err(error) => return tracing::error!(%error, "metrics cannot be served"),
        };
        let app =
            Router::new().route("/metrics", get(metrics)).route("/healthz", get(healthz)).with_state(state);
        if let Err(error) = axum::serve(listener, app).await {
            tracing::error!(%error, "metrics are no longer served");
        }
    })
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
