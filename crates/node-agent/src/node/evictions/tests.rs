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

/// A running pod, and the server of its evictions.
struct Bed {
    asked: Arc<AtomicUsize>,
    pod: Arc<PodView>,
    requests: mpsc::UnboundedSender<Eviction>,
    pods: watch::Sender<Option<Arc<Pods>>>,
}

impl Bed {
    fn new() -> Self {
        let asked = Arc::new(AtomicUsize::new(0));
        let pod = Arc::new(PodView {
            uid: "u".into(),
            namespace: "ml".into(),
            name: "train".into(),
            ..PodView::default()
        });
        let (known, pods) = watch::channel(Some(Arc::new([("u".to_owned(), Arc::clone(&pod))].into())));
        let (requests, received) = mpsc::unbounded_channel();
        tokio::spawn(serve(refusing(&asked), pods, EventQueue::new().0, received));
        Self { asked, pod, requests, pods: known }
    }

    fn request(&self, cause: Cause) -> CancellationToken {
        let cause_ended = CancellationToken::new();
        let (pod, reason) = (Arc::clone(&self.pod), format!("{cause:?}"));
        self.requests.send(Eviction { pod, cause, reason, cause_ended: cause_ended.clone() }).unwrap();
        cause_ended
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    async fn count_in_an_hour(&self) -> usize {
        let before = self.asked();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        self.asked() - before
    }
}

#[tokio::test(start_paused = true)]
async fn refused_eviction_is_repeated_until_its_cause_has_ended_and_may_be_requested_again() {
    let bed = Bed::new();
    let first = bed.request(Cause::LostGpu);
    assert!(bed.count_in_an_hour().await > 10, "it is repeated");
    first.cancel();
    assert_eq!(bed.count_in_an_hour().await, 0);
    let _second = bed.request(Cause::LostGpu);
    assert!(bed.count_in_an_hour().await > 10, "the GPU is lost again");
}

#[tokio::test(start_paused = true)]
async fn eviction_for_a_violation_continues_when_the_lost_gpu_is_back() {
    let bed = Bed::new();
    let lost = bed.request(Cause::LostGpu);
    let _violation = bed.request(Cause::Violation);
    tokio::time::sleep(Duration::from_secs(10)).await;
    lost.cancel();
    assert!(bed.count_in_an_hour().await > 10);
}

#[tokio::test(start_paused = true)]
async fn end_of_a_cancelled_eviction_leaves_the_next_one_known() {
    let bed = Bed::new();
    let first = bed.request(Cause::LostGpu);
    tokio::time::sleep(Duration::from_secs(10)).await;
    // The next request is there before the end of the first eviction is.
    let second = bed.request(Cause::LostGpu);
    first.cancel();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let _repeated = bed.request(Cause::LostGpu);
    tokio::time::sleep(Duration::from_secs(10)).await;
    second.cancel();
    assert_eq!(bed.count_in_an_hour().await, 0, "the repeated request was carried out, too");
}

/// The Eviction API would delete the pod, and with it its logs and its result.
#[tokio::test(start_paused = true)]
async fn pod_that_succeeds_after_a_refused_eviction_is_not_evicted() {
    let bed = Bed::new();
    let _violation = bed.request(Cause::Violation);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(bed.asked() > 0);
    let ended = PodView { has_ended: true, ..PodView::clone(&bed.pod) };
    bed.pods.send_replace(Some(Arc::new([("u".to_owned(), Arc::new(ended))].into())));
    assert_eq!(bed.count_in_an_hour().await, 0);
}
