//! Puts the parts together and runs them.

use crate::adopt::{KernelScout, Scout};
use crate::agent;
use crate::channels::{Adopt, Custody, Nvrm, verdict};
use crate::clock::{Clock, SystemClock};
use crate::config::{Adoption, ClientSource, Config, Controls};
use crate::control::{self, Control, Remote};
use crate::data_plane::{DataPlane, Inputs};
use crate::definition::{self, Definition};
use crate::error::{Attempt, Error, Result};
use crate::http;
use crate::identity::{ByCgroup, ByName, Identify};
use crate::listen::{self, Hidden, UnixSocket};
use crate::metrics;
use crate::peer::{KernelPeers, Peers};
use crate::watch::Watcher;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, SockType};
use sluice_core::resources::Reading;
use sluice_nvrm::Driver;
use sluice_nvrm::selftest::Allows;
use sluice_sys::kind::{self, Kind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;
use tracing::{info, warn};

/// What can be exchanged: time, and what is believed about peers.
pub struct Parts {
    /// Time.
    pub clock: Box<dyn Clock>,
    /// Which process is at the other end.
    pub peers: Box<dyn Peers>,
    /// Which client it is.
    pub identify: Box<dyn Identify>,
    /// Which descriptors lead to a driver; `None`: no channel group is controlled.
    pub adopt: Option<Box<dyn Adopt>>,
    /// Who looks for programs without the hook; `None`: nobody is looked for.
    pub scout: Option<Box<dyn Scout>>,
    /// A packet socket to whoever gets duplicates of the ways to the driver; `None`: nobody.
    pub custody: Option<OwnedFd>,
}

impl Parts {
    /// The system's clock and the kernel's word on peers; names as claimed where clients come from a file, pods by their
    /// cgroup where they come from the node agent.
    ///
    /// # Errors
    /// When the timer cannot be opened, or standard input is not what [`Config::custody`] says.
    pub fn system(config: &Config) -> Result<Self> {
        let clock = Box::new(SystemClock::new().attempt("timerfd_create")?);
        let (peers, identify): (_, Box<dyn Identify>) = match config.clients {
            ClientSource::File { .. } => (KernelPeers::default(), Box::new(ByName)),
            ClientSource::Agent(_) => (KernelPeers::with_places(), Box::new(ByCgroup)),
        };
        let adopt: Option<Box<dyn Adopt>> = match config.controls {
            Controls::Auto => nvrm(false, verdict::controls(config, &Driver::loaded())),
            Controls::AnyDriver => nvrm(false, Allows::Everything),
            Controls::Simulated => nvrm(true, verdict::controls(config, &Driver::Unseen)),
            Controls::Off => None,
        };
        let custody =
            config.custody.then(from_supervisor).transpose().attempt("socket on standard input (custody)")?;
        let scout = adopt.as_ref().and_then(|_| scout(config));
        Ok(Self { clock, peers: Box::new(peers), identify, adopt, scout, custody })
    }
}

/// A unix socket that keeps the borders of packets.
const PACKETS: (i32, i32) = (AddressFamily::Unix as i32, SockType::SeqPacket as i32);

/// What the supervisor has put in the place of standard input.
fn from_supervisor() -> std::io::Result<OwnedFd> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    match kind::of(socket.as_fd())? {
        Kind::Socket { domain, kind } if (domain, kind) == PACKETS => Ok(socket),
        other => Err(std::io::Error::other(format!("is {other}, expected a packet socket"))),
    }
}

/// Only pods have cgroups by which their processes are known.
fn scout(config: &Config) -> Option<Box<dyn Scout>> {
    let ClientSource::Agent(agent) = &config.clients else { return None };
    let simulated = config.controls == Controls::Simulated;
    (config.adopt == Adoption::Auto).then(|| Box::new(KernelScout::new(&agent.gpu_uuid, simulated)) as _)
}

fn nvrm(simulated: bool, allows: Allows) -> Option<Box<dyn Adopt>> {
    let slices = match allows {
        Allows::Everything => true,
        Allows::Stops => false,
        Allows::Nothing => return None,
    };
    Some(Box::new(Nvrm { simulated, slices }))
}

/// A manager that serves on threads of its own. Dropping it leaves it running; [`Handle::stop`] ends it.
#[derive(Debug)]
pub struct Handle {
    remote: Remote,
    side: Side,
    data_plane: JoinHandle<Result<()>>,
    tcp: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

impl Handle {
    /// Where Gemini's protocol is served.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// Where /metrics and /healthz are served.
    #[must_use]
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Ends the manager in order: its socket is gone when this returns.
    ///
    /// # Errors
    /// What went wrong while it ran.
    pub fn stop(self) -> Result<()> {
        self.remote.send(Control::Stop);
        let served = self.data_plane.join().map_err(|_| Error::Panicked("data plane"))?;
        self.side.stop()?;
        served
    }
}

/// The threads beside the data plane.
#[derive(Debug)]
struct Side {
    source: Source,
    http: Option<http::Server>,
}

/// The thread that says who the clients are.
#[derive(Debug)]
enum Source {
    File(Watcher),
    Agent(agent::Server),
}

impl Source {
    fn stop(self) -> Result<()> {
        match self {
            Self::File(watcher) => watcher.stop(),
            Self::Agent(server) => server.stop(),
        }
    }
}

impl Side {
    fn stop(self) -> Result<()> {
        let source = self.source.stop();
        let served = self.http.map_or(Ok(()), http::Server::stop);
        source.and(served)
    }
}

struct Assembled {
    plane: DataPlane,
    remote: Remote,
    side: Side,
    tcp: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

/// Serves until SIGTERM or SIGINT on the calling thread, which should be the process's only one. The socket is gone
/// when this returns.
///
/// # Errors
/// When the configuration or the resource file is wrong (every mistake is named), or a socket cannot be opened.
pub fn run(config: Config) -> Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    // Before any thread is started, so that all inherit it.
    signals.thread_block().attempt("block signals")?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&signals, flags).attempt("signalfd")?;
    raise_descriptor_limit();
    let assembled = assemble(&config, Parts::system(&config)?, Some(signals))?;
    let served = assembled.plane.serve();
    assembled.side.stop()?;
    served
}

/// A process costs five descriptors, and the soft limit is often for programs that call select().
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        let raise = soft < hard;
        if raise { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
    });
    if let Err(error) = raised {
        warn!(%error, "cannot raise the limit of descriptors");
    }
}

/// Serves on threads of its own, without handling signals.
///
/// # Errors
/// As [`run`].
pub fn start(config: Config) -> Result<Handle> {
    let parts = Parts::system(&config)?;
    start_with(config, parts)
}

/// As [`start`], with other parts than the system's.
///
/// # Errors
/// As [`run`].
pub fn start_with(config: Config, parts: Parts) -> Result<Handle> {
    let Assembled { plane, remote, side, tcp, metrics } = assemble(&config, parts, None)?;
    let data_plane = std::thread::Builder::new()
        .name("sluice-tokens".into())
        .spawn(move || plane.serve())
        .attempt("start the data plane")?;
    Ok(Handle { remote, side, data_plane, tcp, metrics })
}

fn assemble(config: &Config, parts: Parts, signals: Option<SignalFd>) -> Result<Assembled> {
    config.check()?;
    let (remote, inbox) = control::pair().attempt("eventfd")?;
    let (source, definitions) = open_source(&config.clients, &remote)?;
    let outcome = (|| {
        let tcp = config.tcp.map(listen::tcp).transpose()?;
        let http = config.metrics.map(listen::tcp).transpose()?;
        let (meters, exposition) =
            metrics::pair().map_err(std::io::Error::other).attempt("make the metrics")?;
        let addresses = (
            tcp.as_ref().and_then(|listener| listener.local_addr().ok()),
            http.as_ref().and_then(|listener| listener.local_addr().ok()),
        );
        let unix = UnixSocket::open(&config.socket, config.socket_mode)?;
        let Parts { clock, peers, identify, adopt, scout, custody } = parts;
        let custody = custody.map(Custody::over).transpose().attempt("prepare the socket for duplicates")?;
        let reports = remote.clone();
        let inputs = Inputs {
            unix,
            tcp,
            signals,
            inbox,
            meters,
            clock,
            peers,
            identify,
            adopt,
            custody,
            scout,
            remote: reports,
        };
        let plane = DataPlane::new(config, definitions, inputs)?;
        let http =
            http.map(|listener| http::Server::start(listener, remote.clone(), exposition)).transpose()?;
        Ok((plane, http, addresses))
    })();
    match outcome {
        Ok((plane, http, (tcp, metrics))) => {
            info!(socket = %config.socket.display(), ?tcp, ?metrics, "serves");
            Ok(Assembled { plane, remote, side: Side { source, http }, tcp, metrics })
        }
        Err(error) => {
            source.stop()?;
            Err(error)
        }
    }
}

/// Starts the thread that says who the clients are; whom it knows already.
fn open_source(clients: &ClientSource, remote: &Remote) -> Result<(Source, Vec<Definition>)> {
    match clients {
        ClientSource::File { path, swapped } => {
            let reading = Reading { swapped: *swapped };
            let (watcher, resources) = Watcher::start(path, reading, remote.clone())?;
            Ok((Source::File(watcher), definition::of_file(resources)))
        }
        ClientSource::Agent(agent) => {
            let socket = Hidden::open(&agent.control, 0o600)?;
            let server = agent::Server::start(socket, remote.clone())?;
            Ok((Source::Agent(server), Vec::new()))
        }
    }
}
