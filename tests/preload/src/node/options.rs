//! What a node is started with.

use super::{Node, between_polls};
use crate::artifacts::{self, Artifacts};
use crate::stepped_clock::SteppedClock;
use crate::waiting::TIMEOUT;
use sluice_test_bed::{TestBed, TestBedOptions};
use std::cell::Cell;
use std::path::PathBuf;

/// Options of a node.
#[derive(Debug, Default)]
#[must_use = "a node runs only once started"]
pub struct NodeOptions {
    resources: String,
    manager_arguments: Vec<String>,
    simulator_arguments: Vec<String>,
    without_manager: bool,
    measures_memory: bool,
    stepped: bool,
    further_gpus: usize,
    other_simulator: Option<PathBuf>,
}

impl NodeOptions {
    /// A node with this resource file: Gemini's text, or YAML if it contains "clients:".
    pub(super) fn new(resources: &str) -> Self {
        Self { resources: resources.to_owned(), ..Self::default() }
    }

    /// More arguments of `sluice pod-manager`, separated by blanks.
    pub fn manager_arguments(mut self, arguments: &str) -> Self {
        self.manager_arguments.extend(arguments.split_whitespace().map(str::to_owned));
        self
    }

    /// More arguments of `sluice sim`, separated by blanks.
    pub fn simulator_arguments(mut self, arguments: &str) -> Self {
        self.simulator_arguments.extend(arguments.split_whitespace().map(str::to_owned));
        self
    }

    /// The GPU's time stands still unless the test waits for something of this node or of its tenants: each poll advances it by 1 ms.
    /// For tests whose outcome may not depend on the speed of the host, and in which nothing compares the GPU's time with the host's.
    pub fn stepped(mut self) -> Self {
        self.stepped = true;
        self.simulator_arguments("--clock stepped")
    }

    /// The simulator simulates this many GPUs. This node's pod-manager has the first; another node takes one by [`Self::on_gpu`].
    pub fn gpus(mut self, gpus: usize) -> Self {
        self.further_gpus = gpus.saturating_sub(1);
        self
    }

    /// The node has a GPU of another node, from [`Node::socket_of_gpu`], and a pod-manager of its own for it. It must end first.
    pub fn on_gpu(mut self, socket: PathBuf) -> Self {
        self.other_simulator = Some(socket);
        self
    }

    /// The pod-manager reads the memory of processes from the simulated GPU's NVML.
    pub fn measuring_memory(mut self) -> Self {
        self.measures_memory = true;
        self
    }

    /// No pod-manager is started.
    pub fn without_manager(mut self) -> Self {
        self.without_manager = true;
        self
    }

    /// Starts the node and waits until it serves.
    ///
    /// # Panics
    /// When a process does not start.
    pub fn start(mut self) -> Node {
        let artifacts = artifacts::built();
        // Where channel groups are controlled, attached processes are inspected, as on a cluster.
        if self.manager_arguments.join(" ").contains("--controls simulated") {
            self.manager_arguments.push("--adopt=auto".to_owned());
        }
        let options = TestBedOptions {
            simulated: true,
            gpus: 1 + self.further_gpus,
            other_simulator: self.other_simulator,
            simulator_flags: self.simulator_arguments,
            resource_file: self.resources,
            manager_flags: self.manager_arguments,
            measures_memory: self.measures_memory,
            with_manager: !self.without_manager,
            environment: Vec::new(),
            with_tcp: true,
            ready_timeout: TIMEOUT,
            directory_prefix: "preload-node-".to_owned(),
        };
        let Artifacts { sluice, hook, simulator, .. } = artifacts;
        let programs = sluice_test_bed::Artifacts {
            sluice: sluice.clone(),
            hook: hook.clone(),
            simulator: simulator.clone(),
        };
        let bed = TestBed::start(programs, options, between_polls)
            .unwrap_or_else(|error| panic!("starting the node: {error:#}"));
        let stepped = self.stepped.then(|| SteppedClock::of(bed.gpu()));
        let simulator = bed.simulator_socket();
        Node {
            artifacts,
            gpu: bed.gpu(),
            stepped,
            simulator,
            started: Cell::new(0),
            violation: Cell::new(None),
            bed,
        }
    }
}
