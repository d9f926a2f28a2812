//! Single calls: the answer, and the objects of the API server afterwards.

use serde_json::json;
use sluice_placement::annotations::Amount;
use sluice_placement::{Demand, PlacementOutcome};

use super::cluster::{Cluster, assigned, names, node, pod, policy, uuid};
use super::fake_api::{Api, Fault, LEASES, NODES, PODS};
use crate::extender::extender::Policy;
use crate::extender::leadership::{LeadershipState, SettleTimes};

async fn cluster(nodes: &[(&str, u32)]) -> (std::sync::Arc<Api>, Cluster) {
    let api = Api::new();
    for (name, gpus) in nodes {
        api.put(NODES, node(name, *gpus));
    }
    let cluster = Cluster::leading(api.serve().await).await;
    (api, cluster)
}

#[tokio::test]
async fn pod_is_bound_with_its_gpu_in_one_call() {
    let (api, cluster) = cluster(&[("a", 2), ("b", 2)]).await;
    let one = pod("one", &[("quota", "0.3"), ("limit", "0.9"), ("memory", "4Gi")]);
    api.put(PODS, one.clone());
    let answer = cluster.filter(&one, &["b", "a"]).await;
    assert_eq!(answer, json!({"NodeNames": ["a"]}));
    assert_eq!(cluster.bind(&one, "a").await, "");
    let bound = api.get(PODS, "default/one").unwrap();
    assert_eq!((&bound["spec"]["nodeName"], assigned(&api, "one")), (&json!("a"), Some(uuid("a", 0))));
    assert_eq!(api.binds(), 1);
    cluster.until("the watch shows it", |extender| extender.state().unobserved_binds.is_empty()).await;
    assert_eq!(cluster.extender.state().index.counts(), (0, 1));
}

#[tokio::test]
async fn assignment_is_published_as_an_event() {
    let (api, cluster) = cluster(&[("a", 2)]).await;
    let one = pod("one", &[("quota", "0.3"), ("memory", "4Gi")]);
    api.put(PODS, one.clone());
    cluster.filter(&one, &["a"]).await;
    assert_eq!(cluster.bind(&one, "a").await, "");
    let seen = async {
        while api.events().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::cluster::SOON, seen).await.unwrap();
    let event = api.events().remove(0);
    assert_eq!(event["message"], "assigned gpu-0 of a: 0.300 of GPU-a-0, 4.0 GiB");
    assert_eq!(
        (&event["involvedObject"]["uid"], &event["reason"]),
        (&json!("one-uid"), &json!("GpuAssigned"))
    );
}

#[tokio::test]
async fn refusal_is_per_gpu_on_few_nodes_and_summarised_on_many() {
    let names: Vec<String> = (0..6).map(|number| format!("n{number}")).collect();
    let nodes: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let (_api, cluster) = cluster(&nodes).await;
    for (number, name) in names.iter().enumerate() {
        let filler = pod(&format!("filler-{number}"), &[("quota", "0.8"), ("memory", "1Gi")]);
        cluster.filter(&filler, &[name]).await;
    }
    let late = pod("late", &[("quota", "0.3"), ("memory", "1Gi")]);
    let few = cluster.filter(&late, &["n1", "n2"]).await;
    assert_eq!(few["NodeNames"], json!([]));
    let why = &few["FailedAndUnresolvableNodes"];
    assert_eq!(why["n1"], "gpu-0 (GPU-n1-0) has 0.200 free, 0.300 asked");
    let every: Vec<&str> = names.iter().map(String::as_str).collect();
    let many = cluster.filter(&late, &every).await;
    let why = many["FailedAndUnresolvableNodes"].as_object().unwrap();
    assert_eq!((why.len(), why.values().all(|why| why == "no GPU with 0.300 free")), (6, true));
}

#[tokio::test]
async fn invalid_and_absent_annotations_are_explained_to_the_user() {
    let (_api, cluster) = cluster(&[("a", 1)]).await;
    let answer = cluster.filter(&pod("bad", &[("quota", "much")]), &["a"]).await;
    let why = answer["FailedAndUnresolvableNodes"]["a"].as_str().unwrap();
    assert!(why.contains("sluice.dev/quota") && why.contains("much"), "{why}");
    let answer = cluster.filter(&pod("none", &[]), &["a"]).await;
    assert!(answer["FailedAndUnresolvableNodes"]["a"].as_str().unwrap().contains("none of the annotations"));
}

#[tokio::test]
async fn malformed_requests_are_errors_and_no_panics() {
    let (_api, cluster) = cluster(&[("a", 1)]).await;
    let (status, answer) = cluster.post("filter", &json!({"Pod": 7})).await;
    assert!(status.is_success() && answer["Error"].as_str().unwrap().contains("not a request"), "{answer}");
    let without_cache =
        json!({"Pod": pod("p", &[("quota", "0.1")]), "Nodes": {"items": []}, "NodeNames": null});
    let (_, answer) = cluster.post("filter", &without_cache).await;
    assert!(answer["Error"].as_str().unwrap().contains("nodeCacheCapable"), "{answer}");
    assert!(cluster.post("bind", &json!({})).await.1["Error"].is_string());
    assert_eq!(cluster.post("prioritize", &json!([])).await.0.as_u16(), 400);
}

#[tokio::test]
async fn pod_with_soft_preferences_gets_several_scored_nodes_and_keeps_one() {
    let (api, cluster) = cluster(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]).await;
    let mut picky = pod("picky", &[("quota", "1")]);
    picky["spec"]["topologySpreadConstraints"] = json!([{"whenUnsatisfiable": "ScheduleAnyway"}]);
    api.put(PODS, picky.clone());
    let answer = cluster.filter(&picky, &["a", "b", "c", "d"]).await;
    assert_eq!(names(&answer), ["a", "b", "c"]);
    let (_, scores) = cluster.post("prioritize", &json!({"Pod": picky, "NodeNames": ["c", "a", "d"]})).await;
    assert_eq!(
        scores,
        json!([{"Host": "c", "Score": 8}, {"Host": "a", "Score": 10}, {"Host": "d", "Score": 0}])
    );
    let plain = pod("plain", &[("quota", "1")]);
    assert_eq!(names(&cluster.filter(&plain, &["a", "b", "c"]).await), Vec::<&str>::new());
    assert_eq!(cluster.bind(&picky, "b").await, "");
    assert_eq!(names(&cluster.filter(&plain, &["a", "b", "c"]).await), ["a"]);
}

#[tokio::test]
async fn bind_without_reservation_is_not_sent() {
    let (api, cluster) = cluster(&[("a", 1)]).await;
    let one = pod("one", &[("quota", "0.3")]);
    api.put(PODS, one.clone());
    assert!(cluster.bind(&one, "a").await.contains("no GPU is reserved"));
    assert_eq!(api.binds(), 0);
}

#[tokio::test]
async fn refused_bind_releases_its_share_and_unknown_result_keeps_it() {
    let (api, cluster) = cluster(&[("a", 1)]).await;
    let (one, two) = (pod("one", &[("quota", "1")]), pod("two", &[("quota", "1")]));
    api.put(PODS, one.clone());
    api.put(PODS, two.clone());
    *api.fault.lock().unwrap() = Box::new(|| Fault::Refuse(403));
    cluster.filter(&one, &["a"]).await;
    assert_eq!(cluster.bind(&one, "a").await, "made up by the test");
    assert_eq!(names(&cluster.filter(&two, &["a"]).await), ["a"]);
    *api.fault.lock().unwrap() = Box::new(|| Fault::Refuse(504));
    assert_eq!(cluster.bind(&two, "a").await, "made up by the test");
    assert!(names(&cluster.filter(&one, &["a"]).await).is_empty());
    // The pod itself finds its reservation again, and a refusal does not end what an earlier attempt may have begun.
    assert_eq!(names(&cluster.filter(&two, &["a"]).await), ["a"]);
    *api.fault.lock().unwrap() = Box::new(|| Fault::Refuse(403));
    cluster.bind(&two, "a").await;
    assert!(names(&cluster.filter(&one, &["a"]).await).is_empty());
}

#[tokio::test]
async fn result_of_a_bind_with_lost_answer_comes_from_the_watch() {
    for fault in [Fault::DoneButError, Fault::DoneButSilent] {
        let (api, cluster) = cluster(&[("a", 1)]).await;
        let one = pod("one", &[("quota", "0.6")]);
        api.put(PODS, one.clone());
        cluster.filter(&one, &["a"]).await;
        *api.fault.lock().unwrap() = Box::new(move || fault);
        assert_ne!(cluster.bind(&one, "a").await, "");
        cluster.until("the watch shows the bind", |extender| extender.state().index.counts() == (0, 1)).await;
        api.delete(PODS, "default/one");
        cluster.until("it is released", |extender| extender.state().index.counts() == (0, 0)).await;
    }
}

#[tokio::test]
async fn recreated_pod_of_the_same_name_is_not_bound() {
    let (api, cluster) = cluster(&[("a", 1)]).await;
    let old = pod("one", &[("quota", "0.6")]);
    cluster.filter(&old, &["a"]).await;
    let mut new = old.clone();
    new["metadata"]["uid"] = json!("another-uid");
    api.put(PODS, new);
    assert!(cluster.bind(&old, "a").await.contains("UID"));
    assert_eq!(assigned(&api, "one"), None);
}

#[tokio::test]
async fn share_is_released_when_the_pod_ends_and_not_while_it_is_being_deleted() {
    let (api, cluster) = cluster(&[("a", 1)]).await;
    let one = pod("one", &[("quota", "0.6")]);
    api.put(PODS, one.clone());
    cluster.filter(&one, &["a"]).await;
    assert_eq!(cluster.bind(&one, "a").await, "");
    let mut ending = api.get(PODS, "default/one").unwrap();
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    api.put(PODS, ending.clone());
    // A change that the watch shows after it.
    let mark = pod("mark", &[("quota", "0.1")]);
    api.put(PODS, mark.clone());
    cluster.filter(&mark, &["a"]).await;
    assert_eq!(cluster.bind(&mark, "a").await, "");
    cluster.until("the mark is seen", |extender| extender.state().unobserved_binds.is_empty()).await;
    assert_eq!(cluster.extender.state().index.counts(), (0, 2));
    ending["status"]["phase"] = json!("Failed");
    api.put(PODS, ending);
    cluster.until("it has ended", |extender| extender.state().index.counts() == (0, 1)).await;
}

#[tokio::test]
async fn waiting_pod_is_not_refused_while_the_watch_lags() {
    let (api, cluster) = cluster(&[("a", 1)]).await;
    let (one, two) = (pod("one", &[("quota", "1")]), pod("two", &[("quota", "1")]));
    api.put(PODS, one.clone());
    cluster.filter(&one, &["a"]).await;
    assert_eq!(cluster.bind(&one, "a").await, "");
    cluster.until("the watch shows it", |extender| extender.state().unobserved_binds.is_empty()).await;
    // The kube-scheduler sees the end at the same moment as the extender.
    api.delete(PODS, "default/one");
    assert_eq!(names(&cluster.filter(&two, &["a"]).await), ["a"]);
}

#[tokio::test]
async fn nodes_follow_their_annotation() {
    let (api, cluster) = cluster(&[]).await;
    let one = pod("one", &[("quota", "1")]);
    let fits = |extender: &crate::extender::extender::Extender| {
        let all = Demand::new(Amount::Whole(1), None);
        let mut state = extender.state();
        let offer = state.index.reserve("probe", &all, ["a"].into_iter(), 1, u64::MAX);
        state.index.release("probe");
        matches!(offer, PlacementOutcome::Reserved(_))
    };
    api.put(NODES, node("a", 1));
    cluster.until("the node is there", fits).await;
    let mut broken = node("a", 1);
    broken["metadata"]["annotations"]["sluice.dev/gpus"] = json!("{");
    api.put(NODES, broken);
    cluster.until("what cannot be read offers nothing", |extender| !fits(extender)).await;
    api.put(NODES, node("a", 1));
    cluster.until("the node is back", fits).await;
    api.delete(NODES, "a");
    cluster.until("the node is gone", |extender| !fits(extender)).await;
    let answer = cluster.filter(&one, &["a"]).await;
    assert_eq!(answer["FailedAndUnresolvableNodes"]["a"], "no GPUs of Sluice");
}

#[tokio::test]
async fn only_the_lease_holders_replica_decides_after_its_own_lists() {
    let api = Api::new();
    api.put(NODES, node("a", 1));
    let client = api.serve().await;
    let mut cluster = Cluster::start(client, policy());
    cluster.follow_lease("pod-1");
    let lease = |holder: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "the-lease", "namespace": "system"}, "spec": {"holderIdentity": holder}})
    };
    api.put(LEASES, lease("pod-2_1234"));
    let one = pod("one", &[("quota", "1")]);
    let answer = cluster.filter(&one, &["a"]).await;
    assert!(answer["Error"].as_str().unwrap().contains("standby"), "{answer}");
    cluster.until("it has seen the cluster", |extender| extender.leadership.has_listed_once()).await;
    let lists = api.lists();
    api.put(LEASES, lease("pod-1_1234"));
    assert_eq!(
        cluster.extender.leadership.wait_until_active(super::cluster::SOON).await,
        LeadershipState::Active
    );
    assert!(api.lists() >= lists + 2, "{lists}, then {}", api.lists());
    assert_eq!(names(&cluster.filter(&one, &["a"]).await), ["a"]);
    api.delete(LEASES, "system/the-lease");
    let demoted = async {
        while cluster.extender.leadership.state() != LeadershipState::Standby {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::cluster::SOON, demoted).await.unwrap();
    assert!(!cluster.bind(&one, "a").await.is_empty());
}

#[tokio::test]
async fn late_bind_of_the_previous_leader_counts_before_the_next_decides() {
    let api = Api::new();
    api.put(NODES, node("a", 1));
    let takeover = std::time::Duration::from_millis(600);
    let policy = Policy { settle: SettleTimes { own: std::time::Duration::ZERO, takeover }, ..policy() };
    let mut cluster = Cluster::start(api.serve().await, policy);
    cluster.follow_lease("pod-1");
    let lease = |holder: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "the-lease", "namespace": "system"}, "spec": {"holderIdentity": holder}})
    };
    api.put(LEASES, lease("pod-2_1234"));
    cluster.until("it has seen the cluster", |extender| extender.leadership.has_listed_once()).await;
    api.put(LEASES, lease("pod-1_1234"));
    // The former leader sent this bind before its end.
    tokio::time::sleep(takeover / 3).await;
    let mut late = pod("late", &[("quota", "0.6"), ("assigned-gpu", &uuid("a", 0))]);
    late["spec"]["nodeName"] = json!("a");
    assert_ne!(cluster.extender.leadership.state(), LeadershipState::Active);
    api.put(PODS, late);
    let state = cluster.extender.leadership.wait_until_active(super::cluster::SOON).await;
    assert_eq!(state, LeadershipState::Active);
    let answer = cluster.filter(&pod("next", &[("quota", "0.6")]), &["a"]).await;
    assert!(names(&answer).is_empty(), "{answer}");
}

#[tokio::test]
async fn metrics_and_probes_reflect_the_calls() {
    use tower::ServiceExt;
    let (api, cluster) = cluster(&[("a", 1)]).await;
    let one = pod("one", &[("quota", "0.25")]);
    api.put(PODS, one.clone());
    cluster.filter(&one, &["a"]).await;
    cluster.bind(&one, "a").await;
    let page = |path: &str, most: usize| {
        let request = axum::http::Request::get(path).body(axum::body::Body::empty()).unwrap();
        let router = crate::extender::http::page(cluster.extender.clone(), most);
        async move {
            let response = router.oneshot(request).await.unwrap();
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            String::from_utf8(body.to_vec()).unwrap()
        }
    };
    let text = page("/metrics", 10).await;
    for line in [
        "sluice_scheduler_filters_total{outcome=\"reserved\"} 1",
        "sluice_scheduler_binds_total{outcome=\"bound\"} 1",
        "sluice_scheduler_filter_seconds_count 1",
        "sluice_scheduler_assigned_share{node=\"a\",gpu=\"GPU-a-0\"} 0.250",
        "sluice_scheduler_assigned_memory_bytes{node=\"a\",gpu=\"GPU-a-0\"} 21474836480",
        "sluice_scheduler_active 1",
        "sluice_scheduler_fragmentation_ratio{share=\"0.750\"} 0.0000",
        "sluice_scheduler_fragmentation_ratio{share=\"1.000\"} 1.0000",
        "sluice_scheduler_reservations 0",
        "sluice_scheduler_assigned_pods 1",
    ] {
        assert!(text.lines().any(|one| one == line), "no {line} in\n{text}");
    }
    assert!(page("/metrics", 0).await.contains("sluice_scheduler_assigned_share{node=\"a\"} 0.250"));
    assert_eq!(page("/readyz", 0).await, "active\n");
}
