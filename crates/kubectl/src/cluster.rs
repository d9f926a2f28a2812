//! Reads the cluster through the API server, with the rights of the user's kubeconfig.

use std::time::Duration;

use anyhow::{Context, anyhow};
use futures::{StreamExt, stream};
use hyper::Request;
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodSpec};
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use sluice_placement::annotations::{SpecDemand, keys, parse_thousandths};
use sluice_placement::inventory::NodeInventory;
use tokio::time::timeout;

use crate::arguments::ClusterArguments;
use crate::cluster_state::{ClusterState, NodeFacts, PodFacts};
use crate::explain::{Explanation, PodEvent};
use crate::top::Top;

/// What the user may lack, and where the documents say more.
const RIGHTS: &str =
    "bind the ClusterRole and the Role sluice-kubectl to the user: docs/operators/kubectl.md";

/// The pods that count: the others have ended.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Longest time for the page of one agent.
const PAGE_TIMEOUT: Duration = Duration::from_secs(4);

/// Agents that are read at the same time.
const CONCURRENT_PAGES: usize = 16;

/// A connection to a cluster.
pub(crate) struct Cluster {
    client: Client,
}

/// The node agent's pod of a node.
struct Agent {
    node: String,
    /// Path of its metrics at the API server.
    path: String,
}

impl Cluster {
    /// Connects as the kubeconfig says; inside a pod without one, with the pod's service account.
    pub(crate) async fn connect(arguments: &ClusterArguments) -> anyhow::Result<Self> {
        let options =
            KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
        let config = match &arguments.kubeconfig {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path)
                    .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(anyhow::Error::from)
            }
            None if options.context.is_some() => {
                Config::from_kubeconfig(&options).await.map_err(anyhow::Error::from)
            }
            None => Config::infer().await.map_err(anyhow::Error::from),
        };
        let client = Client::try_from(config.context("cannot find a cluster in the kubeconfig")?);
        Ok(Self { client: client.context("cannot use the kubeconfig")? })
    }

    /// The nodes with GPUs, and the pods.
    pub(crate) async fn state(&self) -> anyhow::Result<ClusterState> {
        self.read().await.map(|(state, _)| state)
    }

    /// All GPUs with their pods. If an agent's page cannot be read, a note says why.
    pub(crate) async fn top(&self) -> anyhow::Result<Top> {
        let (state, agents) = self.read().await?;
        let mut top = Top::of_cluster(&state);
        let pages = stream::iter(agents).map(|agent| async {
            let page = self.page(&agent).await;
            (agent.node, page)
        });
        let pages: Vec<_> = pages.buffer_unordered(CONCURRENT_PAGES).collect().await;
        for (node, page) in pages {
            let added = page.and_then(|page| top.add_page(&node, &page).map_err(|why| anyhow!(why)));
            if let Err(why) = added {
                top.notes.push(format!("the metrics of {node} are missing: {why:#}"));
            }
        }
        top.notes.sort();
        Ok(top)
    }

    /// Why a pod waits, or what it has.
    pub(crate) async fn explain(&self, namespace: Option<&str>, name: &str) -> anyhow::Result<Explanation> {
        let namespace = namespace.unwrap_or_else(|| self.client.default_namespace());
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = api.get(name).await.map_err(|error| explained(error, "read the pod"))?;
        let state = self.state().await?;
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let of_pod = format!("involvedObject.uid={}", pod.uid().unwrap_or_default());
        let events = api.list(&ListParams::default().fields(&of_pod)).await;
        let mut events = events.map_err(|error| explained(error, "list the pod's events"))?.items;
        events.sort_by_key(|event| {
            let last = event.last_timestamp.as_ref().map(|time| time.0);
            last.or(event.event_time.as_ref().map(|time| time.0))
        });
        Ok(Explanation::of(&pod_facts(pod), &state, events.into_iter().map(pod_event).collect()))
    }

    async fn read(&self) -> anyhow::Result<(ClusterState, Vec<Agent>)> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let pods: Api<Pod> = Api::all(self.client.clone());
        // From the API server's cache: a list of all pods every few seconds does not reach etcd.
        let (all, not_ended) =
            (ListParams::default().match_any(), ListParams::default().match_any().fields(NOT_ENDED));
        let (nodes, pods) = tokio::join!(nodes.list(&all), pods.list(&not_ended));
        let nodes = nodes.map_err(|error| explained(error, "list the nodes"))?.items;
        let pods = pods.map_err(|error| explained(error, "list the pods of all namespaces"))?.items;
        let agents = pods.iter().filter_map(agent).collect();
        let mut nodes: Vec<NodeFacts> = nodes.into_iter().filter_map(node_facts).collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((ClusterState { nodes, pods: pods.into_iter().map(pod_facts).collect() }, agents))
    }

    async fn page(&self, agent: &Agent) -> anyhow::Result<String> {
        let request = Request::get(&agent.path).body(Vec::new()).context("cannot form the request")?;
        let page = timeout(PAGE_TIMEOUT, self.client.request_text(request)).await;
        let page = page.map_err(|_| anyhow!("no answer within {} s", PAGE_TIMEOUT.as_secs()))?;
        page.map_err(|error| explained(error, "read the agent's page"))
    }
}

/// An error with what was tried, and with the missing right if that is the reason.
fn explained(error: kube::Error, what: &str) -> anyhow::Error {
    let is_forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
    let error = anyhow::Error::new(error);
    if is_forbidden {
        return error.context(format!("not permitted to {what} ({RIGHTS})"));
    }
    error.context(format!("cannot {what}"))
}

/// The agent in a pod, if it is one and runs.
fn agent(pod: &Pod) -> Option<Agent> {
    let spec = pod.spec.as_ref()?;
    if pod.labels().get("app.kubernetes.io/component").map(String::as_str) != Some("node-agent") {
        return None;
    }
    let container = spec.containers.iter().find(|container| container.name == "node-agent")?;
    let mut ports = container.ports.iter().flatten();
    let port = ports.find(|port| port.name.as_deref() == Some("metrics"))?.container_port;
    let namespace = pod.namespace()?;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}:{port}/proxy/metrics", pod.name_any());
    Some(Agent { node: spec.node_name.clone()?, path })
}

/// `None` for a node whose agent has reported no GPUs.
fn node_facts(node: Node) -> Option<NodeFacts> {
    let inventory = NodeInventory::from_annotation(node.annotations().get(keys::NODE_GPUS)?);
    Some(NodeFacts {
        name: node.name_any(),
        inventory: inventory
            .map_err(|why| format!("the annotation {} is not readable: {why}", keys::NODE_GPUS)),
        is_cordoned: node.spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
    })
}

fn pod_facts(pod: Pod) -> PodFacts {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let uid = pod.uid().unwrap_or_default();
    let is_ending = pod.metadata.deletion_timestamp.is_some();
    let mut annotations = pod.metadata.annotations.unwrap_or_default();
    annotations.retain(|key, _| key.starts_with(keys::PREFIX));
    let (spec, status) = (pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
    let mut conditions = status.conditions.into_iter().flatten();
    let failure = conditions.find(|one| one.type_ == "PodScheduled" && one.status == "False");
    PodFacts {
        namespace,
        name,
        uid,
        annotations,
        spec: SpecDemand { pod_priority: spec.priority.unwrap_or(0), device_slots: device_slots(&spec) },
        scheduler: spec.scheduler_name.unwrap_or_default(),
        node: spec.node_name.filter(|node| !node.is_empty()),
        nominated_node: status.nominated_node_name.filter(|node| !node.is_empty()),
        phase: status.phase.unwrap_or_default(),
        is_ending,
        scheduling_failure: failure.and_then(|one| one.message.or(one.reason)),
    }
}

/// The device slots of the containers that run as long as the pod.
fn device_slots(spec: &PodSpec) -> u64 {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let resources = spec.containers.iter().chain(sidecars).filter_map(|one| one.resources.as_ref());
    let requests = resources.filter_map(|resources| resources.requests.as_ref());
    let slots = requests.filter_map(|requests| parse_thousandths(&requests.get(keys::RESOURCE)?.0));
    slots.fold(0, u64::saturating_add) / 1000
}

fn pod_event(event: Event) -> PodEvent {
    PodEvent {
        kind: event.type_.unwrap_or_default(),
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default(),
    }
}
