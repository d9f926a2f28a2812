//! The HTTP server: `/mutate` and `/validate`.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tracing::{info, warn};

use super::admission;
use super::plan::Settings;
use super::review::{Decision, Request};
use super::status::Status;

/// Two pods of the largest size that an API server accepts, with a margin.
const MAX_BODY: usize = 8 << 20;

/// State that the handlers share.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) settings: Settings,
    pub(super) status: Arc<Status>,
}

type Judge = fn(&Request, &Settings) -> Decision;

pub(super) fn router(admission: Arc<Admission>) -> Router {
    let mutate = |State(state): State<Arc<Admission>>, body: Bytes| async move {
        state.answer("mutate", admission::mutate, &body)
    };
    let validate = |State(state): State<Arc<Admission>>, body: Bytes| async move {
        state.answer("validate", admission::validate, &body)
    };
    Router::new()
        .route("/mutate", post(mutate))
        .route("/validate", post(validate))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(admission)
}

impl Admission {
    fn answer(&self, webhook: &str, judge: Judge, body: &[u8]) -> Response {
        let start = Instant::now();
        let (outcome, response) = match Request::parse(body) {
            Ok(request) => {
                let decision = judge(&request, &self.settings);
                (outcome(webhook, &request, &decision), answer(&request.uid, &decision))
            }
            Err(message) => {
                warn!("{webhook}: {message}");
                ("unreadable", (StatusCode::BAD_REQUEST, message).into_response())
            }
        };
        self.status.record_answer(webhook, outcome, start.elapsed());
        response
    }
}

fn outcome(webhook: &str, request: &Request, decision: &Decision) -> &'static str {
    match decision {
        Decision::NotOurs => "not_ours",
        Decision::Admitted { .. } => "admitted",
        Decision::Refused(message) => {
            info!("{webhook}: {} refused: {message}", request.pod());
            "refused"
        }
    }
}

fn answer(uid: &str, decision: &Decision) -> Response {
    match decision.answer(uid).and_then(|answer| serde_json::to_vec(&answer)) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
