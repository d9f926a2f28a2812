//! Configuration of a simulated GPU.

use crate::identity::PciAddress;
use crate::params;
use crate::rm::Support;
use std::path::PathBuf;

/// One simulated GPU. The default is an H200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuConfig {
    /// Name as the driver reports it; begins with "Sluice Simulated".
    pub name: String,
    /// Identity; by default it follows from the socket's path, so that it survives a restart.
    pub uuid: Option<[u8; 16]>,
    /// Device memory in bytes.
    pub memory_bytes: u64,
    /// Device memory that each context takes, in bytes.
    pub context_bytes: u64,
    /// Time slice of a new context in nanoseconds.
    pub timeslice_ns: u64,
    /// Place on the bus; by default it follows from the identity, in a domain that real machines do not have.
    pub pci: Option<PciAddress>,
    /// NUMA node of the host; none if the machine has one node.
    pub numa: Option<u32>,
    /// NVLinks: the place that each leads to, a GPU or a switch.
    pub links: Vec<PciAddress>,
    /// Whether the GPU is in MIG mode.
    pub is_mig: bool,
    /// How the driver handles control requests for channel groups.
    pub controls: Support,
    /// Whether streams can wait for words in memory and write them.
    pub has_mem_ops: bool,
    /// The version that the driver reports.
    pub driver_version: String,
    /// CU_COMPUTEMODE: 0 takes several processes, 2 none, 3 one.
    pub compute_mode: i32,
    /// Whether the driver reports that processes are clients of an MPS server. Each process has its own channel
    /// groups in any case.
    pub is_mps: bool,
}

impl Default for GpuConfig {
    fn default() -> Self {
        Self {
            name: "Sluice Simulated H200".into(),
            uuid: None,
            memory_bytes: params::MEMORY_BYTES,
            context_bytes: params::CONTEXT_BYTES,
            timeslice_ns: params::TIMESLICE_NS,
            pci: None,
            numa: None,
            links: Vec::new(),
            is_mig: false,
            controls: Support::Full,
            has_mem_ops: true,
            driver_version: "580.159.04".into(),
            compute_mode: 0,
            is_mps: false,
        }
    }
}

/// One daemon: a GPU and where to find it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonConfig {
    /// Path of the unix socket; an old one is replaced.
    pub socket: PathBuf,
    /// The GPU.
    pub gpu: GpuConfig,
}

impl DaemonConfig {
    /// An H200 at this socket.
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), gpu: GpuConfig::default() }
    }

    /// The GPU's place on the bus.
    pub fn pci(&self) -> PciAddress {
        /// Beyond the PCI domains of real machines, so no real device has such an address.
        const DOMAIN: u32 = 0x5117;
        self.gpu.pci.unwrap_or_else(|| {
            let uuid = self.uuid();
            PciAddress { domain: DOMAIN, bus: uuid[0], device: uuid[8] % 32 }
        })
    }

    /// The GPU's identity: the configured one, or one that follows from the socket's path.
    pub fn uuid(&self) -> [u8; 16] {
        self.gpu.uuid.unwrap_or_else(|| {
            let path = self.socket.as_os_str().as_encoded_bytes();
            let mut uuid = [0; 16];
            for (half, seed) in
                uuid.chunks_exact_mut(8).zip([0xcbf2_9ce4_8422_2325u64, 0x9ae1_6a3b_2f90_404f])
            {
                let hash = path
                    .iter()
                    .fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
                half.copy_from_slice(&hash.to_le_bytes());
            }
            uuid
        })
    }
}
