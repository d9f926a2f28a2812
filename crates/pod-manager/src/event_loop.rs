//! The event loop: one thread that owns all state of one GPU's manager.
//!
//! Each round waits for events, hands each event to the part that owns its state, lets the token ledger decide, and carries out the
//! [effects](crate::effect::Effect) that the parts return. The work of a round is bounded: after 100 µs no further connection is accepted
//! and no further request is read of either kind, and there are at most eight decisions. The last item of each kind is finished, and the
//! kernel may run other threads meanwhile: under a flood one round in a thousand measures more than 1 ms, a few more than 5 ms
//! (docs/benchmarks.md). Requests for memory come first; within each kind the clients, and the peers that belong to none, take turns. The
//! loop takes no lock and waits only in the poller. It reads no file except /proc, once per connection and once per process. Other threads reach it by
//! [`Message`]s.
//!
//! Parts refer to each other by id. The files beside this one hold what concerns several parts: attaching, frames, connections,
//! effects and pages, the set of clients, and the end of processes.

mod attach;
mod clients;
mod connections;
mod contenders;
mod decisions;
mod effects;
mod frames;
mod heartbeat;
mod own_process;

use crate::agent_api::AgentApi;
use crate::channel_groups::{Announcement, ChannelGroups, ControlDriver, ControlExecutor, EscrowClient};
use crate::clients::{Clients, Definition, Processes};
use crate::clock::Clock;
use crate::config::{Config, OnManagerLoss, nanos};
use crate::connections::{Connections, Listener};
use crate::deadlines::Deadlines;
use crate::error::{Attempt, Result};
use crate::grants::Grants;
use crate::io::{Closer, Io};
use crate::listen::UnixSocket;
use crate::log_limiter::LogLimiter;
use crate::measured_memory::{MeasuredMemory, MemoryReader};
use crate::message::{Inbox, Message, Remote};
use crate::metrics::Metrics;
use crate::peer::Peers;
use crate::poller::{Event, Poller, Source};
use crate::resource_file::ReloadRequests;
use crate::shared::Shared;
use crate::stalled::StalledProcesses;
use crate::stream_gates::StreamGates;
use crate::unhooked::Unhooked;
use crate::unhooked::scanning::{ProcessDiscovery, UnhookedScanner};
use crate::violations::{Consequences, Violations};
use heartbeat::Heartbeat;
use nix::sys::epoll::{EpollFlags, EpollTimeout};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use sluice_comm::page::Flags;
use sluice_comm::{HAND_OFF_STEPS, HandOffStep};
use sluice_core::ProcessId;
use sluice_core::channel_groups::{ChannelGroupPolicy, ChannelGroupScheduler};
use sluice_core::ledger::TokenLedger;
use sluice_hook_core::deadline_polling::Step;
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
    /// Reads the resource file again; `None`: the node agent sends the clients.
    pub(crate) reloads: Option<ReloadRequests>,
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
    /// Where the control executor and the searching thread report.
    pub(crate) remote: Remote,
}

/// The owner of all parts.
pub(crate) struct EventLoop {
    shared: Shared,
    inbox: Inbox,
    signals: Option<SignalFd>,
    reloads: Option<ReloadRequests>,
    connections: Connections,
    channel_groups: ChannelGroups,
    stream_gates: StreamGates,
    deadlines: Deadlines,
    stalled: StalledProcesses,
    unhooked: Unhooked,
    consequences: Consequences,
    measured_memory: MeasuredMemory,
    agent_api: AgentApi,
    heartbeat: Heartbeat,
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
        let mut io = Io { clock, poller, closer, metrics: inputs.metrics, log: LogLimiter::default(), steps };
        let now = io.now();
        let page_flags = Flags {
            fail_closed: config.on_manager_loss == OnManagerLoss::Closed,
            tsc_valid: io.clock.ticks_at(now).is_some(),
        };
        let slices = driver.as_ref().is_none_or(|driver| driver.sets_slices());
        let search =
            inputs.discovery.map(|discovery| UnhookedScanner::start(discovery, remote.clone())).transpose();
        let search = search.attempt("start the thread that searches for processes without the hook")?;
        let measured_memory = MeasuredMemory::new(inputs.memory, remote.clone())
            .attempt("start the thread that reads the memory of processes")?;
        let consequences = Consequences::new(config.violation_policy, remote.clone());
        let executor = ControlExecutor::start(remote, io.closer.clone(), inputs.escrow, slices)
            .attempt("start the control executor")?;
        let scheduler =
            ChannelGroupScheduler::new(ChannelGroupPolicy { slices, ..config.channel_group_policy() });
        let connections = Connections::new(config, listeners, inputs.peers, &io).attempt("epoll_ctl")?;
        let ledger = TokenLedger::new(config.policy());
        let grants = Grants::new(ledger, nanos(config.busy_poll), nanos(config.window));
        let processes = Processes::new(page_flags);
        let mut event_loop = Self {
            shared: Shared {
                clients: Clients::default(),
                processes,
                grants,
                violations: Violations::default(),
                io,
            },
            connections,
            channel_groups: ChannelGroups::new(scheduler, driver, executor),
            stream_gates: StreamGates::new(config.gate_policy(), config.gates),
            deadlines: Deadlines::default(),
            stalled: StalledProcesses::default(),
            unhooked: Unhooked::new(search, config.lock_program.clone()),
            consequences,
            measured_memory,
            agent_api: AgentApi::new(&config.clients),
            heartbeat: Heartbeat::new(nanos(config.missed_heartbeat)),
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
            let woken = self.shared.io.now();
            self.shared.charge_critical();
            for event in events {
                // Connections are only queued here, and there may be hundreds.
                if !matches!(event.source, Source::Connection(_)) {
                    self.beat();
                }
                self.handle(event);
            }
            if self.polls && self.shared.take_returns() {
                self.decide_once();
            }
            self.serve_frames();
            self.handle_deadlines();
            self.decide();
            let now = self.shared.io.now();
            self.shared.io.metrics.round(now.saturating_sub(woken));
        }
        self.shut_down();
        Ok(())
    }

    /// Hands an event to the part that owns its state.
    fn handle(&mut self, event: Event) {
        match event.source {
            Source::UnixListener => self.accept(Listener::Unix),
            Source::TcpListener => self.accept(Listener::Tcp),
            Source::Timer => self.shared.io.clock.acknowledge(),
            // The events themselves come first in each round.
            Source::MemoryChannels => {}
            Source::Messages => self.take_messages(),
            Source::Signal => self.take_signal(),
            Source::Connection(id) => self.connection_ready(id, event.flags),
            Source::Wakeup(id) => {
                if let Some(process) = self.shared.processes.get_mut(id) {
                    process.take_wakeup(&self.shared.io);
                }
            }
            Source::ProcessEnd(id) => self.process_ended(id),
        }
    }

    fn take_signal(&mut self) {
        let signal = self.signals.as_ref().and_then(|signals| signals.read_signal().ok().flatten());
        let signal = signal.and_then(|signal| Signal::try_from(i32::try_from(signal.ssi_signo).ok()?).ok());
        match (signal, &self.reloads) {
            (Some(Signal::SIGHUP), Some(reloads)) => reloads.request(),
            (Some(Signal::SIGHUP), None) => info!("SIGHUP changes nothing: the node agent sends the clients"),
            (Some(signal), _) => {
                info!(%signal, "signal received, stopping");
                self.stopping = true;
            }
            (None, _) => {}
        }
    }

    fn take_messages(&mut self) {
        for message in self.inbox.take() {
            match message {
                Message::Clients(definitions) => self.load(definitions),
                // The sender of a question may have stopped waiting for the answer.
                Message::SetClients(set, done) => drop(done.send(self.set_clients(set))),
                Message::Snapshot(done) => {
                    self.refresh_gauges();
                    let (pending, groups) = (self.connections.pending.len(), &self.channel_groups);
                    let snapshot = self.agent_api.snapshot(
                        pending,
                        groups,
                        (&self.unhooked, &self.consequences),
                        &self.shared,
                    );
                    drop(done.send(snapshot));
                }
                Message::Violations(after, answer) => self.shared.violations.ask(after, answer),
                Message::Refresh(done) => {
                    self.refresh_gauges();
                    let _ = done.send(());
                }
                Message::Controlled(report) => {
                    let effects = self.channel_groups.control_ended(&report, &mut self.shared);
                    self.carry_out(effects);
                }
                Message::GroupFinding(finding) => {
                    if let Some(id) = self.channel_groups.violator(&finding, &self.shared) {
                        let (groups, shared) = (&mut self.channel_groups, &mut self.shared);
                        self.consequences.violated(id, &finding, groups, shared);
                    }
                }
                Message::ThreadsStopped(id, result) => {
                    let (groups, shared) = (&mut self.channel_groups, &mut self.shared);
                    self.consequences.threads_stopped(id, result, groups, shared);
                }
                Message::ScanResult(result) => {
                    let (groups, shared) = (&mut self.channel_groups, &mut self.shared);
                    let effects = self.unhooked.search_ended(result, groups, &self.consequences, shared);
                    self.carry_out(effects);
                }
                Message::OwnershipProof(proof) => {
                    let effects = self.channel_groups.ownership_checked(proof, &mut self.shared);
                    self.carry_out(effects);
                }
                Message::MemoryRead(result) => self.measured_memory.reading_ended(result, &mut self.shared),
                Message::MemoryReport(reading, done) => {
                    let answer = self.measured_memory.reported(&reading, &mut self.shared);
                    drop(done.send(answer));
                }
                Message::NextReading(wanted) => self.measured_memory.next_wanted(wanted, &self.shared),
                Message::Stop => self.stopping = true,
            }
        }
    }

    /// Waits for events or for the earliest deadline of all parts: not at all while there is something to read or to decide, or while a
    /// grant is about to come back for which a client waits. The rounds of that time keep what a decision needs in the caches.
    fn wait(&mut self) -> Result<Vec<Event>> {
        if self.undecided || self.connections.has_ready() {
            return self.shared.io.poller.wait(EpollTimeout::ZERO);
        }
        let step = self.shared.grants.polling_step(self.shared.io.now());
        self.polls = step == Step::Poll;
        if !self.polls {
            let polling_begins = if let Step::SleepUntil(at) = step { Some(at) } else { None };
            self.arm_timer(polling_begins)?;
            return self.shared.io.poller.wait(EpollTimeout::NONE);
        }
        self.shared.io.record_step(HandOffStep::ManagerPolls);
        self.shared.io.poller.wait(EpollTimeout::ZERO)
    }

    /// Sets the timer to the earliest deadline of all parts.
    fn arm_timer(&mut self, polling_begins: Option<u64>) -> Result<()> {
        let now = self.shared.io.now();
        let deadlines = [
            polling_begins,
            self.shared.grants.ledger.next_deadline(),
            self.connections.pending.next_deadline(),
            self.channel_groups.next_deadline(now),
            self.stream_gates.next_deadline(),
            self.deadlines.next_deadline(),
            self.stalled.next_deadline(&self.shared),
            self.unhooked.next_deadline(&self.shared),
            self.consequences.next_deadline(),
            self.measured_memory.next_deadline(&self.shared),
            self.heartbeat.next_deadline(),
        ];
        self.shared.io.clock.arm(deadlines.into_iter().flatten().min()).attempt("timerfd_settime")
    }

    /// Does what is due: refuses attaches whose time is up, searches for processes without the hook, makes postponed announcements.
    fn handle_deadlines(&mut self) {
        let now = self.shared.io.now();
        for (id, request, reason) in self.connections.pending.take_due(now) {
            self.refuse_attach(id, request, &reason);
        }
        self.unhooked.search_if_due(&self.shared);
        self.channel_groups.check_if_due(now);
        self.channel_groups.mark_kept_groups(&mut self.shared);
        for (id, announcement) in self.consequences.release_due(&mut self.channel_groups, &mut self.shared) {
            self.announce(id, announcement);
        }
        self.measured_memory.read_if_due(&self.shared);
        self.decide_first_reservations();
        let effects = self.channel_groups.announce_due(&mut self.unhooked, &mut self.shared);
        self.carry_out(effects);
        // After all announcements of this round, and before its controls.
        self.consequences.stop_again(&mut self.channel_groups, &mut self.shared);
    }

    /// A process announces its groups. Those of a stopped process are disabled, and what it leaves out is released at the end of the stop.
    fn announce(&mut self, id: ProcessId, announcement: Announcement) {
        self.consequences.keep_announcement(id, &announcement);
        if let Some(process) = self.shared.processes.get(id).filter(|process| process.misannounced) {
            self.channel_groups.record_announced(id, &announcement);
            process.key.into_iter().for_each(|key| self.unhooked.inspect_next(key));
            return self.show_scheduling(id);
        }
        let (unhooked, shared) = (&mut self.unhooked, &mut self.shared);
        let effects = self.channel_groups.announce(id, announcement, unhooked, shared);
        self.carry_out(effects);
    }

    /// Ends all grants, opens all gates and restores all channel groups, before the hooks lose the connection and do it themselves.
    fn shut_down(mut self) {
        info!("pod-manager stops");
        for (_, process) in self.shared.processes.iter_mut() {
            if let Some(pages) = &mut process.pages {
                // No thread watches the time any more. What the client does without a manager is its configuration.
                pages.close();
            }
        }
        self.channel_groups.restore();
        self.shared.io.closer.close(self.connections.take_all());
    }
}
