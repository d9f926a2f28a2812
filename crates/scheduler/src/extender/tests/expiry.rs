//! Reservations and their expiry, on a paused clock.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::{Cluster, ask, inventory, names, pod, policy};
use super::fake_api::client;
use crate::extender::events;
use crate::extender::extender::Extender;
use crate::extender::leadership::WatchedKind;
use crate::extender::metrics::Metrics;

/// An extender without an API: one node of one GPU.
fn extender() -> Arc<Extender> {
    let metrics = Metrics::new().unwrap();
    let (events, _) = events::pair(0, metrics.events_dropped.clone());
    let extender = Extender::new(policy(), client("http://127.0.0.1:1"), metrics, events);
    extender.leadership.set_leading(true);
    extender.leadership.record_list(WatchedKind::Nodes, 1);
    extender.leadership.record_list(WatchedKind::Pods, 1);
    extender.state().index.set_node("a", &inventory("a", 1));
    Arc::new(extender)
}

async fn fits(extender: &Arc<Extender>, name: &str) -> bool {
    let args = serde_json::json!({"Pod": pod(name, &[("quota", "0.6")]), "NodeNames": ["a"]});
    !names(&ask(extender, "filter", &args).await.1).is_empty()
}

#[tokio::test(start_paused = true)]
async fn reservation_lasts_until_its_last_renewal_expires() {
    let extender = extender();
    assert!(fits(&extender, "one").await);
    tokio::time::advance(Duration::from_secs(50)).await;
    assert!(!fits(&extender, "two").await);
    assert!(fits(&extender, "one").await, "the pod itself is placed again");
    tokio::time::advance(Duration::from_secs(50)).await;
    assert!(!fits(&extender, "two").await);
    tokio::time::advance(Duration::from_secs(11)).await;
    assert!(fits(&extender, "two").await);
    assert_eq!(extender.metrics.expired.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn bind_with_unknown_result_stays_reserved_until_the_result_is_known() {
    let extender = extender();
    assert!(fits(&extender, "one").await);
    // No server listens at that address, which the extender must not take for a refusal.
    let bind =
        serde_json::json!({"PodName": "one", "PodNamespace": "default", "PodUID": "one-uid", "Node": "a"});
    assert!(ask(&extender, "bind", &bind).await.1["Error"].is_string());
    // Longer than any API server lets a request run. Without an answer that proves nothing.
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert!(!fits(&extender, "two").await);
}

#[tokio::test(start_paused = true)]
async fn few_calls_wait_for_the_watches() {
    let extender = extender();
    assert!(fits(&extender, "one").await);
    let start = tokio::time::Instant::now();
    for number in 0..100 {
        assert!(!fits(&extender, &format!("late-{number}")).await);
    }
    let waited = start.elapsed();
    assert!(waited <= Duration::from_millis(30), "{waited:?}");
}

#[tokio::test]
async fn extender_is_not_ready_without_an_api_server() {
    let cluster = Cluster::start(client("http://127.0.0.1:1"), policy());
    assert!(!cluster.extender.leadership.has_listed_once());
    cluster.extender.leadership.set_leading(true);
    let args = serde_json::json!({"Pod": pod("one", &[("quota", "0.6")]), "NodeNames": ["a"]});
    let answer = ask(&cluster.extender, "filter", &args).await.1;
    assert!(answer["Error"].as_str().unwrap().contains("still reading"), "{answer}");
}
