//! Reservations and time, which stands still in these tests until they move it.

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
    let (events, _) = events::pair(0, metrics.events_left_out.clone());
    let extender = Extender::new(policy(), client("http://127.0.0.1:1"), metrics, events);
    extender.leadership.set_leading(true);
    extender.leadership.listed(WatchedKind::Nodes, 1);
    extender.leadership.listed(WatchedKind::Pods, 1);
    extender.state().index.set_node("a", &inventory("a", 1));
    Arc::new(extender)
}

async fn fits(extender: &Arc<Extender>, name: &str) -> bool {
    let args = serde_json::json!({"Pod": pod(name, &[("quota", "0.6")]), "NodeNames": ["a"]});
    !names(&ask(extender, "filter", &args).await.1).is_empty()
}

#[tokio::test(start_paused = true)]
async fn a_reservation_lasts_as_long_as_it_is_renewed() {
    let extender = extender();
    assert!(fits(&extender, "one").await);
    tokio::time::advance(Duration::from_secs(50)).await;
    assert!(!fits(&extender, "two").await);
    assert!(fits(&extender, "one").await, "the pod itself is placed anew");
    tokio::time::advance(Duration::from_secs(50)).await;
    assert!(!fits(&extender, "two").await);
    tokio::time::advance(Duration::from_secs(11)).await;
    assert!(fits(&extender, "two").await);
    assert_eq!(extender.metrics.expired.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_bind_of_unknown_end_is_held_until_the_api_server_tells_its_end() {
    let extender = extender();
    assert!(fits(&extender, "one").await);
    // Nothing listens at that address: for the extender that is not a no.
    let bind =
        serde_json::json!({"PodName": "one", "PodNamespace": "default", "PodUID": "one-uid", "Node": "a"});
    assert!(ask(&extender, "bind", &bind).await.1["Error"].is_string());
    // Longer than any API server lets a request run: without an answer that proves nothing.
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert!(!fits(&extender, "two").await);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_watches_holds_up_few_calls() {
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
async fn an_api_server_that_is_away_leaves_us_unready() {
    let cluster = Cluster::start(client("http://127.0.0.1:1"), policy());
    assert!(!cluster.extender.leadership.has_seen_the_cluster());
    cluster.extender.leadership.set_leading(true);
    let args = serde_json::json!({"Pod": pod("one", &[("quota", "0.6")]), "NodeNames": ["a"]});
    let answer = ask(&cluster.extender, "filter", &args).await.1;
    assert!(answer["Error"].as_str().unwrap().contains("still reading"), "{answer}");
}
