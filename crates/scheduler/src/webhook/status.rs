//! The webhook's probes and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use prometheus::{
    Gauge, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry, TextEncoder,
};

/// Counters and readiness.
#[derive(Debug)]
pub(super) struct Status {
    registry: Registry,
    admissions: IntCounterVec,
    durations: HistogramVec,
    expiry: Gauge,
    failures: IntCounter,
    certified: AtomicBool,
    shutting_down: AtomicBool,
}

impl Status {
    pub(super) fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let admissions = IntCounterVec::new(
            Opts::new("sluice_webhook_admissions_total", "Admission requests by webhook and outcome"),
            &["webhook", "outcome"],
        )?;
        let durations = HistogramVec::new(
            HistogramOpts::new(
                "sluice_webhook_admission_duration_seconds",
                "Time to answer an admission request, seconds",
            )
            .buckets(vec![0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0]),
            &["webhook"],
        )?;
        let expiry = Gauge::new(
            "sluice_webhook_certificate_expiry_timestamp_seconds",
            "End of the served certificate, seconds since 1970",
        )?;
        let failures = IntCounter::new(
            "sluice_webhook_certificate_failures_total",
            "Failed checks of the certificate; the previous certificate stays in use",
        )?;
        registry.register(Box::new(admissions.clone()))?;
        registry.register(Box::new(durations.clone()))?;
        registry.register(Box::new(expiry.clone()))?;
        registry.register(Box::new(failures.clone()))?;
        Ok(Self {
            registry,
            admissions,
            durations,
            expiry,
            failures,
            certified: AtomicBool::new(false),
            shutting_down: AtomicBool::new(false),
        })
    }

    /// Records that a certificate is served and trusted until `ends`.
    pub(super) fn record_certificate(&self, ends: i64) {
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
        self.expiry.set(ends as f64);
        self.certified.store(true, Ordering::Release);
    }

    pub(super) fn record_certificate_failure(&self) {
        self.failures.inc();
    }

    pub(super) fn record_answer(&self, webhook: &str, outcome: &str, took: Duration) {
        self.admissions.with_label_values(&[webhook, outcome]).inc();
        self.durations.with_label_values(&[webhook]).observe(took.as_secs_f64());
    }

    /// Makes readiness fail, so that no new connections arrive.
    pub(super) fn begin_shutdown(&self) {
        self.shutting_down.store(true, Ordering::Release);
    }

    /// Whether requests can be answered, or why not.
    pub(super) fn ready(&self) -> Result<(), &'static str> {
        if self.shutting_down.load(Ordering::Acquire) {
            return Err("shutting down");
        }
        if !self.certified.load(Ordering::Acquire) {
            return Err("no certificate yet");
        }
        Ok(())
    }

    fn text(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// `/livez`, `/readyz`, `/metrics`.
pub(super) fn router(status: Arc<Status>) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(status)
}

async fn ready(State(status): State<Arc<Status>>) -> (StatusCode, &'static str) {
    match status.ready() {
        Ok(()) => (StatusCode::OK, "ok"),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

async fn metrics(State(status): State<Arc<Status>>) -> (StatusCode, String) {
    match status.text() {
        Ok(text) => (StatusCode::OK, text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
