use super::*;
use crate::clients::GpuTime;
use crate::definition::{ClientKey, Definition};
use crate::io::test_io;
use crate::processes::Endpoint;
use sluice_comm::page::grant::GATE_CLOSED;
use sluice_comm::page::{Flags, PAGE_VERSION};
use sluice_core::channel_groups::{ChannelGroupPolicy, ChannelGroupScheduler};
use sluice_core::ledger::{Class, ClientSpec, Policy, ReturnKind};
use sluice_core::processes::ProcessPolicy;
use sluice_core::share::Share;
use sluice_core::{ClientId, ConnectionId};
use std::collections::BTreeSet;

/// A best-effort and a latency-critical client with one process each.
struct Parts {
    clients: Clients,
    processes: Processes,
    ledger: TokenLedger,
    io: Io,
    best_effort: ProcessId,
    critical: ProcessId,
}

impl Parts {
    fn new() -> Self {
        let (io, mut clients) = (test_io(), Clients::default());
        let scheduler = ChannelGroupScheduler::new(ChannelGroupPolicy::default());
        let mut processes = Processes::new(scheduler, ProcessPolicy::default());
        let mut ledger = TokenLedger::new(Policy::default());
        let mut add = |name: &str, class| {
            let spec = ClientSpec { request: Share::ZERO, limit: Share::ONE, class };
            let key = ClientKey::Named(name.into());
            let metrics = io.metrics.add(&key).unwrap();
            let client = clients.add(
                Definition { key, spec, memory: 0, slo_ns: 0, overcommit: false, gang: None },
                metrics,
                GpuTime::new(1, 0),
            );
            ledger.set_client(client, spec, io.now());
            (client, process(client, &mut processes, &io))
        };
        let (best_effort, critical) = (add("be", Class::BestEffort), add("lc", Class::LatencyCritical));
        for (client, id) in [best_effort, critical] {
            ledger.add_process(id, client, ReturnKind::Returns).unwrap();
        }
        let (client, critical) = critical;
        let owner = (client, Class::LatencyCritical);
        let none = (Vec::new(), &BTreeSet::new());
        processes.scheduler.announce(critical, owner, none, &mut ledger, io.now());
        Self { clients, processes, ledger, io, best_effort: best_effort.1, critical }
    }

    /// Gates that know of both processes.
    fn gates(&self, policy: GatePolicy, of: GatedProcesses) -> StreamGates {
        let mut gates = StreamGates::new(policy, of);
        [self.best_effort, self.critical].into_iter().for_each(|id| gates.process_changed(id));
        gates
    }

    fn update(&mut self, gates: &mut StreamGates) -> GateState {
        gates.update(&self.clients, &mut self.processes, &mut self.ledger, &self.io);
        gates.gates.state()
    }

    fn announce(&self, gates: &mut StreamGates, id: ProcessId, now: u64) {
        gates.announce(id, 1_500, now, &self.clients, &self.processes);
    }

    fn add_process(&mut self, client: ClientId) -> ProcessId {
        process(client, &mut self.processes, &self.io)
    }

    fn set_busy(&self, busy: bool) {
        let pages = pages(&self.processes, self.critical).unwrap();
        pages.report().set_activity(busy, self.io.now());
    }
}

fn process(client: ClientId, processes: &mut Processes, io: &Io) -> ProcessId {
    let mut endpoint = Endpoint::default();
    endpoint.provide_pages(ProcessId(0), PAGE_VERSION, Flags::default(), io).unwrap();
    let mut process = Process::new(client, None, None, endpoint);
    process.token = Some(ConnectionId(client.0));
    processes.add(process)
}

#[test]
fn gates_are_closed_and_grants_withheld_while_a_latency_critical_process_is_busy() {
    let mut parts = Parts::new();
    let mut gates = parts.gates(GatePolicy { idle_ns: 0, ..GatePolicy::default() }, GatedProcesses::All);
    assert_eq!(parts.update(&mut gates), GateState::Open);
    parts.set_busy(true);
    assert_eq!(parts.update(&mut gates), GateState::Closed);
    assert!(parts.ledger.is_withheld());
    parts.set_busy(false);
    assert_eq!(parts.update(&mut gates), GateState::Open);
    assert!(!parts.ledger.is_withheld());
}

#[test]
fn announcement_closes_the_gates_for_a_latency_critical_process_only() {
    let mut parts = Parts::new();
    let mut gates = parts.gates(GatePolicy { idle_ns: 0, ..GatePolicy::default() }, GatedProcesses::All);
    let now = parts.io.now();
    parts.announce(&mut gates, parts.best_effort, now);
    assert_eq!(parts.update(&mut gates), GateState::Open);
    parts.announce(&mut gates, parts.critical, u64::MAX - 3_000_000);
    assert_eq!(parts.update(&mut gates), GateState::Closed);
    gates.forget(parts.critical);
    assert_eq!(parts.update(&mut gates), GateState::Open);
}

#[test]
fn announcement_of_a_process_that_is_no_longer_attached_ends_at_its_time() {
    let mut parts = Parts::new();
    let mut gates = parts.gates(GatePolicy::default(), GatedProcesses::All);
    parts.announce(&mut gates, parts.critical, 0);
    assert!(!gates.announced.is_empty());
    parts.processes.get_mut(parts.critical).unwrap().token = None;
    parts.update(&mut gates);
    assert!(gates.announced.is_empty());
}

#[test]
fn gates_are_unwanted_without_a_process_that_has_some() {
    let mut parts = Parts::new();
    let mut gates = parts.gates(GatePolicy::default(), GatedProcesses::Off);
    parts.set_busy(true);
    assert_eq!(parts.update(&mut gates), GateState::Unwanted);
}

#[test]
fn update_visits_only_the_processes_that_a_change_concerns() {
    let mut parts = Parts::new();
    let mut gates = parts.gates(GatePolicy { idle_ns: 0, ..GatePolicy::default() }, GatedProcesses::All);
    let client = parts.processes.client_of(parts.best_effort).unwrap();
    let others: Vec<ProcessId> = (0..50).map(|_| parts.add_process(client)).collect();
    others.iter().for_each(|id| gates.process_changed(*id));
    let closed = |parts: &Parts| {
        let words = others.iter().map(|id| pages(&parts.processes, *id).unwrap().grant().gate_word());
        words.filter(|word| word & GATE_CLOSED != 0).count()
    };
    assert_eq!(parts.update(&mut gates), GateState::Open);
    gates.visits.take();
    for _ in 0..10 {
        parts.update(&mut gates);
    }
    assert_eq!(gates.visits.take(), 0, "nothing has changed");
    gates.process_changed(others[7]);
    parts.update(&mut gates);
    assert_eq!(gates.visits.take(), 2, "it is compared and told");
    parts.set_busy(true);
    assert_eq!(parts.update(&mut gates), GateState::Closed);
    assert_eq!((gates.visits.take(), closed(&parts)), (51, 50), "each gated process is told once");
    parts.processes.get_mut(others[7]).unwrap().token = None;
    gates.process_changed(others[7]);
    parts.update(&mut gates);
    assert_eq!((gates.visits.take(), closed(&parts)), (2, 49));
    gates.forget(others[8]);
    parts.set_busy(false);
    assert_eq!(parts.update(&mut gates), GateState::Open);
    assert_eq!(gates.visits.take(), 49);
}
