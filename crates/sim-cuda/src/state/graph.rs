//! Graphs: captured nodes, and the executable parts that are made from them.

use super::context::{Context, Device};
use super::host::{self, Call};
use super::status_of;
use super::stream::{Effect, Stream};
use crate::border::Status;
use sluice_driver_api::CUresult;
use sluice_sim::client;
use sluice_sim::client::StreamCommand;
use sluice_sim::engine::{Node, Work};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

#[derive(Clone)]
pub(crate) enum Body {
    Work { work: Work, effect: Option<Effect> },
    Host(Call),
}

#[derive(Clone)]
pub(crate) struct GraphNode {
    pub(crate) body: Body,
    /// Nodes before it, all with smaller numbers.
    pub(crate) dependencies: Vec<usize>,
}

/// A graph of which the program has a handle.
pub(crate) struct GraphObject {
    pub(crate) handle: usize,
    pub(crate) nodes: Mutex<Vec<GraphNode>>,
}

/// The nodes for which no other node waits; `first` is the number of the first one in the slice.
pub(crate) fn leaves(nodes: &[GraphNode], first: usize) -> Vec<usize> {
    let inner: HashSet<usize> = nodes.iter().flat_map(|node| node.dependencies.iter().copied()).collect();
    (first..first + nodes.len()).filter(|index| !inner.contains(index)).collect()
}

/// A part of a graph that is launched as one command.
enum Part {
    /// A graph that the daemon has registered, and the effects of its nodes on memory, in topological order.
    Device { graph: u64, effects: Vec<Effect> },
    /// A host function between two device parts.
    Host(Call),
}

/// A graph that can be launched. Host nodes cut it into parts that run one after the other.
pub(crate) struct Exec {
    pub(crate) handle: usize,
    pub(crate) nodes: Vec<GraphNode>,
    device: Arc<Device>,
    parts: Vec<Part>,
}

impl Exec {
    /// `relaunches`: its device part begins again at its end.
    pub(crate) fn new(
        handle: usize,
        context: &Context,
        nodes: Vec<GraphNode>,
        relaunches: bool,
    ) -> Result<Self, CUresult> {
        let device = context.device.clone();
        let mut parts = Vec::new();
        let mut begin = 0;
        while begin < nodes.len() {
            let is_host = |node: &GraphNode| matches!(node.body, Body::Host(_));
            let end = nodes[begin..].iter().position(is_host).map_or(nodes.len(), |offset| begin + offset);
            if end > begin {
                parts.push(device_part(&device, &nodes, begin..end, relaunches)?);
            }
            if let Some(Body::Host(call)) = nodes.get(end).map(|node| &node.body) {
                parts.push(Part::Host(*call));
            }
            begin = end + 1;
        }
        Ok(Self { handle, nodes, device, parts })
    }

    pub(crate) fn launch(&self, stream: &Arc<Stream>) -> Status {
        for part in &self.parts {
            match part {
                Part::Host(call) => host::launch(stream, *call)?,
                Part::Device { graph, effects } => {
                    let effects = effects.clone();
                    let all = (!effects.is_empty()).then(|| {
                        Box::new(move || effects.iter().for_each(|effect| effect())) as client::Effect
                    });
                    stream.submit(StreamCommand::Graph(*graph), all)?;
                }
            }
        }
        Ok(())
    }
}

fn device_part(
    device: &Device,
    nodes: &[GraphNode],
    Range { start: begin, end }: Range<usize>,
    relaunches: bool,
) -> Result<Part, CUresult> {
    let mut known: Vec<Node> = Vec::new();
    let mut effects = Vec::new();
    for (index, node) in nodes[begin..end].iter().enumerate() {
        let Body::Work { work, effect } = &node.body else { continue };
        known.push(Node { work: *work, successors: Vec::new() });
        effects.extend(effect.clone());
        for dependency in node.dependencies.iter().filter(|dependency| **dependency >= begin) {
            known[dependency - begin].successors.push(index);
        }
    }
    let graph = device.gpu.add_graph(known, relaunches).map_err(status_of)?;
    Ok(Part::Device { graph, effects })
}

impl Drop for Exec {
    fn drop(&mut self) {
        for part in &self.parts {
            if let Part::Device { graph, .. } = part {
                let _ = self.device.gpu.drop_graph(*graph);
            }
        }
    }
}
