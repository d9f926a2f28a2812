use hyper::Response;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::arguments::SLUICE_NAMESPACE;

/// A node agent's pod, or one that looks like it, on the node `a`.
fn agent_pod(namespace: &str, name: &str) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"),
            "labels": {"app.kubernetes.io/component": "node-agent"}},
        "spec": {"nodeName": "a", "schedulerName": "default-scheduler", "containers": [
            {"name": "node-agent", "ports": [{"name": "metrics", "containerPort": 9400}]}]},
        "status": {"phase": "Running"},
    })
}

/// The page of an agent that reports this share for a client.
fn page_with_share(share: f64) -> String {
    format!(
        "sluice_client_gpu_share_ratio{{gpu=\"GPU-a-0\",namespace=\"default\",node=\"a\",pod=\"p\"}} {share}\n"
    )
}

/// An API server with these pods; each pod serves its page by its name. It applies the selectors that [`Cluster`] sends.
fn api_server(pods: Vec<Value>, page: fn(&str) -> String) -> Cluster {
    let answer = move |request: Request<Body>| {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let text = match path.strip_suffix("/proxy/metrics") {
            Some(path) => page(path.rsplit('/').next().unwrap().split(':').next().unwrap()),
            None if path.ends_with("/pods") => {
                let namespace =
                    path.strip_prefix("/api/v1/namespaces/").and_then(|rest| rest.strip_suffix("/pods"));
                let is_listed = |pod: &&Value| {
                    namespace.is_none_or(|namespace| pod["metadata"]["namespace"] == namespace)
                        && (!query.contains("schedulerName%3Dsluice-scheduler")
                            || pod["spec"]["schedulerName"] == "sluice-scheduler")
                };
                json!({"items": pods.iter().filter(is_listed).collect::<Vec<_>>()}).to_string()
            }
            None => json!({"items": []}).to_string(),
        };
        async move { Ok::<_, std::convert::Infallible>(Response::new(Body::from(text.into_bytes()))) }
    };
    Cluster::new(Client::new(tower::service_fn(answer), "default"), keys::SCHEDULER_NAME)
}

fn top(pods: Vec<Value>, page: fn(&str) -> String) -> Top {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { api_server(pods, page).top(SLUICE_NAMESPACE).await }).unwrap()
}

/// The share of the only client of the only GPU.
fn share(top: &Top) -> Option<f64> {
    let [gpu] = top.gpus.as_slice() else { panic!("{top:?}") };
    let [client] = gpu.clients.as_slice() else { panic!("{top:?}") };
    client.got_share
}

#[test]
fn agent_of_a_foreign_namespace_is_ignored() {
    let pods = vec![agent_pod("sluice-system", "real"), agent_pod("team", "forged")];
    let top = top(pods, |name| page_with_share(if name == "real" { 0.25 } else { 0.75 }));
    assert_eq!((share(&top), top.notes.len()), (Some(0.25), 0));
    let top = self::top(vec![agent_pod("team", "forged")], |_| page_with_share(0.75));
    assert!(top.gpus.is_empty(), "{top:?}");
}

#[test]
fn agent_that_does_not_run_or_is_being_deleted_is_ignored() {
    let (mut ends, mut starts) = (agent_pod("sluice-system", "ends"), agent_pod("sluice-system", "starts"));
    ends["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    starts["status"]["phase"] = json!("Pending");
    let pods = vec![agent_pod("sluice-system", "real"), ends, starts];
    let top = top(pods, |name| page_with_share(if name == "real" { 0.25 } else { 0.75 }));
    assert_eq!(share(&top), Some(0.25));
}

#[test]
fn page_above_the_limit_is_refused() {
    let top =
        top(vec![agent_pod("sluice-system", "large")], |_| page_with_share(0.25) + &"#\n".repeat(9 << 20));
    assert!(top.gpus.is_empty() && top.notes.len() == 1, "{:?}", top.notes);
}

#[test]
fn pods_of_another_scheduler_are_not_listed_unless_all_are_asked_for() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut with_gpu = agent_pod("team", "with-gpu");
    with_gpu["spec"]["schedulerName"] = json!(keys::SCHEDULER_NAME);
    let pods = vec![with_gpu, agent_pod("team", "without")];
    let count = |scheduler_name| {
        let state = async {
            let cluster = api_server(pods.clone(), |_| String::new());
            Cluster::new(cluster.client, scheduler_name).state().await.unwrap()
        };
        runtime.block_on(state).pods.len()
    };
    assert_eq!((count(keys::SCHEDULER_NAME), count(EVERY_POD)), (1, 2));
}

#[test]
fn refused_page_names_the_missing_right_and_a_failed_proxy_its_reason() {
    let forbidden =
        json!({"status": "Failure", "code": 403, "message": "pods \"x\" is forbidden"}).to_string();
    let error = format!("{:#}", refusal(StatusCode::FORBIDDEN, &forbidden));
    assert!(error.contains(RIGHTS) && error.contains("is forbidden"), "{error}");
    let error = format!("{:#}", refusal(StatusCode::SERVICE_UNAVAILABLE, "dial tcp: i/o timeout"));
    assert!(!error.contains(RIGHTS) && error.contains("dial tcp: i/o timeout"), "{error}");
}
