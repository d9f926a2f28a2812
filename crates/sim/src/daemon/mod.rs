//! The GPUs of a node as a process: couples their engines to a clock and serves each to clients at a socket of its own.
//!
//! One thread owns all state. It sleeps until a request arrives, or until a command that a process waits for may have
//! completed, and then computes the timeline up to the present. Everything else is computed later, with the same
//! result, because every command carries the time of its submission.

mod clock;
mod files;
mod gpu;
mod locks;
mod machine;
mod peer;
mod server;
#[cfg(test)]
mod tests;

use crate::identity::PciAddress;
use crate::params;
use crate::rm::Support;
use crate::wire::message::GpuInfo;
pub use clock::Clock;
use machine::Machine;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The configuration of one daemon: a GPU, by default an H200, and its socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonConfig {
    /// Path of the unix socket; an existing file is replaced.
    pub socket: PathBuf,
    /// Properties that processes can read.
    pub gpu: GpuInfo,
    /// Device memory that each context uses, in bytes.
    pub context_bytes: u64,
    /// By how much NVML's report of the memory of processes lags behind, in nanoseconds.
    pub report_lag_ns: u64,
    /// Time slice of a new context in nanoseconds.
    pub timeslice_ns: u64,
    /// How the driver handles control requests for channel groups.
    pub controls: Support,
    /// What the timeline follows.
    pub clock: Clock,
}

impl DaemonConfig {
    /// An H200 at this socket. Its UUID follows from the socket's path, so that it survives a restart.
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        let gpu = GpuInfo {
            name: "Sluice Simulated H200".into(),
            uuid: [0; 16],
            memory_bytes: params::MEMORY_BYTES,
            pci: PciAddress::default(),
            numa: None,
            links: Vec::new(),
            is_mig: false,
            instance: None,
            has_mem_ops: true,
            reports_memory: true,
            driver_version: "580.159.04".into(),
            compute_mode: 0,
            is_mps: false,
            fault: None,
        };
        let mut config = Self {
            socket: socket.into(),
            gpu,
            context_bytes: params::CONTEXT_BYTES,
            report_lag_ns: 0,
            timeslice_ns: params::TIMESLICE_NS,
            controls: Support::Full,
            clock: Clock::Real,
        };
        config.set_uuid(uuid_of(&config.socket));
        config
    }

    /// Sets the UUID, and the PCI address that follows from it.
    pub fn set_uuid(&mut self, uuid: [u8; 16]) {
        /// Beyond the PCI domains of real machines, so no real device has such an address.
        const DOMAIN: u32 = 0x5117;
        self.gpu.uuid = uuid;
        self.gpu.pci = PciAddress { domain: DOMAIN, bus: uuid[0], device: uuid[8] % 32 };
    }
}

/// Two FNV-1a hashes of the path, with different seeds.
fn uuid_of(socket: &Path) -> [u8; 16] {
    let path = socket.as_os_str().as_encoded_bytes();
    let mut uuid = [0; 16];
    for (half, seed) in uuid.chunks_exact_mut(8).zip([0xcbf2_9ce4_8422_2325u64, 0x9ae1_6a3b_2f90_404f]) {
        let hash =
            path.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        half.copy_from_slice(&hash.to_le_bytes());
    }
    uuid
}

/// A daemon on a thread of this process. Dropping it stops it: clients find that their GPU is lost.
#[derive(Debug)]
pub struct Handle {
    sockets: Vec<PathBuf>,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Handle {
    /// Path of the first GPU's socket.
    pub fn socket(&self) -> &Path {
        self.socket_of(0)
    }

    /// Path of a GPU's socket, by the index of its configuration.
    ///
    /// # Panics
    /// When the daemon has no such GPU.
    pub fn socket_of(&self, gpu: usize) -> &Path {
        &self.sockets[gpu]
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The counter cannot overflow: only this handle writes the eventfd.
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves GPUs of one node until the process ends. All follow the clock of the first. Returns an error if a socket cannot be bound, or if
/// polling fails.
pub fn run(configs: Vec<DaemonConfig>) -> io::Result<()> {
    Machine::bind(configs, Arc::new(event()?))?.run()
}

/// Serves one GPU on a thread until the handle is dropped. When the function returns, the socket accepts connections.
/// Returns an error if the socket cannot be bound.
pub fn spawn_thread(config: DaemonConfig) -> io::Result<Handle> {
    spawn_node_thread(vec![config])
}

/// Serves GPUs of one node as [`spawn_thread`] serves one.
pub fn spawn_node_thread(configs: Vec<DaemonConfig>) -> io::Result<Handle> {
    let stop = Arc::new(event()?);
    let sockets = configs.iter().map(|config| config.socket.clone()).collect();
    let machine = Machine::bind(configs, stop.clone())?;
    let thread = std::thread::Builder::new().name("sim-gpu".into()).spawn(|| machine.run())?;
    Ok(Handle { sockets, stop, thread: Some(thread) })
}

fn event() -> io::Result<EventFd> {
    Ok(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?)
}
