//! Requests over TLS, as the API server sends them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum_server::Handle;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use super::super::certificates::tests::{FakeCluster, NAME, renewer};
use super::super::plan::Settings;
use super::super::serve;
use super::super::status::{self, Status};
use super::{pod, review, single};

const DAY: i64 = 24 * 3600;

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A client that trusts this bundle and nothing else.
fn connect(address: SocketAddr, bundle: &str) -> Stream {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), ServerName::try_from(NAME).unwrap()).unwrap();
    StreamOwned::new(connection, TcpStream::connect(address).unwrap())
}

/// One request on a connection that stays open; returns status and body.
fn post(stream: &mut (impl Read + Write), path: &str, body: &str) -> std::io::Result<(u16, String)> {
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {NAME}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let code = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((code, String::from_utf8(body).unwrap()))
}

fn base64(text: &str) -> Vec<u8> {
    let bytes: k8s_openapi::ByteString = serde_json::from_value(json!(text)).unwrap();
    bytes.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_are_answered_and_connections_survive_renewal() {
    let now = jiff::Timestamp::now().as_second();
    let (cluster, clock) = (Arc::new(FakeCluster::default()), Arc::new(AtomicI64::new(now)));
    let renewer = renewer(&cluster, &clock);
    let first = renewer.renew_if_due(None).await.unwrap();
    let status = Arc::new(Status::new().unwrap());
    let admission = serve::Admission { settings: Settings::default(), status: Arc::clone(&status) };
    let listener = sluice_daemon::listener::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let handle = Handle::new();
    let service = serve::router(Arc::new(admission)).into_make_service();
    let server = axum_server::from_tcp_rustls(listener, renewer.server.clone())
        .unwrap()
        .handle(handle.clone())
        .serve(service);
    let server = tokio::spawn(server);

    let bundle = cluster.bundle();
    let mut stream = tokio::task::spawn_blocking(move || {
        let mut stream = connect(address, &bundle);
        answers(&mut stream);
        stream
    })
    .await
    .unwrap();

    // A serving certificate is renewed while that connection stays open.
    clock.store(now + 21 * DAY, Ordering::SeqCst);
    let second = renewer.renew_if_due(Some(&first)).await.unwrap();
    assert_ne!(first, second);
    let bundle = cluster.bundle();
    tokio::task::spawn_blocking(move || {
        let body = review("CREATE", &pod(&[("quota", "0.3")], &single()), &Value::Null).to_string();
        assert_eq!(post(&mut stream, "/mutate", &body).unwrap().0, 200, "the old connection");
        let mut fresh = connect(address, &bundle);
        // The new certificate is valid only from 21 days ahead, so a client of today must refuse it. That proves it is
        // the new one.
        let error = post(&mut fresh, "/mutate", &body).unwrap_err().to_string();
        assert!(error.contains("NotValidYet") || error.contains("not valid yet"), "{error}");
    })
    .await
    .unwrap();
    handle.graceful_shutdown(None);
    server.await.unwrap().unwrap();

    let metrics = text(&status).await;
    for line in [
        "sluice_webhook_admissions_total{outcome=\"admitted\",webhook=\"mutate\"} 2",
        "sluice_webhook_admissions_total{outcome=\"refused\",webhook=\"validate\"} 1",
        "sluice_webhook_admissions_total{outcome=\"unreadable\",webhook=\"mutate\"} 4",
        "sluice_webhook_admission_duration_seconds_count{webhook=\"validate\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

/// Valid and invalid reviews on one connection.
fn answers(stream: &mut Stream) {
    let good = review("CREATE", &pod(&[("quota", "0.3")], &single()), &Value::Null).to_string();
    let (code, body) = post(stream, "/mutate", &good).unwrap();
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (code, &answer["apiVersion"], &answer["kind"]),
        (200, &json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
    );
    let response = &answer["response"];
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("705ab4f5"), &json!(true)));
    assert_eq!(response["patchType"], "JSONPatch");
    let patch: Value = serde_json::from_slice(&base64(response["patch"].as_str().unwrap())).unwrap();
    let mut paths = patch.as_array().unwrap().iter().map(|operation| &operation["path"]);
    assert!(paths.any(|path| path == "/metadata/annotations/sluice.dev~1container"), "{patch}");

    let bad = review("CREATE", &pod(&[("quota", "2x")], &single()), &Value::Null).to_string();
    let (_, body) = post(stream, "/validate", &bad).unwrap();
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["response"]["allowed"], json!(false));
    assert_eq!(answer["response"]["status"]["code"], json!(422));
    assert!(
        answer["response"]["status"]["message"].as_str().unwrap().starts_with("sluice.dev/quota: \"2x\"")
    );

    for (body, expected) in [
        ("", "the body is no AdmissionReview: "),
        ("{\"apiVersion\":", "the body is no AdmissionReview: "),
        (
            "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\"}",
            "the AdmissionReview has no request",
        ),
        (
            "{\"apiVersion\":\"admission.k8s.io/v1beta1\",\"kind\":\"AdmissionReview\"}",
            "admission.k8s.io/v1beta1/AdmissionReview is not admission.k8s.io/v1/AdmissionReview",
        ),
    ] {
        let (code, found) = post(stream, "/mutate", body).unwrap();
        assert_eq!(code, 400);
        assert!(found.starts_with(expected), "{found}");
    }
}

/// The text of `/metrics`.
async fn text(status: &Arc<Status>) -> String {
    use axum::body::to_bytes;
    use axum::http::Request;
    use tower::ServiceExt;
    let request = Request::get("/metrics").body(axum::body::Body::empty()).unwrap();
    let response = status::router(Arc::clone(status)).oneshot(request).await.unwrap();
    String::from_utf8(to_bytes(response.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn webhook_is_ready_with_a_certificate_until_shutdown() {
    use axum::http::{Request, StatusCode};
    use tower::ServiceExt;
    let status = Arc::new(Status::new().unwrap());
    let ready = || async {
        let request = Request::get("/readyz").body(axum::body::Body::empty()).unwrap();
        status::router(Arc::clone(&status)).oneshot(request).await.unwrap().status()
    };
    assert_eq!(ready().await, StatusCode::SERVICE_UNAVAILABLE);
    status.record_certificate(1);
    assert_eq!(ready().await, StatusCode::OK);
    status.begin_shutdown();
    assert_eq!(ready().await, StatusCode::SERVICE_UNAVAILABLE);
}
