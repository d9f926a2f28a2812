//! The data plane: one thread that owns tokens, ledgers, connections and pages of one GPU.
//!
//! It turns what epoll reports into events of the ledgers, lets the token ledger decide once per round, and carries out
//! what it decided. Nothing here waits, takes a lock or reads a file (but /proc, once per connection); what others have to
//! do for it comes back as a [`Control`] message.

mod accept;
mod adopted;
mod adoptees;
mod announcement;
mod attach;
mod claims;
mod clients;
mod connections;
mod contexts;
mod departures;
mod frames;
mod gates;
mod grants;
mod held;
mod locked;
mod snapshot;
mod steering;

use crate::adopt::{Adopter, Scout};
use crate::channels::{Adopt, Custody, Executor};
use crate::client_table::ClientTable;
use crate::clock::Clock;
use crate::closer::Closer;
use crate::config::{ClientSource, Config, OnManagerLoss, nanos};
use crate::connection::Connection;
use crate::control::{Control, Inbox, Remote};
use crate::definition::Definition;
use crate::error::{Attempt, Result};
use crate::identity::Identify;
use crate::listen::UnixSocket;
use crate::metrics::Meters;
use crate::peer::Peers;
use crate::process::Process;
use crate::throttle::Throttle;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signalfd::SignalFd;
use sluice_comm::page::Flags;
use sluice_core::ProcessId;
use sluice_core::ledger::TokenLedger;
use sluice_core::memory::MemoryLedger;
use sluice_core::steering::{Steering, SteeringPolicy};
use std::collections::{BTreeMap, HashMap};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use tracing::info;

/// What epoll tells apart: fixed numbers, then connections and processes by parity.
const UNIX: u64 = 0;
const TCP: u64 = 1;
const TIMER: u64 = 2;
const INBOX: u64 = 3;
const SIGNAL: u64 = 4;
const FIRST_NUMBER: u64 = 8;
/// Beside a process's number: its doorbell.
const DOORBELL: u64 = 1 << 62;

/// The most events taken from epoll at once.
const EVENTS: usize = 64;

/// What the data plane is made from.
pub(crate) struct Inputs {
    pub(crate) unix: UnixSocket,
    pub(crate) tcp: Option<TcpListener>,
    pub(crate) signals: Option<SignalFd>,
    pub(crate) inbox: Inbox,
    pub(crate) meters: Meters,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) peers: Box<dyn Peers>,
    pub(crate) identify: Box<dyn Identify>,
    /// `None`: no channel group is controlled.
    pub(crate) adopt: Option<Box<dyn Adopt>>,
    /// Where duplicates of the ways to the driver go.
    pub(crate) custody: Option<Custody>,
    /// Who looks for programs without the hook; `None`: nobody.
    pub(crate) scout: Option<Box<dyn Scout>>,
    /// Where the threads that make controls and look for programs report.
    pub(crate) remote: Remote,
}

/// The owner of all state.
pub(crate) struct DataPlane {
    epoll: Epoll,
    unix: UnixSocket,
    tcp: Option<TcpListener>,
    signals: Option<SignalFd>,
    inbox: Inbox,
    meters: Meters,
    closer: Closer,
    clock: Box<dyn Clock>,
    peers: Box<dyn Peers>,
    identify: Box<dyn Identify>,
    flags: Flags,
    busy_poll_ns: u64,
    max_connections: usize,
    max_connections_per_process: usize,
    /// Peers are told apart by their pods, not by the names they claim.
    recognises_pods: bool,
    gpu_uuid: String,
    in_force: clients::InForce,
    lobby: held::Lobby,
    throttle: Throttle,
    clients: ClientTable,
    tokens: TokenLedger,
    helm: steering::Helm,
    adoption: adopted::Adoption,
    gatekeeper: gates::Gatekeeper,
    memory: MemoryLedger,
    /// Oldest first.
    connections: BTreeMap<u64, Connection>,
    /// Connections on the unix socket by pid, where the kernel tells it.
    by_pid: HashMap<i32, usize>,
    /// Connections by their pods' uids, whether these are clients or not.
    by_pod: HashMap<String, usize>,
    processes: HashMap<ProcessId, Process>,
    by_peer: HashMap<(i32, u64), ProcessId>,
    last_number: u64,
    /// Given up for a moment when descriptors run out, so that a connection can be accepted and closed.
    spare: Option<OwnedFd>,
    stopping: bool,
}

impl DataPlane {
    /// Registers everything; serves nothing yet.
    pub(crate) fn new(config: &Config, definitions: Vec<Definition>, inputs: Inputs) -> Result<Self> {
        let Inputs { unix, tcp, signals, inbox, meters, mut clock, peers, identify, .. } = inputs;
        let Inputs { adopt, custody, scout, remote, .. } = inputs;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).attempt("epoll_create")?;
        let readable = |data| EpollEvent::new(EpollFlags::EPOLLIN, data);
        epoll.add(&unix.listener, readable(UNIX)).attempt("epoll_ctl")?;
        if let Some(tcp) = &tcp {
            epoll.add(tcp.as_fd(), readable(TCP)).attempt("epoll_ctl")?;
        }
        epoll.add(clock.timer(), readable(TIMER)).attempt("epoll_ctl")?;
        epoll.add(inbox.fd(), readable(INBOX)).attempt("epoll_ctl")?;
        if let Some(signals) = &signals {
            epoll.add(signals.as_fd(), readable(SIGNAL)).attempt("epoll_ctl")?;
        }
        let now = clock.now_ns();
        let flags = Flags {
            fail_closed: config.on_manager_loss == OnManagerLoss::Closed,
            tsc_valid: clock.ticks_at(now).is_some(),
        };
        let (gpu_uuid, lobby) = match &config.clients {
            ClientSource::File { .. } => (String::new(), held::Lobby::new(0, 0)),
            ClientSource::Agent(agent) => {
                (agent.gpu_uuid.clone(), held::Lobby::new(nanos(agent.hold), agent.max_held))
            }
        };
        let slices = adopt.as_ref().is_none_or(|adopt| adopt.sets_slices());
        let closer = Closer::start().attempt("start the closing thread")?;
        let adopter = scout.map(|scout| Adopter::start(scout, remote.clone())).transpose();
        let adopter = adopter.attempt("start the thread that looks for programs")?;
        let executor = Executor::start(remote, closer.clone(), custody, slices)
            .attempt("start the thread for controls")?;
        let steering = Steering::new(SteeringPolicy { slices, ..config.steering_policy() });
        let mut plane = Self {
            epoll,
            unix,
            tcp,
            signals,
            inbox,
            meters,
            closer,
            clock,
            peers,
            identify,
            flags,
            busy_poll_ns: nanos(config.busy_poll),
            max_connections: config.max_connections,
            max_connections_per_process: config.max_connections_per_process,
            recognises_pods: matches!(config.clients, ClientSource::Agent(_)),
            gpu_uuid,
            in_force: clients::InForce::default(),
            lobby,
            throttle: Throttle::default(),
            clients: ClientTable::default(),
            tokens: TokenLedger::new(config.policy()),
            adoption: adopted::Adoption::new(adopter, config.lock_program.clone()),
            helm: steering::Helm::new(steering, adopt, executor),
            gatekeeper: gates::Gatekeeper::new(config.gate_policy(), config.gates),
            memory: MemoryLedger::default(),
            connections: BTreeMap::new(),
            by_pid: HashMap::new(),
            by_pod: HashMap::new(),
            processes: HashMap::new(),
            by_peer: HashMap::new(),
            last_number: FIRST_NUMBER,
            spare: accept::spare(),
            stopping: false,
        };
        plane.load(definitions);
        Ok(plane)
    }

    /// Serves until it is told to stop.
    pub(crate) fn serve(mut self) -> Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS];
        while !self.stopping {
            let timeout = if self.prepare_to_wait()? { EpollTimeout::ZERO } else { EpollTimeout::NONE };
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error).attempt("epoll_wait"),
            };
            self.gatekeeper.begin_round(self.clock.now_ns());
            for event in events.iter().take(count) {
                self.dispatch(event.data(), event.events());
            }
            self.expire_held();
            self.look_around();
            self.announce_put_off();
            self.settle();
        }
        info!("stops");
        for process in self.processes.values() {
            if let Some(pages) = &process.pages {
                // Nobody will say when the time is up: what the client does without a manager is its flag's business.
                pages.grant().close();
                pages.set_gate(false, false);
            }
        }
        // Before the hooks lose us and do it themselves.
        Self::restore(self.helm.executor);
        self.closer.close(std::mem::take(&mut self.connections));
        Ok(())
    }

    fn dispatch(&mut self, data: u64, events: EpollFlags) {
        match data {
            UNIX => self.accept_unix(),
            TCP => self.accept_tcp(),
            TIMER => self.clock.acknowledge(),
            INBOX => self.take_messages(),
            SIGNAL => self.take_signal(),
            number if number & DOORBELL != 0 => self.rang(ProcessId(number & !DOORBELL)),
            number if number % 2 == 0 => self.hear(number, events),
            number => self.process_ended(ProcessId(number)),
        }
    }

    fn take_signal(&mut self) {
        let signal = self.signals.as_ref().and_then(|signals| signals.read_signal().ok().flatten());
        info!(signal = signal.map(|signal| signal.ssi_signo), "told to stop");
        self.stopping = true;
    }

    fn take_messages(&mut self) {
        for message in self.inbox.take() {
            match message {
                Control::Clients(definitions) => self.load(definitions),
                // Who asked may have lost patience.
                Control::SetClients(set, done) => drop(done.send(self.set_clients(set))),
                Control::Snapshot(done) => drop(done.send(self.snapshot())),
                Control::Refresh(done) => {
                    self.refresh_gauges();
                    // The asker may have lost patience.
                    let _ = done.send(());
                }
                Control::Controlled(report) => self.controlled(&report),
                Control::Sighted(sighted) => self.sighted(sighted),
                Control::Proven(proof) => self.proven(proof),
                Control::Stop => self.stopping = true,
            }
        }
    }

    /// Arms the timer; `true` if the loop is to poll instead of sleeping, because a grant is about to come back and
    /// somebody waits for it.
    fn prepare_to_wait(&mut self) -> Result<bool> {
        let steering = self.helm.wake_at(self.clock.now_ns());
        let gates = self.gatekeeper.wake_at();
        let wake =
            [self.tokens.next_deadline(), self.lobby.next_deadline(), steering, gates, self.next_look()];
        let mut wake = wake.into_iter().flatten().min();
        if self.busy_poll_ns > 0 && self.tokens.waiting().next().is_some() {
            let now = self.clock.now_ns();
            for (_, deadline) in self.tokens.holders() {
                let (from, until) =
                    (deadline.saturating_sub(self.busy_poll_ns), deadline + self.busy_poll_ns);
                if now >= from && now < until {
                    return Ok(true);
                }
                if now < from {
                    wake = Some(wake.map_or(from, |wake| wake.min(from)));
                }
            }
        }
        self.clock.arm(wake).attempt("timerfd_settime")?;
        Ok(false)
    }

    /// A number that no connection or process has had: even for connections, odd for processes.
    fn next_number(&mut self, is_process: bool) -> u64 {
        self.last_number += 2;
        self.last_number + u64::from(is_process)
    }
}
