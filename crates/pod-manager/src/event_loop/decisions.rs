//! The decisions of a round: the token ledger decides, the parts carry out what it decided. Then the pages show what each process needs to know
//! of the others. There may be thousands of processes; a round visits only those whose pages depend on others.

use super::EventLoop;
use crate::processes::{Event, activity, read_activity};
use sluice_comm::HandOffStep;
use sluice_core::channel_groups::QuantumState;
use sluice_core::ledger::Action;
use sluice_core::{ClientId, ProcessId};
use std::collections::BTreeSet;

/// How often the ledger decides in one round. A decision takes time, and with short grants the next one is due by then: without a bound
/// the loop would decide for seconds without reading a request. Most rounds need two, of which the last finds nothing left to decide.
const DECISIONS_PER_ROUND: usize = 8;

impl EventLoop {
    /// Lets the ledger decide and carries out its decisions. If there is something left to decide, the next round follows at once.
    pub(super) fn decide(&mut self) {
        self.apply(Event::RoundBegins);
        self.gangs.update(&self.clients, &mut self.grants.ledger);
        self.residency.update(&self.clients, &self.processes, self.io.now());
        let Self { suspensions, residency, stalled, connections, clients, processes, grants, io, .. } = self;
        suspensions.update(residency, clients, processes, &mut grants.ledger, io);
        stalled.update(&mut *connections.peers, clients, processes, grants, io);
        self.undecided = (0..DECISIONS_PER_ROUND).all(|_| self.decide_once());
        self.apply(Event::RoundEnds);
        self.begin_control();
        self.publish_contenders();
        self.grants.show_hand_off(&self.processes, self.io.now());
    }

    /// Returns `false` if there was nothing to decide.
    pub(super) fn decide_once(&mut self) -> bool {
        self.beat();
        read_activity(&mut self.processes);
        let Self { clients, processes, io, .. } = self;
        let ledger = &mut self.grants.ledger;
        self.deadlines.update(clients, processes, ledger, io.now());
        let now = io.now();
        processes.scheduler.request_and_return_grants(ledger, now);
        let actions = ledger.advance(now);
        if actions.is_empty() && !self.request_wakeups() {
            return false;
        }
        self.io.record_step(HandOffStep::Decided);
        if let Some(recording) = self.io.trace.recording() {
            recording.decisions(&actions, &self.grants.ledger, &self.processes.scheduler, now);
        }
        for action in in_order_of_urgency(&actions) {
            let Self { grants, clients, processes, io, .. } = self;
            let answers = grants.apply(action, clients, processes, io);
            self.send(answers);
        }
        true
    }

    /// The processes whose pages depend on what others do: those that the scheduler observes, and the latency-critical ones.
    fn concerned(&self) -> BTreeSet<ProcessId> {
        let observed = self.processes.scheduler.observed_processes();
        observed.chain(self.grants.ledger.critical_processes()).collect()
    }

    /// Requests a wake-up from every idle process whose work matters to the scheduler. Returns `true` if one became busy
    /// before it was asked.
    fn request_wakeups(&mut self) -> bool {
        self.marked.extend(self.concerned());
        let Self { processes, io, .. } = self;
        let (now, mut busy) = (io.now(), false);
        for id in &self.marked {
            let scheduler = &processes.scheduler;
            let by_quanta =
                scheduler.quantum_state(*id) == Some(QuantumState::Idle) || scheduler.is_absent(*id, now);
            let Some(process) = processes.get_mut(*id) else { continue };
            let wanted = by_quanta || self.deadlines.needs_wakeup(*id, process);
            let endpoint = &mut process.endpoint;
            if endpoint.pages.is_none() || endpoint.wakeups.requested_since.is_some() == wanted {
                continue;
            }
            endpoint.request_wakeups(wanted.then_some(now));
            // What it wrote before the request has woken no thread, so its page is read after the request.
            busy |= wanted && activity(process).busy;
        }
        busy
    }

    /// Writes on each page whether the process is latency-critical and which slices are in force beside it. For latency-critical and
    /// hardware-scheduled processes it also writes how many others may use the GPU. In each round: processes change that without a decision of the ledger.
    fn publish_contenders(&mut self) {
        let concerned = self.concerned();
        self.marked.extend(&concerned);
        if self.marked.is_empty() {
            return;
        }
        let Self { clients, processes, grants, .. } = &*self;
        let mut users = 0;
        let mut state = Vec::with_capacity(self.marked.len());
        for id in &self.marked {
            let Some(process) = processes.get(*id) else { continue };
            let critical = clients.is_critical(process.client);
            let scheduled = processes.scheduler.quantum_state(*id).map(|state| state != QuantumState::Idle);
            let uses =
                scheduled.unwrap_or_else(|| grants.ledger.holds(*id) || critical && process.is_attached());
            users += u64::from(uses);
            state.push((process, critical, uses, scheduled.is_some()));
        }
        // Processes that are not marked use the GPU only under a grant.
        for (client, _) in grants.ledger.holders() {
            let others = processes.of_client(client).filter(|(id, _)| !self.marked.contains(id));
            users += others.filter(|(id, _)| grants.ledger.holds(*id)).count() as u64;
        }
        let default_slices = self.processes.scheduler.default_slices();
        let takes_gpu =
            !default_slices && state.iter().any(|(.., is_hardware_scheduled)| *is_hardware_scheduled);
        let lead_ns = self.processes.scheduler.wanted_lead_us() * 1_000;
        let has_second_group = self.processes.scheduler.has_second_group();
        for (process, critical, uses, is_hardware_scheduled) in state {
            let Some(page) = process.endpoint.pages.as_ref().map(|pages| pages.grant()) else { continue };
            let others = if is_hardware_scheduled || critical { users - u64::from(uses) } else { 0 };
            // Only what changes is written: launches read the words beside it.
            if page.latency_critical() != critical {
                page.set_latency_critical(critical);
            }
            if page.contenders() != others {
                page.set_contenders(others);
            }
            if page.default_slices() != (critical && default_slices) {
                page.set_default_slices(critical && default_slices);
            }
            if page.second_group() != (critical && has_second_group) {
                page.set_second_group(critical && has_second_group);
            }
            let lead_ns = if critical { lead_ns } else { 0 };
            if page.lead_ns() != lead_ns {
                page.set_lead_ns(lead_ns);
            }
            if page.takes_gpu() != (critical && takes_gpu) {
                page.set_takes_gpu(critical && takes_gpu);
            }
        }
        // The pages of the others show nothing by now.
        self.marked = concerned;
    }
}

/// The actions in their order, except that a grant is accounted for when it has ended and the next one is shown: nothing waits for that.
/// If its client is granted again at once, the order matters.
fn in_order_of_urgency(actions: &[Action]) -> impl Iterator<Item = &Action> {
    let is_granted = |of: ClientId| {
        actions.iter().any(|action| matches!(action, Action::Grant { client, .. } if *client == of))
    };
    let is_late =
        move |action: &&Action| matches!(action, Action::Ended { client, .. } if !is_granted(*client));
    actions.iter().filter(move |action| !is_late(action)).chain(actions.iter().filter(is_late))
}
