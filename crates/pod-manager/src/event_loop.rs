//! The event loop: one thread that owns all state of one GPU's manager.
//!
//! Each round waits for events, hands each event to the part that owns its state, lets the token ledger decide, and carries out the
//! [effects](crate::processes::Effect) that the parts return. The work of a round is bounded: after 100 µs no further connection is accepted
//! and no further request is read of either kind, and there are at most eight decisions. The last item of each kind is finished, and the
//! kernel may run other threads meanwhile: under a flood one round in a thousand measures more than 1 ms, a few more than 5 ms
//! (docs/benchmarks/history/2026-11.md). Requests for memory come first; within each kind the clients, and the peers that belong to none, take
//! turns. The loop takes no lock and waits only in the poller. It reads no file except /proc, once per connection and once per process. Other
//! threads reach it by [`Message`]s.
//!
//! Parts refer to each other by id. Each file beside this one holds what concerns several parts; its first line says what.

mod attach;
mod clients;
mod connections;
mod decisions;
mod effects;
mod heartbeat;
mod policies;
mod requests;
mod searches;
mod trace;

use crate::agent_api::AgentApi;
use crate::channel_groups::{ControlDriver, ControlExecutor, EscrowClient, GroupControls};
use crate::clients::Clients;
use crate::clock::Clock;
use crate::closer::Closer;
use crate::config::{Config, OnManagerLoss, Policies, nanos};
use crate::connections::{Connections, Listener};
use crate::deadlines::Deadlines;
use crate::definition::Definition;
use crate::error::{Attempt, Result};
use crate::gangs::{Gangs, TableSender};
use crate::grants::Grants;
use crate::io::Io;
use crate::listen::UnixSocket;
use crate::log_limiter::LogLimiter;
use crate::measured_memory::{MeasuredMemory, MemoryReader};
use crate::message::{Inbox, Message, Remote};
use crate::metrics::Metrics;
use crate::peer::Peers;
use crate::poller::{Event, Poller, Source};
use crate::processes::{self, Departed, Processes, activity};
use crate::report::Report;
use crate::residency::Residency;
use crate::stalled::StalledProcesses;
use crate::stopped_threads::ThreadsStopped;
use crate::suspensions::Suspensions;
use crate::trace::Tracer;
use crate::unhooked::Unhooked;
use crate::unhooked::scanning::{ProcessDiscovery, UnhookedScanner};
use crate::violations::Violations;
use crate::watched_file::ReloadRequests;
use heartbeat::Heartbeat;
use nix::sys::epoll::{EpollFlags, EpollTimeout};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use sluice_comm::page::Flags;
use sluice_comm::{HAND_OFF_STEPS, HandOffStep};
use sluice_core::ProcessId;
use sluice_core::channel_groups::{ChannelGroupPolicy, ChannelGroupScheduler};
use sluice_core::ledger::TokenLedger;
use sluice_core::processes::ProcessPolicy;
use sluice_hook_core::deadline_polling::Step;
use sluice_proto::control::ReportMemoryResponse;
use sluice_sys::step_log::StepLog;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use tracing::info;

/// What the event loop is made from.
pub(crate) struct Inputs {
    pub(crate) listeners: (UnixSocket, Option<TcpListener>),
    pub(crate) peers: Box<dyn Peers>,
    pub(crate) signals: Option<SignalFd>,
    /// Has the resource file and the policy file read again, where there are such files.
    pub(crate) reloads: Vec<ReloadRequests>,
    pub(crate) inbox: Inbox,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Box<dyn Clock>,
    /// `None`: no channel group is controlled.
    pub(crate) driver: Option<Box<dyn ControlDriver>>,
    /// Where copies of control descriptors go.
    pub(crate) escrow: Option<EscrowClient>,
    /// Searches for processes without the hook; `None`: there is no search.
    pub(crate) discovery: Option<Box<dyn ProcessDiscovery>>,
    /// Reads the memory of processes; `None`: the node agent reports it, or nothing is known of it.
    pub(crate) memory: Option<Box<dyn MemoryReader>>,
    /// Where tables of gangs go; `None`: this manager knows no other.
    pub(crate) tables: Option<TableSender>,
    /// Where the control executor and the searching thread report.
    pub(crate) remote: Remote,
}

/// The owner of all parts.
pub(crate) struct EventLoop {
    clients: Clients,
    processes: Processes,
    /// Processes that have closed their connections and have groups under control still.
    departed: Departed,
    grants: Grants,
    violations: Violations,
    io: Io,
    inbox: Inbox,
    signals: Option<SignalFd>,
    reloads: Vec<ReloadRequests>,
    connections: Connections,
    group_controls: GroupControls,
    /// Where threads that stop a process report.
    stops: Report<ThreadsStopped>,
    deadlines: Deadlines,
    gangs: Gangs,
    stalled: StalledProcesses,
    unhooked: Unhooked,
    measured_memory: MeasuredMemory,
    residency: Residency,
    suspensions: Suspensions,
    agent_api: AgentApi,
    heartbeat: Heartbeat,
    /// For new pages.
    page_flags: Flags,
    /// The last round ended before the ledger had nothing left to decide.
    undecided: bool,
    /// The loop does not sleep, because a grant is about to come back.
    polls: bool,
    /// Processes whose pages may show contenders, their class or a request for wake-ups.
    marked: BTreeSet<ProcessId>,
    stopping: bool,
}

impl EventLoop {
    /// Registers all sources of events; serves nothing yet.
    pub(crate) fn new(config: &Config, definitions: Vec<Definition>, inputs: Inputs) -> Result<Self> {
        let Inputs { listeners, inbox, signals, clock, driver, remote, .. } = inputs;
        let poller = Poller::new()?;
        poller.add(clock.timer(), Source::Timer, EpollFlags::EPOLLIN).attempt("epoll_ctl")?;
        poller.add(inbox.fd(), Source::Messages, EpollFlags::EPOLLIN).attempt("epoll_ctl")?;
        if let Some(signals) = &signals {
            poller.add(signals, Source::Signal, EpollFlags::EPOLLIN).attempt("epoll_ctl")?;
        }
        let closer = Closer::start().attempt("start the closing thread")?;
        let steps = std::env::var_os(HAND_OFF_STEPS).map(|path| StepLog::open(Path::new(&path)));
        let steps = steps.transpose().attempt(HAND_OFF_STEPS)?;
        let (metrics, log, trace) = (inputs.metrics, LogLimiter::default(), Tracer::default());
        let mut io = Io { clock, poller, closer, metrics, log, steps, trace };
        let page_flags = Flags {
            fail_closed: config.on_manager_loss == OnManagerLoss::Closed,
            tsc_valid: io.clock.ticks_at(io.now()).is_some(),
        };
        let slices = driver.as_ref().is_none_or(|driver| driver.sets_slices());
        let reports = (remote.report(Message::ScanResult), remote.report(Message::OwnershipProof));
        let search = inputs.discovery.map(|discovery| UnhookedScanner::start(discovery, reports)).transpose();
        let search = search.attempt("start the thread that searches for processes without the hook")?;
        let measured_memory = MeasuredMemory::new(inputs.memory, remote.report(Message::MemoryRead))
            .attempt("start the thread that reads the memory of processes")?;
        let switches = remote.report(|(group, count)| Message::GroupSwitched(group, count));
        let reports = (remote.report(Message::Controlled), remote.report(Message::GroupFinding), switches);
        let executor = ControlExecutor::start(reports, io.closer.clone(), inputs.escrow, slices)
            .attempt("start the control executor")?;
        let group_controls = GroupControls::new(driver, executor, io.closer.clone());
        let Policies { ledger, channel_groups } = config.policies();
        let scheduler = ChannelGroupScheduler::new(ChannelGroupPolicy { slices, ..channel_groups });
        let policy = ProcessPolicy {
            controls: group_controls.are_on(),
            searches: search.is_some(),
            violations: config.violation_policy,
        };
        let by_grants = !group_controls.are_on();
        let connections = Connections::new(config, listeners, inputs.peers, &io).attempt("epoll_ctl")?;
        let grants = Grants::new(TokenLedger::new(ledger), nanos(config.busy_poll), nanos(config.window));
        let mut event_loop = Self {
            clients: Clients::default(),
            processes: Processes::new(scheduler, policy),
            departed: Departed::default(),
            grants,
            violations: Violations::default(),
            io,
            connections,
            group_controls,
            stops: remote.report(Message::ThreadsStopped),
            deadlines: Deadlines::default(),
            gangs: Gangs::new(inputs.tables, by_grants),
            stalled: StalledProcesses::default(),
            unhooked: Unhooked::new(search, config.lock_program.clone()),
            measured_memory,
            residency: Residency::new(config.overcommit.clone()),
            suspensions: Suspensions::default(),
            agent_api: AgentApi::new(&config.clients),
            heartbeat: Heartbeat::new(nanos(config.missed_heartbeat)),
            page_flags,
            inbox,
            signals,
            reloads: inputs.reloads,
            undecided: false,
            polls: false,
            marked: BTreeSet::new(),
            stopping: false,
        };
        event_loop.load(definitions);
        Ok(event_loop)
    }

    /// Serves until it is told to stop.
    pub(crate) fn serve(mut self) -> Result<()> {
        while !self.stopping {
            self.beat();
            let events = self.wait()?;
            self.beat();
            let woken = self.io.now();
            self.grants.charge_critical(&mut self.clients, &mut self.processes, &mut self.io.trace, woken);
            for event in events {
                // Connections are only queued here, and there may be hundreds.
                if !matches!(event.source, Source::Connection(_)) {
                    self.beat();
                }
                self.handle(event);
            }
            if self.polls && self.grants.take_returns(&mut self.processes, &self.io) {
                self.decide_once();
            }
            self.serve_frames();
            self.handle_deadlines();
            self.decide();
            self.trace_round();
            self.io.metrics.round(self.io.now().saturating_sub(woken));
        }
        self.shut_down();
        Ok(())
    }

    /// Hands an event to the part that owns its state.
    fn handle(&mut self, event: Event) {
        match event.source {
            Source::UnixListener => self.accept(Listener::Unix),
            Source::TcpListener => self.accept(Listener::Tcp),
            Source::Timer => self.io.clock.acknowledge(),
            // The events themselves come first in each round.
            Source::MemoryChannels => {}
            Source::Messages => self.take_messages(),
            Source::Signal => self.take_signal(),
            Source::Connection(id) => self.connection_ready(id, event.flags),
            Source::Wakeup(id) => {
                if let Some(process) = self.processes.get_mut(id) {
                    let activity = activity(process);
                    process.endpoint.take_wakeup(activity, &self.io);
                }
            }
            Source::ProcessEnd(id) => self.process_ended(id),
            Source::HostMemory => self.residency.take_back(&self.io),
        }
    }

    fn take_signal(&mut self) {
        let signal = self.signals.as_ref().and_then(|signals| signals.read_signal().ok().flatten());
        let signal = signal.and_then(|signal| Signal::try_from(i32::try_from(signal.ssi_signo).ok()?).ok());
        match signal {
            Some(Signal::SIGHUP) if self.reloads.is_empty() => {
                info!("SIGHUP changes nothing: the node agent sends the clients");
            }
            Some(Signal::SIGHUP) => self.reloads.iter().for_each(ReloadRequests::request),
            Some(signal) => {
                info!(%signal, "signal received, stopping");
                self.stopping = true;
            }
            None => {}
        }
    }

    fn take_messages(&mut self) {
        for message in self.inbox.take() {
            match message {
                Message::Clients(definitions) => self.load(definitions),
                Message::Policies(policies) => self.apply_policies(policies),
                // The sender of a question may have stopped waiting for the answer.
                Message::SetClients(set, done) => drop(done.send(self.set_clients(set))),
                Message::Snapshot(done) => {
                    self.refresh_gauges();
                    let Self { clients, processes, io, .. } = &*self;
                    let pending = self.connections.pending.len();
                    drop(done.send(self.agent_api.snapshot(pending, clients, processes, io)));
                }
                Message::Violations(after, answer) => self.violations.ask(after, answer),
                Message::Refresh(done) => {
                    self.refresh_gauges();
                    let _ = done.send(());
                }
                Message::Controlled(report) => self.control_ended(&report),
                Message::GroupSwitched(group, switches) => {
                    let now = self.io.now();
                    if self.processes.scheduler.check_switches(group, switches, now) {
                        info!(
                            switches,
                            "process executed while it reported that its work waits: it counts as one that executes for 64 s"
                        );
                    }
                }
                Message::GroupFinding(finding) => self.apply(processes::Event::Checked(finding)),
                Message::ThreadsStopped((id, result)) => {
                    self.apply(processes::Event::ThreadsStopped(id, result));
                }
                Message::ScanResult(result) => self.search_ended(result),
                Message::OwnershipProof(proof) => self.apply(processes::Event::Proven(proof)),
                Message::MemoryRead(result) => {
                    let Self { measured_memory, clients, processes, grants, io, .. } = self;
                    grants.attribute_energy(result.energy_mj, clients, processes, io);
                    let found = measured_memory.reading_ended(result, clients, processes, io);
                    self.record_violations(found.violations);
                }
                Message::MemoryReport(reading, done) => {
                    let Self { measured_memory, clients, processes, grants, io, .. } = self;
                    grants.attribute_energy(reading.energy_mj, clients, processes, io);
                    let found = measured_memory.apply(&reading, clients, processes, io);
                    self.record_violations(found.violations);
                    drop(done.send(ReportMemoryResponse { exceeded: found.exceeded }));
                }
                Message::Gangs(gangs) => {
                    self.gangs.gangs_changed(gangs, &self.clients, &mut self.grants.ledger);
                }
                Message::NextReading(wanted) => self.measured_memory.next_wanted(wanted, self.io.now()),
                Message::TraceJoined(done) => {
                    // A reader that has stopped waiting leaves.
                    if let Err(Some(_)) = done.send(self.trace_joined()) {
                        self.io.trace.leave();
                    }
                }
                Message::ReadTrace(from, done) => drop(done.send(self.io.trace.read(from, self.io.now()))),
                Message::TraceLeft => self.io.trace.leave(),
                Message::Stop => self.stopping = true,
            }
        }
    }

    /// Waits for events or for the earliest deadline of all parts: not at all while there is something to read or to decide, or while a
    /// grant is about to come back for which a client waits. The rounds of that time keep what a decision needs in the caches.
    fn wait(&mut self) -> Result<Vec<Event>> {
        if self.undecided || self.connections.has_ready() {
            return self.io.poller.wait(EpollTimeout::ZERO);
        }
        let step = self.grants.polling_step(self.io.now());
        self.polls = step == Step::Poll;
        if !self.polls {
            let polling_begins = if let Step::SleepUntil(at) = step { Some(at) } else { None };
            self.arm_timer(polling_begins)?;
            return self.io.poller.wait(EpollTimeout::NONE);
        }
        self.io.record_step(HandOffStep::ManagerPolls);
        self.io.poller.wait(EpollTimeout::ZERO)
    }

    /// Sets the timer to the earliest deadline of all parts.
    fn arm_timer(&mut self, polling_begins: Option<u64>) -> Result<()> {
        let now = self.io.now();
        let deadlines = [
            polling_begins,
            self.grants.ledger.next_deadline(),
            self.connections.pending.next_deadline(),
            self.processes.next_deadline(now),
            self.group_controls.next_deadline(self.processes.has_groups()),
            self.deadlines.next_deadline(),
            self.stalled.next_deadline(&self.grants),
            self.unhooked.next_deadline(&self.clients, &self.processes),
            self.measured_memory.next_deadline(&self.clients, &self.processes),
            self.residency.next_deadline(),
            self.heartbeat.next_deadline(),
            self.io.trace.next_sample(),
        ];
        self.io.clock.arm(deadlines.into_iter().flatten().min()).attempt("timerfd_settime")
    }

    /// Does what is due in each part.
    fn handle_deadlines(&mut self) {
        let now = self.io.now();
        for (id, request, reason) in self.connections.pending.take_due(now) {
            self.refuse_attach(id, request, &reason);
        }
        self.unhooked.search_if_due(&self.clients, &mut self.processes, now);
        let has_groups = self.processes.has_groups();
        let scheduler = &mut self.processes.scheduler;
        self.group_controls.check_if_due(has_groups, || scheduler.begin_check(now), now);
        self.measured_memory.read_if_due(&self.clients, &self.processes, now);
        self.decide_delayed_reservations();
        self.trace_sample(now);
        self.apply_due();
    }

    /// Ends all grants and restores all channel groups, before the hooks lose the connection and do it themselves.
    fn shut_down(mut self) {
        info!("pod-manager stops");
        for (_, process) in self.processes.iter_mut() {
            if let Some(pages) = &mut process.endpoint.pages {
                // No thread watches the time any more. What the client does without a manager is its configuration.
                pages.close();
            }
        }
        self.group_controls.restore();
        self.io.closer.close(self.connections.take_all());
    }
}
