//! The HTTP server of the agent.

use std::sync::Arc;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{Facts, Sources, families, state};

/// What the server shows.
#[derive(Debug, Clone)]
pub struct Pages {
    /// Where facts and readiness come from.
    pub sources: Sources,
    /// Series that other parts of the agent maintain.
    pub registry: Registry,
}

struct PageState {
    pages: Pages,
    /// The managers are asked for one scrape at a time, however many arrive.
    gather_lock: Mutex<()>,
}

impl PageState {
    async fn gather(&self) -> Facts {
        let _guard = self.gather_lock.lock().await;
        self.pages.sources.gather().await
    }
}

/// The agent's HTTP listeners. Each has limits of its own, so that requests to the pages do not delay a probe.
#[derive(Debug)]
pub struct Listeners {
    /// Serves /metrics, /livez and /readyz.
    pub pages: TcpListener,
    /// Serves /livez and /readyz alone, for kubelet.
    pub health: TcpListener,
    /// Serves /state alone, at a loopback address: a user who reads it has the right to forward ports to this pod or to execute programs in it,
    /// which the API server checks.
    pub state: TcpListener,
}

/// Serves until `stop`.
pub async fn serve(listeners: Listeners, pages: Pages, stop: CancellationToken) {
    let state = Arc::new(PageState { pages, gather_lock: Mutex::new(()) });
    let health = health_router(Arc::clone(&state));
    let pages =
        Router::new().route("/metrics", get(metrics)).with_state(Arc::clone(&state)).merge(health.clone());
    let state_page = Router::new().route("/state", get(state_page)).with_state(state);
    tokio::join!(
        sluice_daemon::pages::serve(listeners.pages, pages, stop.cancelled()),
        sluice_daemon::pages::serve(listeners.health, health, stop.cancelled()),
        sluice_daemon::pages::serve(listeners.state, state_page, stop.cancelled()),
    );
}

/// The probes.
fn health_router(state: Arc<PageState>) -> Router {
    Router::new()
        // The process ends when one of the agent's tasks ends, so any answer proves that it works.
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(state)
}

async fn metrics(Shared(state): Shared<Arc<PageState>>) -> Response {
    let facts = state.gather().await;
    let text = || {
        let mut all = families::gather(&facts)?;
        all.extend(state.pages.registry.gather());
        TextEncoder::new().encode_to_string(&all)
    };
    match text() {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")).into_response(),
    }
}

async fn state_page(Shared(page): Shared<Arc<PageState>>) -> Response {
    axum::Json(state::page(&page.gather().await)).into_response()
}

async fn readyz(Shared(state): Shared<Arc<PageState>>) -> Response {
    let missing = state.pages.sources.missing();
    if missing.is_empty() {
        return "ok\n".into_response();
    }
    let lines: String = missing.iter().map(|text| format!("{text}\n")).collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}
