//! Reads the cluster through the API server, with the rights of the user's kubeconfig.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, anyhow};
use futures::{StreamExt, stream};
use hyper::{Request, StatusCode};
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodSpec};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{Api, ListParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ObjectList, Status};
use kube::{Client, Config, ResourceExt};
use sluice_placement::annotations::{SpecDemand, keys, parse_thousandths};
use sluice_placement::inventory::NodeInventory;
use sluice_placement::share_config::DRIVER;
use tokio::time::timeout;

use crate::arguments::ClusterArguments;
use crate::claims;
use crate::cluster_state::{ClusterState, NodeFacts, PodFacts};
use crate::explain::{Explanation, PodEvent};
use crate::metrics_pages;
use crate::top::{Origin, Top};

/// What the user may lack, and where the documents say more.
const RIGHTS: &str =
    "bind the ClusterRole and the Role sluice-kubectl to the user: docs/operators/kubectl.md";

/// The pods that count: the others have ended.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Scheduler name that stands for every pod, as for the extender.
const EVERY_POD: &str = "all";

/// Label of the node agents' pods. A tenant's pod may have it, too.
const AGENTS: &str = "app.kubernetes.io/component=node-agent";

/// Longest time for the page of one agent.
const PAGE_TIMEOUT: Duration = Duration::from_secs(4);

const READ_PAGE: &str = "read the agent's page";

/// Agents that are read at the same time.
const CONCURRENT_PAGES: usize = 16;

/// A connection to a cluster.
pub(crate) struct Cluster {
    client: Client,
    /// Selects the pods that can have GPUs: those that the extender reads.
    pod_fields: String,
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
        Ok(Self::new(client.context("cannot use the kubeconfig")?, &arguments.scheduler_name))
    }

    /// The extender reserves GPUs only for pods with its scheduler's name, and the webhook refuses requests of pods with another.
    fn new(client: Client, scheduler_name: &str) -> Self {
        let mut pod_fields = NOT_ENDED.to_owned();
        if scheduler_name != EVERY_POD {
            pod_fields = format!("{pod_fields},spec.schedulerName={scheduler_name}");
        }
        Self { client, pod_fields }
    }

    /// All GPUs with their pods. If an agent's page cannot be read, a note says why.
    pub(crate) async fn top(&self, sluice_namespace: &str) -> anyhow::Result<Top> {
        let (state, agents) = tokio::try_join!(self.state(), self.agents(sluice_namespace))?;
        let mut top = Top::of_cluster(&state);
        if agents.is_empty() && !state.nodes.is_empty() {
            top.notes
                .push(format!("no node agent runs in the namespace {sluice_namespace} (--sluice-namespace)"));
        }
        let pages = stream::iter(agents).map(|agent| async {
            let page = self.page(&agent).await;
            (agent.node, page)
        });
        let mut pages = pin!(pages.buffer_unordered(CONCURRENT_PAGES));
        while let Some((node, page)) = pages.next().await {
            let origin = Origin::Node(&node);
            let added = page.and_then(|page| top.add_page(origin, &page).map_err(|why| anyhow!(why)));
            if let Err(why) = added {
                top.notes.push(format!("the metrics of {node} are missing: {why:#}"));
            }
        }
        top.finish();
        Ok(top)
    }

    /// Why a pod waits, or what it has.
    pub(crate) async fn explain(&self, namespace: Option<&str>, name: &str) -> anyhow::Result<Explanation> {
        let namespace = namespace.unwrap_or_else(|| self.client.default_namespace());
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = api.get(name).await.map_err(|error| explained(error, "read the pod"))?;
        let mut state = self.state().await?;
        // Nodes that give their GPUs by claims take no annotated pod.
        state.nodes.retain(|node| !node.gives_gpus_by_claims);
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

    /// The nodes with GPUs, and the pods that can have GPUs.
    pub(crate) async fn state(&self) -> anyhow::Result<ClusterState> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let pods: Api<Pod> = Api::all(self.client.clone());
        // From the API server's cache: a list of all pods every few seconds does not reach etcd.
        let (all, with_gpus) = (cached(), cached().fields(&self.pod_fields));
        let (nodes, pods, claims) = tokio::join!(nodes.list(&all), pods.list(&with_gpus), self.claims());
        let nodes = nodes.map_err(|error| explained(error, "list the nodes"))?.items;
        let pods = pods.map_err(|error| explained(error, "list the pods of all namespaces"))?.items;
        let (slices, claims) = claims?;
        let mut nodes: Vec<NodeFacts> =
            nodes.into_iter().filter_map(|node| node_facts(node, &slices)).collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        let mut pods: Vec<PodFacts> = pods.into_iter().map(pod_facts).collect();
        pods.extend(claims::pods_with_shares(&claims, &slices));
        Ok(ClusterState { nodes, pods })
    }

    /// The devices and claims of nodes that give GPUs by claims (DRA). None in a cluster without them: the API does not exist, or the chart
    /// gives no right to read it.
    async fn claims(&self) -> anyhow::Result<(Vec<ResourceSlice>, Vec<ResourceClaim>)> {
        let all = cached().fields(&format!("spec.driver={DRIVER}"));
        let slices = Api::<ResourceSlice>::all(self.client.clone()).list(&all).await;
        let slices = readable(slices).map_err(|error| explained(error, "list the ResourceSlices"))?;
        if slices.is_empty() {
            return Ok((slices, Vec::new()));
        }
        let claims = Api::<ResourceClaim>::all(self.client.clone()).list(&cached()).await;
        let claims = readable(claims).map_err(|error| explained(error, "list the ResourceClaims"))?;
        Ok((slices, claims))
    }

    /// The node agents that run. A pod of another namespace may have the agents' labels and serve any page.
    async fn agents(&self, sluice_namespace: &str) -> anyhow::Result<Vec<Agent>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), sluice_namespace);
        let pods = pods.list(&cached().labels(AGENTS)).await;
        let pods = pods.map_err(|error| explained(error, &format!("list the pods of {sluice_namespace}")))?;
        Ok(pods.iter().filter_map(|pod| agent(pod, sluice_namespace)).collect())
    }

    async fn page(&self, agent: &Agent) -> anyhow::Result<String> {
        let read = async {
            let request = Request::get(&agent.path).body(Body::empty()).context("cannot form the request")?;
            let answer = self.client.send(request).await.map_err(|error| explained(error, READ_PAGE))?;
            let status = answer.status();
            let text =
                metrics_pages::text(answer.into_body()).await.context(format!("cannot {READ_PAGE}"))?;
            if status.is_success() { Ok(text) } else { Err(refusal(status, &text)) }
        };
        let page = timeout(PAGE_TIMEOUT, read).await;
        page.map_err(|_| anyhow!("no answer within {} s", PAGE_TIMEOUT.as_secs()))?
    }
}

/// Parameters of a list from the API server's cache.
fn cached() -> ListParams {
    ListParams::default().match_any()
}

/// The error of an answer that is not a page.
fn refusal(status: StatusCode, text: &str) -> anyhow::Error {
    let parsed = serde_json::from_str(text).ok();
    let status: Status =
        parsed.unwrap_or_else(|| Status::failure(text.trim(), "").with_code(status.as_u16()));
    explained(kube::Error::Api(status.boxed()), READ_PAGE)
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

/// The agent in a pod of this namespace, if it is one and runs.
fn agent(pod: &Pod, namespace: &str) -> Option<Agent> {
    let spec = pod.spec.as_ref()?;
    let is_running = pod.status.as_ref()?.phase.as_deref() == Some("Running");
    if !is_running || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let container = spec.containers.iter().find(|container| container.name == "node-agent")?;
    let mut ports = container.ports.iter().flatten();
    let port = ports.find(|port| port.name.as_deref() == Some("metrics"))?.container_port;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}:{port}/proxy/metrics", pod.name_any());
    Some(Agent { node: spec.node_name.clone()?, path })
}

/// The objects of a list; none if the API does not exist or the user has no right to read it.
fn readable<T: Clone>(list: kube::Result<ObjectList<T>>) -> kube::Result<Vec<T>> {
    match list {
        Ok(list) => Ok(list.items),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// `None` for a node whose agent has reported no GPUs and no devices.
fn node_facts(node: Node, slices: &[ResourceSlice]) -> Option<NodeFacts> {
    let name = node.name_any();
    let annotation = node.annotations().get(keys::NODE_GPUS);
    let gives_gpus_by_claims = annotation.is_none();
    let inventory = match annotation {
        Some(annotation) => NodeInventory::from_annotation(annotation)
            .map_err(|why| format!("the annotation {} is not readable: {why}", keys::NODE_GPUS)),
        None => Ok(claims::inventory(&name, slices)?),
    };
    Some(NodeFacts {
        name,
        inventory,
        gives_gpus_by_claims,
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

#[cfg(test)]
mod tests;
