//! GET /metrics and GET /healthz, on a thread of their own.

use crate::error::{Attempt, Error, Result};
use crate::message::{Message, Remote};
use crate::metrics::Exposition;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sluice_connection_limit::ConnectionLimit;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long the event loop may take to answer before it counts as hung.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// What a request needs. The lock is between HTTP requests only; the event loop never takes it.
#[derive(Clone)]
struct Shared {
    remote: Remote,
    exposition: Arc<Mutex<Exposition>>,
}

/// The HTTP thread; it ends when this is told to stop.
#[derive(Debug)]
pub(crate) struct Server {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Serves on an open socket.
    pub(crate) fn start(listener: TcpListener, remote: Remote, exposition: Exposition) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().attempt("tokio runtime")?;
        let (stop, stopped) = oneshot::channel::<()>();
        let shared = Shared { remote, exposition: Arc::new(Mutex::new(exposition)) };
        let serve = async move {
            let listener = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => ConnectionLimit::new(listener),
                Err(error) => return tracing::error!(%error, "metrics cannot be served"),
            };
            let app = Router::new()
                .route("/metrics", get(metrics))
                .route("/healthz", get(healthz))
                .with_state(shared);
            tokio::select! {
                outcome = async { axum::serve(listener, app).await } => {
                    if let Err(error) = outcome {
                        tracing::error!(%error, "metrics are no longer served");
                    }
                }
                _ = stopped => {}
            }
        };
        let thread = std::thread::Builder::new()
            .name("sluice-http".into())
            .spawn(move || runtime.block_on(serve))
            .attempt("start the HTTP thread")?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread.
    pub(crate) fn stop(self) -> Result<()> {
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| Error::Panicked("HTTP"))
    }
}

/// Asks the event loop to update the gauges; `false` if it does not answer.
async fn refresh(remote: &Remote) -> bool {
    let (done, answer) = oneshot::channel();
    remote.send(Message::Refresh(done));
    matches!(tokio::time::timeout(ANSWER_TIMEOUT, answer).await, Ok(Ok(())))
}

async fn metrics(State(shared): State<Shared>) -> Response {
    if !refresh(&shared.remote).await {
        return (StatusCode::SERVICE_UNAVAILABLE, "the event loop does not answer\n").into_response();
    }
    let exposition = shared.exposition.lock().unwrap_or_else(PoisonError::into_inner);
    match exposition.text() {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn healthz(State(shared): State<Shared>) -> Response {
    if refresh(&shared.remote).await {
        (StatusCode::OK, "ok\n").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the event loop does not answer\n").into_response()
    }
}
