//! The part of a pod's specification that matters for its placement, and for the room that its eviction makes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_placement::annotations::{SpecDemand, keys, parse_thousandths};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodSpec {
    pub(super) node_name: Option<String>,
    priority: Option<i32>,
    preemption_policy: Option<String>,
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
    overhead: Option<IgnoredAny>,
    resources: Option<IgnoredAny>,
    resource_claims: Option<Vec<IgnoredAny>>,
    volumes: Option<Vec<BTreeMap<String, IgnoredAny>>>,
    affinity: Option<Affinity>,
    topology_spread_constraints: Option<Vec<Constraint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    /// `Always` in a sidecar, which is an init container that runs as long as the pod.
    restart_policy: Option<String>,
    resources: Option<Resources>,
    ports: Option<Vec<Port>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Resources {
    requests: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    host_port: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Affinity {
    node_affinity: Option<Terms>,
    pod_affinity: Option<Terms>,
    pod_anti_affinity: Option<Terms>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terms {
    /// A list, or an object for node affinity.
    required_during_scheduling_ignored_during_execution: Option<IgnoredAny>,
    preferred_during_scheduling_ignored_during_execution: Option<Vec<IgnoredAny>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Constraint {
    #[serde(default)]
    when_unsatisfiable: String,
}

/// Volumes that do not limit the nodes of a pod.
const LOCAL_VOLUMES: [&str; 6] = ["emptyDir", "configMap", "secret", "projected", "downwardAPI", "hostPath"];

impl PodSpec {
    /// The value of its PriorityClass, which the API server has written into it; 0 without one.
    pub(crate) fn priority(&self) -> i32 {
        self.priority.unwrap_or(0)
    }

    /// Whether its PriorityClass lets it evict other pods.
    pub(crate) fn may_preempt(&self) -> bool {
        self.preemption_policy.as_deref() != Some("Never")
    }

    /// What its containers request, in thousandths of each resource's unit.
    pub(crate) fn requests(&self) -> BTreeMap<String, u64> {
        let mut sum = BTreeMap::new();
        for (name, text) in self.container_requests() {
            let amount = parse_thousandths(text).unwrap_or(0);
            let entry: &mut u64 = sum.entry(name.clone()).or_default();
            *entry = entry.saturating_add(amount);
        }
        sum
    }

    /// What it adds to the demand in the pod's annotations.
    pub(crate) fn demand(&self) -> SpecDemand {
        SpecDemand { pod_priority: self.priority(), device_slots: self.device_slots() }
    }

    fn device_slots(&self) -> u64 {
        let sidecars = self.init_containers.iter().flatten();
        let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let requests = requests_of(self.containers.iter().flatten().chain(sidecars));
        let slots = requests.filter(|(name, _)| *name == keys::RESOURCE);
        slots.filter_map(|(_, text)| parse_thousandths(text)).fold(0, u64::saturating_add) / 1000
    }

    /// Whether the stock scheduler counts more for this pod than [`requests`](Self::requests): other resources, ports,
    /// volumes, or constraints between pods.
    pub(crate) fn has_uncounted_needs(&self) -> bool {
        let ports = self.containers.iter().flatten().flat_map(|container| container.ports.iter().flatten());
        let volumes = self.volumes.iter().flatten().flat_map(BTreeMap::keys);
        let affinity = self.affinity.as_ref();
        let terms =
            affinity.into_iter().flat_map(|one| [&one.pod_affinity, &one.pod_anti_affinity]).flatten();
        let constraints = self.topology_spread_constraints.iter().flatten();
        self.init_containers.as_ref().is_some_and(|list| !list.is_empty())
            || self.resource_claims.as_ref().is_some_and(|list| !list.is_empty())
            || self.overhead.is_some()
            || self.resources.is_some()
            || self.container_requests().any(|(_, text)| parse_thousandths(text).is_none())
            || ports.into_iter().any(|port| port.host_port.is_some())
            || volumes.into_iter().any(|key| key != "name" && !LOCAL_VOLUMES.contains(&&**key))
            || terms.into_iter().any(|one| one.required_during_scheduling_ignored_during_execution.is_some())
            || constraints.into_iter().any(|one| one.when_unsatisfiable != "ScheduleAnyway")
    }

    /// Whether the pod has to be beside other pods.
    pub(crate) fn has_required_pod_affinity(&self) -> bool {
        let terms = self.affinity.as_ref().and_then(|one| one.pod_affinity.as_ref());
        terms.is_some_and(|terms| terms.required_during_scheduling_ignored_during_execution.is_some())
    }

    /// Whether the pod has soft preferences among nodes, so that the scheduler's scores matter.
    pub(crate) fn has_soft_preferences(&self) -> bool {
        let affinity = self.affinity.as_ref();
        let kinds = affinity.map(|one| [&one.node_affinity, &one.pod_affinity, &one.pod_anti_affinity]);
        let preferred = kinds.into_iter().flatten().flatten();
        let mut preferred =
            preferred.filter_map(|terms| terms.preferred_during_scheduling_ignored_during_execution.as_ref());
        let mut constraints = self.topology_spread_constraints.iter().flatten();
        preferred.any(|terms| !terms.is_empty())
            || constraints.any(|constraint| constraint.when_unsatisfiable == "ScheduleAnyway")
    }

    fn container_requests(&self) -> impl Iterator<Item = (&String, &String)> {
        requests_of(self.containers.iter().flatten())
    }
}

fn requests_of<'a>(
    containers: impl Iterator<Item = &'a Container>,
) -> impl Iterator<Item = (&'a String, &'a String)> {
    let resources = containers.filter_map(|container| container.resources.as_ref());
    resources.filter_map(|resources| resources.requests.as_ref()).flatten()
}
