//! Assembles the manager from its parts, and runs it.

use crate::agent_api;
use crate::channel_groups::{ControlDriver, EscrowClient, Nvrm, allowed_controls};
use crate::clock::{Clock, SystemClock};
use crate::config::{ClientSource, Config, Controls};
use crate::definition::{Definition, of_file};
use crate::error::{Attempt, Error, Result};
use crate::event_loop::{EventLoop, Inputs};
use crate::gangs;
use crate::http::{self, HttpListeners, SharedExposition};
use crate::listen::{self, UnixSocket};
use crate::measured_memory::{MemoryReader, NvmlReader};
use crate::message::{self, Message, Remote};
use crate::metrics::{self, Exposition};
use crate::peer::{KernelPeers, Peers};
use crate::side_thread::SideThread;
use crate::trace_server;
use crate::unhooked::scanning::{KernelDiscovery, ProcessDiscovery};
use crate::watched_file::{self, ReloadRequests, WatchedFile};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, SockType};
use sluice_core::resources::{ParseOptions, parse};
use sluice_nvrm::DriverVersion;
use sluice_nvrm::self_test::UsableControls;
use sluice_sys::file_kind::{self, Kind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tracing::{info, warn};

/// The parts that tests replace: time, peers, the driver, the search for processes without the hook.
pub struct Parts {
    /// Time.
    pub clock: Box<dyn Clock>,
    /// Which process is at the other end of a connection.
    pub peers: Box<dyn Peers>,
    /// Opens control descriptors; `None`: no channel group is controlled.
    pub driver: Option<Box<dyn ControlDriver>>,
    /// Searches for processes without the hook; `None`: there is no search.
    pub discovery: Option<Box<dyn ProcessDiscovery>>,
    /// A packet socket to the descriptor escrow; `None`: copies are not kept.
    pub escrow: Option<OwnedFd>,
    /// Reads the memory of processes on the GPU; `None`: the node agent reports it, or limits cover charges only.
    pub memory: Option<Box<dyn MemoryReader>>,
}

impl Parts {
    /// The system's clock, and peers as the kernel reports them. Clients of a file are identified by the name that a peer claims, those
    /// of the node agent by the peer's cgroup.
    /// Errors: the timer cannot be opened, or standard input is not what [`Config::escrow`] says.
    pub fn system(config: &Config) -> Result<Self> {
        let clock = Box::new(SystemClock::new().attempt("timerfd_create")?);
        let peers = match config.clients {
            ClientSource::File { .. } => KernelPeers::default(),
            ClientSource::Agent(_) => KernelPeers::with_places(),
        };
        let driver: Option<Box<dyn ControlDriver>> = match config.controls {
            Controls::Auto => nvrm(false, allowed_controls(config, &DriverVersion::loaded())),
            Controls::AnyDriver => nvrm(false, UsableControls::All),
            Controls::Simulated => nvrm(true, allowed_controls(config, &DriverVersion::NotVisible)),
            Controls::Off => None,
        };
        let escrow = config.escrow.then(escrow_socket).transpose();
        let escrow = escrow.attempt("escrow socket on standard input (--custody)")?;
        let discovery = driver.as_ref().and_then(|_| process_discovery(config));
        let memory: Option<Box<dyn MemoryReader>> = match config.clients {
            ClientSource::File { .. } => Some(Box::new(NvmlReader::new(config.gpu_uuid.clone()))),
            ClientSource::Agent(_) => None,
        };
        Ok(Self { clock, peers: Box::new(peers), driver, discovery, escrow, memory })
    }
}

/// The escrow socket, which the node agent passes as standard input.
fn escrow_socket() -> std::io::Result<OwnedFd> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let packets = (AddressFamily::Unix as i32, SockType::SeqPacket as i32);
    match file_kind::of(socket.as_fd())? {
        Kind::Socket { domain, kind } if (domain, kind) == packets => Ok(socket),
        other => Err(std::io::Error::other(format!("is {other}, expected a packet socket"))),
    }
}

/// The search for processes without the hook, and the inspection of attached ones. Only processes of pods are recognised from outside, by
/// their cgroups: with a resource file, attached processes alone are looked at.
fn process_discovery(config: &Config) -> Option<Box<dyn ProcessDiscovery>> {
    let gpu_uuid = match &config.clients {
        ClientSource::Agent(agent) => agent.gpu_uuid.as_str(),
        ClientSource::File { .. } => config.gpu_uuid.as_deref().unwrap_or_default(),
    };
    let simulated = config.controls == Controls::Simulated;
    // The hook looks for it beside the socket, too.
    let switch = config.socket.parent().map(|folder| folder.join("disable"));
    config.unhooked.then(|| Box::new(KernelDiscovery::new(gpu_uuid, simulated, switch)) as _)
}

fn nvrm(simulated: bool, allows: UsableControls) -> Option<Box<dyn ControlDriver>> {
    let slices = match allows {
        UsableControls::All => true,
        UsableControls::DisableOnly => false,
        UsableControls::NoControls => return None,
    };
    Some(Box::new(Nvrm { simulated, slices }))
}

/// A manager that serves on threads of its own. Dropping it leaves the event loop running; [`Handle::stop`] ends it.
#[derive(Debug)]
pub struct Handle {
    side: Side,
    event_loop: JoinHandle<Result<()>>,
}

impl Handle {
    /// Where Gemini's protocol is served.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.side.tcp
    }

    /// Where /metrics and /healthz are served.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.side.metrics
    }

    /// Where /healthz alone is served.
    pub fn health(&self) -> Option<SocketAddr> {
        self.side.health
    }

    /// Returns when the event loop has handled everything that it had received, and the metrics show it; `false` if it has ended.
    pub fn refresh(&self) -> bool {
        self.side.remote.ask_blocking(Message::Refresh).is_some()
    }

    /// The text of /metrics, as of now; `None` if the event loop has ended.
    pub fn exposition(&self) -> Option<String> {
        self.read_metrics(|exposition| exposition.text().ok())
    }

    /// The value of a gauge without labels, as of now; `None` if there is no such gauge, or if the event loop has ended.
    pub fn gauge(&self, name: &str) -> Option<f64> {
        self.read_metrics(|exposition| exposition.gauge(name).ok()?)
    }

    fn read_metrics<T>(&self, read: impl FnOnce(&Exposition) -> Option<T>) -> Option<T> {
        let is_current = self.refresh();
        let exposition = self.side.exposition.lock().unwrap_or_else(PoisonError::into_inner);
        if is_current { read(&exposition) } else { None }
    }

    /// Ends the manager in order: its socket is gone when this returns.
    /// Errors: what went wrong while it ran.
    pub fn stop(self) -> Result<()> {
        self.side.remote.send(Message::Stop);
        let served = self.event_loop.join().map_err(|_| Error::Panicked("event loop"))?;
        stop_all(self.side.threads)?;
        served
    }
}

/// What runs beside the event loop.
#[derive(Debug)]
struct Side {
    remote: Remote,
    exposition: SharedExposition,
    /// The thread that provides the set of clients, and the HTTP thread.
    threads: Vec<SideThread>,
    tcp: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    health: Option<SocketAddr>,
}

/// Ends all threads; the first error.
fn stop_all(threads: Vec<SideThread>) -> Result<()> {
    let stopped: Vec<Result<()>> = threads.into_iter().map(SideThread::stop).collect();
    stopped.into_iter().collect()
}

/// Serves until SIGTERM or SIGINT on the calling thread, which should be the process's only one. SIGHUP has the resource file read
/// again. The socket is gone when this returns.
/// Errors: the configuration or the resource file is wrong (every mistake is named), or a socket cannot be opened.
pub fn run(config: Config) -> Result<()> {
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    // Before any thread is started, so that all inherit it.
    signals.thread_block().attempt("block signals")?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&signals, flags).attempt("signalfd")?;
    raise_descriptor_limit();
    let (event_loop, side) = assemble(&config, Parts::system(&config)?, Some(signals))?;
    let served = event_loop.serve();
    stop_all(side.threads)?;
    served
}

/// Raises the soft limit of descriptors: a process costs five of them, and the soft limit is low for programs that call select().
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        let raise = soft < hard;
        if raise { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
    });
    if let Err(error) = raised {
        warn!(%error, "cannot raise the limit of open descriptors");
    }
}

/// Serves on threads of its own, without handling signals.
/// Errors: as [`run`].
pub fn start(config: Config) -> Result<Handle> {
    let parts = Parts::system(&config)?;
    start_with(config, parts)
}

/// As [`start`], with other parts than the system's.
pub fn start_with(config: Config, parts: Parts) -> Result<Handle> {
    let (event_loop, side) = assemble(&config, parts, None)?;
    let event_loop = std::thread::Builder::new()
        .name("sluice-tokens".into())
        .spawn(move || event_loop.serve())
        .attempt("start the event loop")?;
    Ok(Handle { side, event_loop })
}

fn assemble(config: &Config, parts: Parts, signals: Option<SignalFd>) -> Result<(EventLoop, Side)> {
    config.check()?;
    let (remote, inbox) = message::pair().attempt("eventfd")?;
    let (metrics, exposition) = metrics::pair().map_err(std::io::Error::other).attempt("make the metrics")?;
    let exposition = Arc::new(Mutex::new(exposition));
    let mut side = Side { remote, exposition, threads: Vec::new(), tcp: None, metrics: None, health: None };
    let event_loop = (|| {
        let ClientsThread { thread, reloads, definitions } = open_source(&config.clients, &side.remote)?;
        side.threads.push(thread);
        let mut reloads: Vec<ReloadRequests> = reloads.into_iter().collect();
        let policy = config.policy_file.as_deref().map(|path| open_policy(path, config, &side.remote));
        let mut config = config.clone();
        if let Some((thread, requests, read)) = policy.transpose()? {
            side.threads.push(thread);
            reloads.push(requests);
            config = read;
        }
        let config = &config;
        let tcp = config.tcp.map(listen::tcp).transpose()?;
        let metrics_listener = config.metrics.map(listen::tcp).transpose()?;
        let health = config.health.map(listen::tcp).transpose()?;
        let address = |listener: &TcpListener| listener.local_addr().ok();
        side.tcp = tcp.as_ref().and_then(address);
        side.metrics = metrics_listener.as_ref().and_then(address);
        side.health = health.as_ref().and_then(address);
        let http = HttpListeners { metrics: metrics_listener, health };
        let unix = UnixSocket::open(&config.socket, config.socket_mode)?;
        let Parts { clock, peers, driver, discovery, escrow, memory } = parts;
        let escrow = escrow.map(EscrowClient::over).transpose().attempt("prepare the escrow socket")?;
        let (listeners, remote) = ((unix, tcp), side.remote.clone());
        let tables = match &config.gangs {
            Some(directory) => {
                let gangs = remote.report(Message::Gangs);
                let (thread, tables) = gangs::start(directory, &config.gpu_name(), gangs)?;
                side.threads.push(thread);
                Some(tables)
            }
            None => None,
        };
        let inputs = Inputs {
            listeners,
            peers,
            signals,
            reloads,
            inbox,
            metrics,
            clock,
            driver,
            escrow,
            discovery,
            memory,
            tables,
            remote,
        };
        let trace = config.trace.as_deref().map(|path| UnixSocket::open(path, 0o600)).transpose()?;
        let event_loop = EventLoop::new(config, definitions, inputs)?;
        if let Some(socket) = trace {
            side.threads.push(trace_server::start(socket, side.remote.clone())?);
        }
        if http.metrics.is_some() || http.health.is_some() {
            side.threads.push(http::start(http, side.remote.clone(), Arc::clone(&side.exposition))?);
        }
        Ok(event_loop)
    })();
    match event_loop {
        Ok(event_loop) => {
            info!(socket = %config.socket.display(), tcp = ?side.tcp, metrics = ?side.metrics, "pod-manager serves");
            Ok((event_loop, side))
        }
        Err(error) => {
            stop_all(side.threads)?;
            Err(error)
        }
    }
}

/// The thread that provides the set of clients.
struct ClientsThread {
    thread: SideThread,
    /// `None`: the node agent sends the clients.
    reloads: Option<ReloadRequests>,
    /// The clients that are known already.
    definitions: Vec<Definition>,
}

fn open_source(clients: &ClientSource, remote: &Remote) -> Result<ClientsThread> {
    match clients {
        ClientSource::File { path, swapped } => {
            let (reading, remote) = (ParseOptions { limit_first: *swapped }, remote.clone());
            let file = WatchedFile {
                what: "resource file",
                kept: "clients stay",
                thread: "watch",
                path: path.clone(),
                read: Box::new(move |text| parse(text, reading).map(of_file)),
            };
            let (thread, reloads, definitions) = watched_file::watch(file, move |definitions| {
                if let Some(definitions) = definitions {
                    remote.send(Message::Clients(definitions));
                }
            })?;
            Ok(ClientsThread { thread, reloads: Some(reloads), definitions })
        }
        ClientSource::Agent(agent) => {
            let socket = UnixSocket::unpublished(&agent.control, 0o600)?;
            let thread = agent_api::start(socket, remote.clone())?;
            Ok(ClientsThread { thread, reloads: None, definitions: Vec::new() })
        }
    }
}

/// Reads the policy file and watches it. Returns the configuration with its settings.
fn open_policy(
    path: &Path,
    config: &Config,
    remote: &Remote,
) -> Result<(SideThread, ReloadRequests, Config)> {
    let (base, remote) = (config.clone(), remote.clone());
    let file = WatchedFile {
        what: "policy file",
        kept: "policy stays",
        thread: "policy",
        path: path.to_owned(),
        read: Box::new(move |text| base.with_policy(text)),
    };
    watched_file::watch(file, move |config: Option<Config>| {
        remote.send(Message::Policies(config.map(|config| Box::new(config.policies()))));
    })
}
