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
