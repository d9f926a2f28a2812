//! The HTTP server of the agent.

use std::sync::Arc;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use sluice_seats::Seats;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::state::State;
use super::{Facts, Readiness, Sources, families};

/// What the server shows.
#[derive(Debug, Clone)]
pub struct Pages {
    /// Where facts come from.
    pub sources: Sources,
    /// What is missing.
    pub readiness: Readiness,
    /// Series that other parts of the agent keep themselves.
    pub registry: Registry,
}

/// What a request needs.
struct Desk {
    pages: Pages,
    /// Managers are asked for one answer at a time, however many want one.
    turn: Mutex<()>,
}

impl Desk {
    async fn gather(&self) -> Facts {
        let _turn = self.turn.lock().await;
        self.pages.sources.gather().await
    }
}

/// Serves until `stop`.
///
/// # Errors
/// If the listener fails.
pub async fn serve(listener: TcpListener, pages: Pages, stop: CancellationToken) -> std::io::Result<()> {
    let router = router(pages);
    axum::serve(Seats::new(listener), router)
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
}

/// All pages.
pub fn router(pages: Pages) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/state", get(state))
        // A task of the agent that ends takes the process along, so answering is enough.
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(Arc::new(Desk { pages, turn: Mutex::new(()) }))
}

async fn metrics(Shared(desk): Shared<Arc<Desk>>) -> Response {
    let facts = desk.gather().await;
    let text = || {
        let registry = Registry::new();
        families::register(&facts, &registry)?;
        let mut all = registry.gather();
        all.extend(desk.pages.registry.gather());
        TextEncoder::new().encode_to_string(&all)
    };
    match text() {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")).into_response(),
    }
}

async fn state(Shared(desk): Shared<Arc<Desk>>) -> Response {
    axum::Json(State::from(&desk.gather().await)).into_response()
}

async fn readyz(Shared(desk): Shared<Arc<Desk>>) -> Response {
    let missing = desk.pages.readiness.missing();
    if missing.is_empty() {
        return "ok\n".into_response();
    }
    let lines: String = missing.iter().map(|(_, words)| format!("{words}\n")).collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}
