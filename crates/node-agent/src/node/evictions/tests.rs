//! Time is tokio's paused clock: it advances only while every task waits.

use super::*;
use axum::http::{Request, Response};
use kube::client::Body;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{mpsc, watch};

/// A client of an API server that refuses every eviction, as for a PodDisruptionBudget.
fn refusing(asked: &Arc<AtomicUsize>) -> Client {
    let asked = Arc::clone(asked);
    let answer = move |_: Request<Body>| {
        asked.fetch_add(1, Ordering::SeqCst);
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 429,
            "reason": "TooManyRequests", "message": "it would violate the pod's disruption budget",
        });
        let answer =
            Response::builder().status(429).body(Body::from(status.to_string().into_bytes())).unwrap();
        std::future::ready(Ok::<_, Infallible>(answer))
    };
    Client::new(tower::service_fn(answer), "default")
}

#[tokio::test(start_paused = true)]
async fn refused_eviction_is_repeated_until_its_cause_has_ended_and_may_be_requested_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let pod = Arc::new(PodView {
        uid: "u".into(),
        namespace: "ml".into(),
        name: "train".into(),
        ..PodView::default()
    });
    let pods = Pods::from([("u".to_owned(), Arc::clone(&pod))]);
    let (_pods, pods) = watch::channel(Some(Arc::new(pods)));
    let (requests, received) = mpsc::unbounded_channel();
    let (events, _published) = EventQueue::new();
    tokio::spawn(serve(refusing(&asked), pods, events, received));
    let request = || {
        let cause_ended = CancellationToken::new();
        let eviction = Eviction {
            pod: Arc::clone(&pod),
            cause: Cause::LostGpu,
            reason: "lost".into(),
            cause_ended: cause_ended.clone(),
        };
        requests.send(eviction).unwrap();
        cause_ended
    };
    let count_in_an_hour = async || {
        let before = asked.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        asked.load(Ordering::SeqCst) - before
    };
    let first = request();
    assert!(count_in_an_hour().await > 10, "it is repeated");
    first.cancel();
    assert_eq!(count_in_an_hour().await, 0);
    let _second = request();
    assert!(count_in_an_hour().await > 10, "the GPU is lost again");
}
