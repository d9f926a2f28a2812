//! Pods with a share of each of several GPUs.

use serde_json::json;

use super::cluster::{Cluster, SOON, assigned, names, node, pod, uuid};
use super::fake_api::{Api, NODES, PODS};

const PAIR: [(&str, &str); 3] = [("gpus", "2"), ("quota", "0.6"), ("memory", "4Gi")];

#[tokio::test]
async fn pod_is_bound_with_all_of_its_gpus_and_keeps_them_over_a_restart() {
    let api = Api::new();
    api.put(NODES, node("a", 3));
    let client = api.serve().await;
    let first = Cluster::leading(client.clone()).await;
    let one = pod("one", &PAIR);
    api.put(PODS, one.clone());
    assert_eq!(names(&first.filter(&one, &["a"]).await), ["a"]);
    assert_eq!(first.bind(&one, "a").await, "");
    assert_eq!(assigned(&api, "one"), Some(format!("{},{}", uuid("a", 0), uuid("a", 1))));
    let published = async {
        while api.events().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, published).await.unwrap();
    assert_eq!(
        api.events().remove(0)["message"],
        "assigned gpu-0, gpu-1 of a: 0.600 of GPU-a-0, GPU-a-1, 4.0 GiB each"
    );
    first.kill().await;
    let second = Cluster::leading(client).await;
    let answer = second.filter(&pod("two", &PAIR), &["a"]).await;
    assert_eq!(
        answer["FailedAndUnresolvableNodes"]["a"],
        "1 of 2 GPUs fit: gpu-0 (GPU-a-0) has 0.400 free, 0.600 asked; gpu-1 (GPU-a-1) has 0.400 free, 0.600 asked"
    );
    assert_eq!(names(&second.filter(&pod("three", &[("gpus", "3"), ("quota", "0.4")]), &["a"]).await), ["a"]);
}

#[tokio::test]
async fn second_refusal_evicts_one_pod_on_each_of_the_cheapest_gpus() {
    let api = Api::new();
    api.put(NODES, node("a", 3));
    for (gpu, priority) in [(0, 10), (1, 0), (2, 5)] {
        let gpu_uuid = uuid("a", gpu);
        let annotations = [("quota", "0.6"), ("memory", "1Gi"), ("assigned-gpu", gpu_uuid.as_str())];
        let mut bound = pod(&format!("on-{gpu}"), &annotations);
        bound["spec"]["nodeName"] = json!("a");
        bound["spec"]["priority"] = json!(priority);
        bound["status"] = json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z"});
        api.put(PODS, bound);
    }
    let cluster = Cluster::leading(api.serve().await).await;
    cluster.until("the budgets are listed", |extender| extender.state().budgets.is_some()).await;
    let mut wants = pod("urgent", &PAIR);
    wants["spec"]["priority"] = json!(1000);
    api.put(PODS, wants.clone());
    for _ in 0..2 {
        assert!(names(&cluster.filter(&wants, &["a"]).await).is_empty());
    }
    cluster.until("both victims have ended", |extender| extender.state().index.counts() == (0, 1)).await;
    let evicted = api.evicted();
    let mut evicted: Vec<&str> =
        evicted.iter().filter_map(|victim| victim["metadata"]["name"].as_str()).collect();
    evicted.sort_unstable();
    assert_eq!(evicted, ["on-1", "on-2"]);
    let late = pod("late", &[("quota", "0.5"), ("memory", "1Gi")]);
    assert!(names(&cluster.filter(&late, &["a"]).await).is_empty(), "the room on both GPUs is kept");
    wants["status"]["nominatedNodeName"] = json!("a");
    assert_eq!(names(&cluster.filter(&wants, &["a"]).await), ["a"]);
    assert_eq!(cluster.bind(&wants, "a").await, "");
    assert_eq!(assigned(&api, "urgent"), Some(format!("{},{}", uuid("a", 1), uuid("a", 2))));
}
