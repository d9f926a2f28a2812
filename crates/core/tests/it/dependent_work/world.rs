//! Clients, the GPU and the manager in simulated time.
//!
//! Kernels that are on the GPU at once divide it equally, also those that poll. A GPU alternates between them by time slices of 2 ms, which
//! moves the end of a kernel by less than a slice for each of the others. Whether work of a client can run, which the properties are about,
//! does not depend on it. Messages and pages take no time.

use super::Fault;
use super::idle_holders::IdleHolders;
use super::process::{Message, Process};
use super::programs::ClientProgram;
use super::stream::{Head, Signals};
use super::tracker::{Page, Phase};
use sluice_core::ledger::{Action, Deadline, GrantRequest, Policy, ReturnKind, TokenLedger};
use sluice_core::{ClientId, ProcessId, Share};
use std::collections::BTreeSet;

/// More steps at one time, or in one run, mean that the run does not end.
const MOST_STEPS: (usize, usize) = (10_000, 2_000_000);

#[derive(Clone, Debug)]
struct Client {
    signals: Signals,
    /// What the ledger has reported in the present grant. The pages of its processes may still show what held in the last one.
    contended: bool,
    is_limited: bool,
    burst_ns: u64,
    /// It was granted while another client held the GPU.
    is_beside: bool,
}

/// What a run has shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Time in which a kernel ran, up to the end of the first client's program.
    pub(super) used_ns: u64,
    pub(super) first_client_ended: Option<u64>,
    /// Processes that were granted while their client's grant drained.
    pub(super) joined_drains: u64,
    /// Processes that did not return a grant in time.
    pub(super) not_returned: u64,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    now: u64,
    policy: Policy,
    clients: Vec<Client>,
    processes: Vec<Process>,
    ledger: TokenLedger,
    fault: Fault,
    /// Requests that a fault holds back.
    held_back: Vec<ProcessId>,
    pub(super) idle_holders: IdleHolders,
    pub(super) account: Account,
}

impl World {
    pub(super) fn new(programs: &[ClientProgram], fault: Fault) -> Self {
        let policy = Policy::default();
        let mut ledger = TokenLedger::new(policy);
        let (mut clients, mut processes) = (Vec::new(), Vec::new());
        for (index, program) in programs.iter().enumerate() {
            ledger.set_client(client_id(index), program.spec, 0);
            for number in 0..program.processes {
                let id = ProcessId(processes.len() as u64);
                ledger.add_process(id, client_id(index), ReturnKind::Returns).unwrap();
                processes.push(Process::new(id, index, program.steps(number), fault));
            }
            clients.push(Client {
                signals: Signals::none(program.items()),
                contended: false,
                is_limited: program.spec.limit != Share::ONE,
                burst_ns: program.burst_ns,
                is_beside: false,
            });
        }
        let idle_holders = IdleHolders::new(clients.len());
        let (held_back, account) = (Vec::new(), Account::default());
        Self { now: 0, policy, clients, processes, ledger, fault, held_back, idle_holders, account }
    }

    /// Without Sluice: each process holds a grant that does not end.
    pub(super) fn without_grants(programs: &[ClientProgram]) -> Self {
        let mut world = Self::new(programs, Fault::None);
        world.processes.iter_mut().for_each(|process| process.tracker.open(u64::MAX, 0, Page::default()));
        world
    }

    /// Runs all programs to their ends, which must come before `latest`. `Err`: what is wrong.
    pub(super) fn run(&mut self, latest: u64) -> Result<(), String> {
        for _ in 0..MOST_STEPS.1 {
            self.settle()?;
            self.check()?;
            if self.processes.iter().all(Process::has_ended) {
                return Ok(());
            }
            let next = self.next_event().ok_or_else(|| format!("deadlock at {} ns", self.now))?;
            if next > latest {
                return Err(format!("programs have not ended at {latest} ns"));
            }
            if next <= self.now {
                return Err(format!("nothing is done for an event at {next} ns"));
            }
            self.run_kernels(next);
        }
        Err(format!("endless steps at {} ns", self.now))
    }

    /// Everything that happens at this time.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..MOST_STEPS.0 {
            let mut outbox = Vec::new();
            let mut changed = false;
            for process in &mut self.processes {
                let client = &mut self.clients[process.client];
                changed |= process.step(self.now, &mut client.signals, &mut outbox);
            }
            outbox.into_iter().for_each(|(process, message)| self.deliver(process, message));
            self.deliver_held_back();
            let actions = self.ledger.advance(self.now);
            changed |= !actions.is_empty();
            actions.iter().for_each(|action| self.apply(action));
            if !changed {
                return Ok(());
            }
        }
        Err(format!("endless steps at {} ns", self.now))
    }

    fn deliver(&mut self, id: ProcessId, message: Message) {
        let client = self.processes[index_of(id)].client;
        match message {
            Message::Requests if self.fault == Fault::SiblingsWait && self.holds(client) => {
                self.held_back.push(id);
            }
            Message::Requests => {
                let ask = GrantRequest { burst_ns: self.clients[client].burst_ns, overuse_ns: 0 };
                self.ledger.request(id, self.now, ask).unwrap();
            }
            Message::Returns(report) => {
                self.ledger.returned(id, self.now, report.used_ns, report.overuse_ns).unwrap();
            }
        }
    }

    fn deliver_held_back(&mut self) {
        for id in std::mem::take(&mut self.held_back) {
            self.deliver(id, Message::Requests);
        }
    }

    fn apply(&mut self, action: &Action) {
        match *action {
            Action::Grant { process, client, deadline: Deadline::At(deadline), .. } => {
                let index = usize::try_from(client.0).unwrap();
                let mut siblings = self.processes.iter().filter(|process| process.client == index);
                let drains = siblings.any(|process| {
                    matches!(process.tracker.phase, Phase::Draining(_)) && self.ledger.holds(process.id)
                });
                self.account.joined_drains += u64::from(drains);
                let Client { contended, is_limited: limited, .. } = self.clients[index];
                let page = Page { contended, limited };
                self.processes[index_of(process)].tracker.open(deadline, self.now, page);
                self.clients[index].is_beside |= self.ledger.holders().count() > 1;
            }
            Action::Extend { process, deadline, .. } => {
                self.processes[index_of(process)].tracker.deadline = deadline;
            }
            Action::Revoke { process, .. } => {
                self.account.not_returned += 1;
                let Process { tracker, stream, .. } = &mut self.processes[index_of(process)];
                if tracker.phase == Phase::Open {
                    tracker.begin_drain(stream);
                }
            }
            Action::Contended { client, contended } => {
                let contended = contended && self.fault != Fault::ContentionUnreported;
                let index = usize::try_from(client.0).unwrap();
                if std::mem::replace(&mut self.clients[index].contended, contended) != contended {
                    let processes = self.processes.iter_mut().filter(|process| process.client == index);
                    processes.for_each(|process| process.tracker.page.contended = contended);
                }
            }
            Action::Ended { client, .. } => {
                let client = &mut self.clients[usize::try_from(client.0).unwrap()];
                (client.contended, client.is_beside) = (false, false);
            }
            Action::Grant { .. } | Action::Disable { .. } => {
                panic!("{action:?} of a token-scheduled process")
            }
        }
    }

    /// Launches that have waited for a command ahead of them, and those of them that went on although it had not ended.
    pub(super) fn launches_behind_commands(&self) -> (u64, u64) {
        let commands = self.processes.iter().map(|process| process.tracker.commands);
        commands.fold((0, 0), |(waits, timeouts), of| (waits + of.waits, timeouts + of.timeouts))
    }

    fn holds(&self, client: usize) -> bool {
        self.ledger.holders().any(|(holder, _)| holder == client_id(client))
    }

    /// Checks the state after everything that happens at this time, and takes note of idle holders.
    fn check(&mut self) -> Result<(), String> {
        let ids = self.ledger.waiting().chain(self.held_back.iter().copied());
        let waiting: BTreeSet<usize> = ids.map(|id| self.processes[index_of(id)].client).collect();
        for index in 0..self.clients.len() {
            // A client that holds a grant waits for its own processes only.
            let others_wait = waiting.iter().any(|client| *client != index && !self.holds(*client));
            let deadline = self.ledger.holders().find(|(holder, _)| *holder == client_id(index));
            if let Some((_, deadline)) = deadline.filter(|_| waiting.contains(&index)) {
                let client = &self.clients[index];
                let is_long_enough = deadline.saturating_sub(self.now) >= self.policy.join_min_ns;
                let is_prolonged = !(client.is_limited || client.is_beside || others_wait);
                if is_long_enough || is_prolonged {
                    return Err(format!(
                        "a process waits at {} ns while client {index} holds the GPU",
                        self.now
                    ));
                }
            }
            let signals = &self.clients[index].signals;
            let mut processes = self.processes.iter().filter(|process| process.client == index);
            let runs = processes.clone().any(|process| process.stream.head(signals) == Head::Runs);
            let is_idle = deadline.is_some() && others_wait && !runs;
            let is_unnoticed =
                processes.any(|process| self.ledger.holds(process.id) && process.waits_unnoticed(signals));
            self.idle_holders.observe(index, self.now, is_idle, is_unnoticed);
        }
        self.idle_holders.check(&self.policy)?;
        let mut of_first = self.processes.iter().filter(|process| process.client == 0);
        if self.account.first_client_ended.is_none() && of_first.all(Process::has_ended) {
            self.account.first_client_ended = Some(self.now);
        }
        Ok(())
    }

    fn kernels(&self, which: Head) -> impl Iterator<Item = &Process> {
        let has =
            move |process: &&Process| process.stream.head(&self.clients[process.client].signals) == which;
        self.processes.iter().filter(has)
    }

    fn on_gpu(&self) -> u64 {
        (self.kernels(Head::Runs).count() + self.kernels(Head::Polls).count()) as u64
    }

    fn next_event(&self) -> Option<u64> {
        let count = self.on_gpu();
        let left = self
            .kernels(Head::Runs)
            .filter_map(|process| process.stream.left_ns(&self.clients[process.client].signals));
        let ends = left.map(|left_ns| self.now + left_ns * count);
        let processes = self.processes.iter().filter_map(Process::next_event);
        ends.chain(processes).chain(self.ledger.next_deadline()).min()
    }

    /// Kernels run until `next`.
    fn run_kernels(&mut self, next: u64) {
        let count = self.on_gpu();
        let running: Vec<ProcessId> = self.kernels(Head::Runs).map(|process| process.id).collect();
        let elapsed = next - self.now;
        for id in &running {
            // The rest of a division would never run.
            self.processes[index_of(*id)].stream.run((elapsed / count).max(1));
        }
        if self.account.first_client_ended.is_none() && !running.is_empty() {
            self.account.used_ns += elapsed;
        }
        self.now = next;
    }
}

fn client_id(index: usize) -> ClientId {
    ClientId(index as u64)
}

fn index_of(process: ProcessId) -> usize {
    usize::try_from(process.0).unwrap()
}
