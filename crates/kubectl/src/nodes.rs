//! `kubectl sluice nodes`: what each node has, and what is free.

use serde::Serialize;

use crate::cluster_state::{ClusterState, GpuRoom, NodeFacts, sum};
use crate::text::{self, Line, count, memory, printable, share};

/// The output of the command.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Nodes {
    /// Nodes whose agent has reported GPUs, by name.
    pub(crate) nodes: Vec<NodeRow>,
}

/// One node.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct NodeRow {
    pub(crate) node: String,
    /// Models of its GPUs, each once.
    pub(crate) models: Vec<String>,
    /// Share that pods are guaranteed, of all GPUs together.
    pub(crate) promised_share: f64,
    /// Share that new pods can be guaranteed, of all GPUs together.
    pub(crate) free_share: f64,
    /// The largest share that one new pod can be guaranteed of one GPU.
    pub(crate) largest_free_share: f64,
    /// The most memory that one new pod can get on one GPU.
    pub(crate) largest_free_memory_bytes: u64,
    /// kube-scheduler places no new pods on it.
    pub(crate) cordoned: bool,
    /// Why the node's annotation cannot be read; then it has no GPUs here.
    pub(crate) error: Option<String>,
    pub(crate) gpus: Vec<GpuRoom>,
}

impl Nodes {
    pub(crate) fn of(cluster: &ClusterState) -> Self {
        let mut rooms = cluster.rooms(&cluster.index());
        let row = |node: &NodeFacts| NodeRow::new(node, rooms.remove(node.name.as_str()).unwrap_or_default());
        Self { nodes: cluster.nodes.iter().map(row).collect() }
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        if self.nodes.is_empty() {
            return vec![Line::Note("No node has GPUs of Sluice.".to_owned())];
        }
        let heading = Line::heading(&[
            "NODE",
            "GPUS",
            "MODEL",
            "PROMISED",
            "FREE",
            "LARGEST FREE",
            "LARGEST FREE MEMORY",
            "PODS",
            "HEALTH",
        ]);
        std::iter::once(heading).chain(self.nodes.iter().map(NodeRow::line)).collect()
    }
}

impl NodeRow {
    fn new(node: &NodeFacts, gpus: Vec<GpuRoom>) -> Self {
        let mut models: Vec<String> = gpus.iter().filter_map(|gpu| gpu.model.clone()).collect();
        models.sort();
        models.dedup();
        Self {
            node: node.name.clone(),
            models,
            promised_share: sum(gpus.iter().map(|gpu| gpu.promised_share)),
            free_share: sum(gpus.iter().map(|gpu| gpu.free_share)),
            largest_free_share: gpus.iter().map(|gpu| gpu.free_share).fold(0.0, f64::max),
            largest_free_memory_bytes: gpus.iter().map(|gpu| gpu.free_memory_bytes).max().unwrap_or(0),
            cordoned: node.is_cordoned,
            error: node.inventory.as_ref().err().cloned(),
            gpus,
        }
    }

    fn line(&self) -> Line {
        Line::Cells(vec![
            self.node.clone(),
            self.gpus.len().to_string(),
            printable(&self.models.join(", ")),
            share(self.promised_share),
            share(self.free_share),
            share(self.largest_free_share),
            memory(self.largest_free_memory_bytes),
            self.gpus.iter().map(|gpu| gpu.pods).sum::<u32>().to_string(),
            self.health(),
        ])
    }

    fn health(&self) -> String {
        let unhealthy: Vec<&GpuRoom> = self.gpus.iter().filter(|gpu| !gpu.healthy).collect();
        let mut facts = Vec::new();
        facts.extend(self.error.as_ref().map(|why| format!("unreadable: {why}")));
        if let Some(first) = unhealthy.first() {
            let why = first.unhealthy_reason.as_deref().unwrap_or("no reason given");
            facts.push(format!("{} unhealthy: {why}", count(unhealthy.len(), "GPU")));
        }
        if self.cordoned {
            facts.push("cordoned".to_owned());
        }
        if facts.is_empty() { "healthy".to_owned() } else { text::printable(&facts.join("; ")) }
    }
}

#[cfg(test)]
mod tests;
