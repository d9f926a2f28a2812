//! A cluster: a fake API server, an extender, and calls as a kube-scheduler makes them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use sluice_placement::Strategy;
use sluice_placement::inventory::{Gpu, NodeInventory};
use tokio::task::JoinHandle;
use tower::ServiceExt;

use super::fake_api::Api;
use crate::extender::events;
use crate::extender::extender::{Extender, Policy};
use crate::extender::leadership::{LeadershipState, SettleTimes};
use crate::extender::metrics::Metrics;
use crate::extender::{budget_watch, http, lease, node_watch, pod_watch};

pub(super) const GIB: u64 = 1 << 30;

/// The limit of each wait. It decides no outcome: it only ends a test that hangs.
pub(super) const SOON: Duration = Duration::from_secs(20);

pub(super) fn policy() -> Policy {
    Policy {
        strategy: Strategy::Binpack,
        candidates: 3,
        always_score: false,
        reservation: Duration::from_secs(60),
        bind_timeout: Duration::from_millis(300),
        activation_timeout: Duration::from_millis(100),
        scale_up_after: Duration::ZERO,
        settle: SettleTimes { own: Duration::ZERO, takeover: Duration::ZERO },
        scheduler_name: Some("sluice-scheduler".into()),
    }
}

pub(super) fn uuid(node: &str, index: u32) -> String {
    format!("GPU-{node}-{index}")
}

pub(super) fn inventory(node: &str, gpus: u32) -> NodeInventory {
    let gpu = |index| Gpu {
        uuid: uuid(node, index),
        index,
        model: "NVIDIA H100".into(),
        memory_bytes: 80 * GIB,
        memory_total_bytes: None,
        host_memory_bytes: 0,
        numa: None,
        pci: String::new(),
        nvlink: Vec::new(),
        mig: None,
        healthy: true,
        unhealthy_reason: None,
    };
    NodeInventory::new(10, (0..gpus).map(gpu).collect())
}

pub(super) fn node(name: &str, gpus: u32) -> Value {
    let annotation = inventory(name, gpus).to_annotation().unwrap();
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": {"sluice.dev/gpus": annotation}}})
}

/// A waiting pod as the API has it. Its UID is its name and `-uid`.
pub(super) fn pod(name: &str, annotations: &[(&str, &str)]) -> Value {
    let annotations: serde_json::Map<String, Value> =
        annotations.iter().map(|(key, value)| (format!("sluice.dev/{key}"), json!(value))).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid"), "annotations": annotations},
        "spec": {"schedulerName": "sluice-scheduler", "containers": [{"name": "main",
            "resources": {"limits": {"sluice.dev/gpu": "1"}, "requests": {"sluice.dev/gpu": "1"}}}]},
        "status": {"phase": "Pending"},
    })
}

/// A running extender.
pub(super) struct Cluster {
    pub(super) extender: Arc<Extender>,
    tasks: Vec<JoinHandle<()>>,
}

impl Cluster {
    /// An extender that leads from the start.
    pub(super) async fn leading(client: kube::Client) -> Self {
        Self::leading_with(client, policy()).await
    }

    pub(super) async fn leading_with(client: kube::Client, policy: Policy) -> Self {
        let cluster = Self::start(client, policy);
        cluster.extender.leadership.set_leading(true);
        assert_eq!(cluster.extender.leadership.wait_until_active(SOON).await, LeadershipState::Active);
        cluster
    }

    /// An extender that does not lead.
    pub(super) fn start(client: kube::Client, policy: Policy) -> Self {
        let metrics = Metrics::new().unwrap();
        let (events, writer) = events::pair(100, metrics.events_dropped.clone());
        let extender = Arc::new(Extender::new(policy, client.clone(), metrics, events));
        let (for_nodes, for_pods, for_budgets) = (extender.clone(), extender.clone(), extender.clone());
        let tasks = vec![
            tokio::spawn(async move { node_watch::follow(&for_nodes).await }),
            tokio::spawn(async move { pod_watch::follow(&for_pods).await }),
            tokio::spawn(async move { budget_watch::follow(&for_budgets).await }),
            tokio::spawn(writer.write(client, "sluice-scheduler".into())),
        ];
        Self { extender, tasks }
    }

    /// Follows a lease as the replica of this name.
    pub(super) fn follow_lease(&mut self, pod_name: &'static str) {
        let extender = self.extender.clone();
        self.tasks.push(tokio::spawn(async move {
            lease::follow(&extender, "system", "the-lease", pod_name).await
        }));
    }

    /// Waits until the watches have made this true.
    pub(super) async fn until(&self, what: &str, is_true: impl Fn(&Extender) -> bool) {
        let mut changes = self.extender.changes();
        let wait = async {
            while !is_true(&self.extender) {
                changes.changed().await.unwrap();
            }
        };
        assert!(tokio::time::timeout(SOON, wait).await.is_ok(), "never: {what}");
    }

    /// Waits until this is true, which the extender does not report.
    pub(super) async fn poll(&self, what: &str, is_true: impl Fn(&Extender) -> bool) {
        let wait = async {
            while !is_true(&self.extender) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(tokio::time::timeout(SOON, wait).await.is_ok(), "never: {what}");
    }

    pub(super) async fn post(&self, verb: &str, body: &Value) -> (StatusCode, Value) {
        ask(&self.extender, verb, body).await
    }

    pub(super) async fn filter(&self, pod: &Value, nodes: &[&str]) -> Value {
        self.post("filter", &json!({"Pod": pod, "Nodes": null, "NodeNames": nodes})).await.1
    }

    /// Binds. Returns the answer's error, empty if there is none.
    pub(super) async fn bind(&self, pod: &Value, node: &str) -> String {
        let metadata = &pod["metadata"];
        let args = json!({"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"], "Node": node});
        let answer = self.post("bind", &args).await.1;
        answer["Error"].as_str().unwrap_or_default().to_owned()
    }

    /// Ends the extender: it learns and begins nothing any more. Returns when the API server has carried out or
    /// refused the requests sent before.
    pub(super) async fn kill(&self) {
        self.extender.leadership.set_leading(false);
        for task in &self.tasks {
            task.abort();
        }
        let mut sending = self.extender.sending();
        let quiet = sending.wait_for(|sending| *sending == 0);
        assert!(tokio::time::timeout(SOON, quiet).await.is_ok(), "a bind did not end");
    }
}

pub(super) async fn ask(extender: &Arc<Extender>, verb: &str, body: &Value) -> (StatusCode, Value) {
    let request = Request::post(format!("/{verb}")).body(Body::from(body.to_string())).unwrap();
    let response = http::verbs(extender.clone()).oneshot(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// The node names of a filter answer.
pub(super) fn names(answer: &Value) -> Vec<&str> {
    answer["NodeNames"]
        .as_array()
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// The GPUs that the API says the pod has.
pub(super) fn assigned(api: &Api, pod: &str) -> Option<String> {
    let pod = api.get(super::fake_api::PODS, &format!("default/{pod}"))?;
    pod["metadata"]["annotations"]["sluice.dev/assigned-gpu"].as_str().map(str::to_owned)
}
