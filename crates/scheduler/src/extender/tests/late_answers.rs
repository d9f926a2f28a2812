//! Answers of the API server that arrive when the watch, or another call, has shown something newer.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::{Cluster, SOON, names, node, pod, policy};
use super::fake_api::{Api, Fault, NODES, PODS};
use crate::extender::extender::Policy;

async fn cluster(nodes: &[&str], bind_timeout: Duration) -> (Arc<Api>, Cluster) {
    let api = Api::new();
    for name in nodes {
        api.put(NODES, node(name, 1));
    }
    let cluster = Cluster::leading_with(api.serve().await, Policy { bind_timeout, ..policy() }).await;
    (api, cluster)
}

/// Lets this time pass at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn counts(cluster: &Cluster) -> (usize, usize) {
    cluster.extender.state().index.counts()
}

#[tokio::test]
async fn refused_bind_to_another_node_does_not_keep_the_share_of_an_unknown_bind_for_ever() {
    let (api, cluster) = cluster(&["n", "m"], policy().bind_timeout).await;
    let (one, two) = (pod("one", &[("quota", "1")]), pod("two", &[("quota", "1")]));
    api.put(PODS, one.clone());
    assert_eq!(names(&cluster.filter(&one, &["n"]).await), ["n"]);
    *api.fault.lock().unwrap() = Box::new(|| Fault::Refuse(504));
    assert_ne!(cluster.bind(&one, "n").await, "");
    // The node is no candidate for the moment.
    assert_eq!(names(&cluster.filter(&one, &["m"]).await), ["m"]);
    *api.fault.lock().unwrap() = Box::new(|| Fault::Refuse(429));
    assert_ne!(cluster.bind(&one, "m").await, "");
    assert_eq!(names(&cluster.filter(&two, &["n", "m"]).await), ["m"], "the bind to n may still take effect");
    cluster.extender.state().index.release("two-uid");
    pass(Duration::from_secs(100)).await;
    cluster.poll("n is free", |extender| extender.state().index.counts() == (0, 0)).await;
    assert_eq!(names(&cluster.filter(&two, &["n"]).await), ["n"]);
    assert!(cluster.extender.state().binds.is_empty());
}

#[tokio::test]
async fn result_of_a_bind_that_arrives_after_the_end_of_the_pod_takes_no_share() {
    let (api, cluster) = cluster(&["a"], SOON).await;
    let one = pod("one", &[("quota", "1")]);
    api.put(PODS, one.clone());
    cluster.filter(&one, &["a"]).await;
    *api.fault.lock().unwrap() = Box::new(|| Fault::DoneButError);
    assert_ne!(cluster.bind(&one, "a").await, "");
    cluster.until("the watch shows the bind", |extender| extender.state().index.counts() == (0, 1)).await;
    api.answers.close();
    pass(Duration::from_secs(2)).await;
    cluster.poll("the bind's result is requested", |_| api.gets() == 1).await;
    api.delete(PODS, "default/one");
    cluster.until("the pod has ended", |extender| extender.state().index.counts() == (0, 0)).await;
    api.answers.open();
    cluster.poll("the result is known", |extender| extender.state().binds.is_empty()).await;
    assert_eq!(counts(&cluster), (0, 0));
    let two = pod("two", &[("quota", "1")]);
    assert_eq!(names(&cluster.filter(&two, &["a"]).await), ["a"]);
}

#[tokio::test]
async fn pod_whose_end_the_watch_shows_during_a_recheck_is_not_recorded_for_ever() {
    let (api, cluster) = cluster(&["a"], SOON).await;
    let one = pod("one", &[("quota", "1")]);
    api.put(PODS, one.clone());
    cluster.filter(&one, &["a"]).await;
    assert_eq!(cluster.bind(&one, "a").await, "");
    cluster.until("the bind is seen", |extender| extender.state().unobserved_binds.is_empty()).await;
    let mut ending = api.get(PODS, "default/one").unwrap();
    ending["metadata"]["deletionTimestamp"] = serde_json::json!("2026-01-01T00:00:00Z");
    api.put(PODS, ending);
    cluster.until("its end is near", |extender| extender.state().deleting.len() == 1).await;
    api.hold_watches(PODS);
    api.delete(PODS, "default/one");
    api.answers.close();
    let late = pod("late", &[("quota", "1")]);
    let watch = async {
        cluster.poll("the pod is rechecked", |_| api.gets() == 1).await;
        api.release_watches(PODS);
        cluster.until("the watch shows the end", |extender| extender.state().index.counts() == (0, 0)).await;
        api.answers.open();
    };
    let (answer, ()) = tokio::join!(cluster.filter(&late, &["a"]), watch);
    assert_eq!(names(&answer), ["a"]);
    assert!(cluster.extender.state().ended_unobserved.is_empty());
}

#[tokio::test]
async fn pod_that_is_refused_after_its_end_is_forgotten_at_the_next_list() {
    let (api, cluster) = cluster(&["a"], SOON).await;
    let one = pod("one", &[("quota", "1")]);
    api.put(PODS, one.clone());
    cluster.filter(&one, &["a"]).await;
    assert_eq!(cluster.bind(&one, "a").await, "");
    // kube-scheduler has not seen yet that this pod is gone.
    assert!(names(&cluster.filter(&pod("gone", &[("quota", "1")]), &["a"]).await).is_empty());
    assert!(cluster.extender.state().refused.contains("gone-uid"));
    cluster.extender.leadership.set_leading(false);
    cluster.extender.leadership.set_leading(true);
    cluster.extender.leadership.wait_until_active(SOON).await;
    assert!(cluster.extender.state().refused.is_empty());
}
