//! The two HTTP servers: the verbs for the kube-scheduler of this pod, and metrics and probes.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::extender::Extender;
use super::metrics::{self, Outcome};
use super::wire::{ExtenderArgs, ExtenderBindingArgs, ExtenderFilterResult, ExtenderPreemptionArgs};

/// A pod has at most 1.5 MiB (etcd's limit), and the names of 5,000 nodes have 1.3 MiB.
const BODY_LIMIT: usize = 16 << 20;

/// The verbs.
pub(crate) fn verbs(extender: Arc<Extender>) -> Router {
    Router::new()
        .route("/filter", post(filter))
        .route("/prioritize", post(prioritize))
        .route("/preempt", post(preempt))
        .route("/bind", post(bind))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(extender)
}

async fn filter(State(extender): State<Arc<Extender>>, body: Bytes) -> Response {
    let start = Instant::now();
    let (answer, outcome) = match read::<ExtenderArgs<'_>>(&body) {
        Ok(args) => extender.filter(&args).await,
        Err(error) => (ExtenderFilterResult { error, ..ExtenderFilterResult::default() }, Outcome::Error),
    };
    let response = json(&answer);
    extender.metrics.record_filter(outcome, start.elapsed().as_secs_f64());
    response
}

async fn prioritize(State(extender): State<Arc<Extender>>, body: Bytes) -> Response {
    match read::<ExtenderArgs<'_>>(&body) {
        Ok(args) => json(&extender.prioritize(&args)),
        Err(error) => (StatusCode::BAD_REQUEST, error).into_response(),
    }
}

async fn preempt(State(extender): State<Arc<Extender>>, body: Bytes) -> Response {
    let answer = read::<ExtenderPreemptionArgs>(&body).map_err(|error| (Outcome::Error, error));
    let answer = answer.and_then(|args| extender.preempt(args));
    match answer {
        Ok(answer) => {
            let is_empty = answer.node_name_to_meta_victims.is_empty();
            extender.metrics.record_preemption(if is_empty { Outcome::Refused } else { Outcome::Proposed });
            json(&answer)
        }
        // The answer has no field for an error. kube-scheduler evicts nothing then.
        Err((outcome, error)) => {
            extender.metrics.record_preemption(outcome);
            let status = match outcome {
                Outcome::Inactive => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::BAD_REQUEST,
            };
            (status, error).into_response()
        }
    }
}

async fn bind(State(extender): State<Arc<Extender>>, body: Bytes) -> Response {
    let start = Instant::now();
    let metrics = extender.metrics.clone();
    let (answer, outcome) = match read::<ExtenderBindingArgs>(&body) {
        Ok(args) => extender.bind(args).await,
        Err(error) => (super::wire::ExtenderBindingResult { error }, Outcome::Error),
    };
    metrics.record_bind(outcome, start.elapsed().as_secs_f64());
    json(&answer)
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("not a request of a kube-scheduler: {error}"))
}

fn json(answer: &impl Serialize) -> Response {
    match serde_json::to_vec(answer) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// State of the second server.
#[derive(Clone)]
struct Page {
    extender: Arc<Extender>,
    most_gpus: usize,
}

/// Metrics and probes.
pub(crate) fn page(extender: Arc<Extender>, most_gpus: usize) -> Router {
    Router::new()
        .route("/metrics", get(serve_metrics))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .with_state(Page { extender, most_gpus })
}

async fn serve_metrics(State(page): State<Page>) -> Response {
    match metrics::page(&page.extender, page.most_gpus) {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Ready once nodes and pods were listed, also on standby: a standby replica can take over.
async fn readyz(State(page): State<Page>) -> Response {
    if page.extender.leadership.has_listed_once() {
        (StatusCode::OK, format!("{:?}\n", page.extender.leadership.state()).to_lowercase()).into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "nodes and pods have not been listed yet\n").into_response()
    }
}
