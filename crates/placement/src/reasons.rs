//! The reasons why a pod does not fit, with messages for its owner. Free amounts are rounded down and requested ones up,
//! so that a shortage is always visible.

use std::fmt;
use std::sync::Arc;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// The reason why one GPU cannot take a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Its free share is too small.
    Share {
        /// Parts per million that are free.
        free: u64,
        /// Parts per million that the pod asks for.
        asked: u64,
    },
    /// Its free memory is too small.
    Memory {
        /// Bytes that are free.
        free: u64,
        /// Bytes that the pod asks for.
        asked: u64,
    },
    /// The free memory of the host for what leaves the GPU is too small.
    HostMemory {
        /// Bytes of the host for this GPU.
        has: u64,
        /// Bytes of it that are free.
        free: u64,
        /// Bytes that the pod asks for.
        asked: u64,
    },
    /// Its total memory is too small.
    TooSmall {
        /// Bytes that it has.
        has: u64,
        /// Bytes that the pod asks for.
        asked: u64,
    },
    /// Its free device slots are too few.
    Slots {
        /// Device slots that it has.
        has: u32,
        /// Device slots that its pods use.
        used: u32,
        /// Device slots that the pod asks for.
        asked: u32,
    },
    /// One pod has the whole GPU.
    HeldWhole,
    /// It is an instance of a GPU, and the pod does not select it by model or UUID, or asks for several GPUs.
    Instance,
    /// A pod of the same gang is on it.
    SameGang,
    /// The pod needs the whole GPU, but others use it.
    InUse {
        /// Number of pods on it.
        pods: u32,
    },
    /// It is unhealthy and accepts no new pods.
    Unhealthy(String),
    /// The node's inventory does not contain it any more.
    Gone,
}

impl Reason {
    /// Whether the pod could fit with fewer pods on the GPU.
    pub fn is_resolvable(&self) -> bool {
        match self {
            Self::Slots { has, asked, .. } => asked <= has,
            Self::HostMemory { has, asked, .. } => asked <= has,
            Self::Share { .. }
            | Self::Memory { .. }
            | Self::HeldWhole
            | Self::SameGang
            | Self::InUse { .. } => true,
            Self::TooSmall { .. } | Self::Instance | Self::Unhealthy(_) | Self::Gone => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share { free, asked } => {
                write!(to, "has {} free, {} asked", format_share(*free), format_share(*asked))
            }
            Self::Memory { free, asked } => {
                write!(to, "has {} memory free, {} asked", memory_free(*free), memory_asked(*asked))
            }
            Self::HostMemory { has: 0, .. } => {
                write!(to, "has no memory of the host for pods with overcommitment")
            }
            Self::HostMemory { free, asked, .. } => write!(
                to,
                "has {} of the host's memory free for pods with overcommitment, {} asked",
                memory_free(*free),
                memory_asked(*asked)
            ),
            Self::TooSmall { has, asked } => {
                write!(to, "has {} memory in all, {} asked", memory_free(*has), memory_asked(*asked))
            }
            Self::Slots { has, used, .. } => write!(to, "has {used} of its {has} device slots in use"),
            Self::HeldWhole => write!(to, "is given to one pod as a whole"),
            Self::Instance => {
                write!(to, "is a MIG instance, for pods with one GPU that name its model or UUID")
            }
            Self::SameGang => write!(to, "has a pod of the same gang"),
            Self::InUse { pods: 1 } => write!(to, "is in use by 1 pod, asked for as a whole"),
            Self::InUse { pods } => write!(to, "is in use by {pods} pods, asked for as a whole"),
            Self::Unhealthy(reason) => write!(to, "is unhealthy: {reason}"),
            Self::Gone => write!(to, "is not there any more"),
        }
    }
}

/// A GPU in messages: `gpu-1 (GPU-…)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuName {
    /// Its ordinal on the node.
    pub ordinal: u32,
    /// Its UUID.
    pub uuid: Arc<str>,
}

impl fmt::Display for GpuName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "gpu-{} ({})", self.ordinal, self.uuid)
    }
}

/// The reasons why a node cannot take a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeReasons {
    /// The node has no known inventory: no agent runs there, or it found no GPU.
    NoGpus,
    /// The pod's selectors match none of its GPUs.
    NoneSelected {
        /// The pod's selectors, in words.
        asked: String,
        /// The models that the node has.
        has: Vec<String>,
    },
    /// The pod fits on too few of the GPUs that it selects.
    TooFewGpus {
        /// Number of GPUs on which it fits.
        fitting: usize,
        /// Number of requested GPUs.
        asked: usize,
        /// The reasons of the others, nearest to fitting first.
        refused: Vec<(GpuName, Reason)>,
    },
    /// The pod fits on each of enough GPUs, but its gang has no slot there in which it runs on all of them.
    NoSlot {
        /// Parts per million of a GPU that the pod asks for.
        asked_ppm: u64,
        /// What its gang asks for with two others of which each two have a common GPU.
        together_ppm: u64,
    },
}

/// GPUs of a node that a message names before it counts the rest.
const NAMED_GPUS: usize = 3;

impl NodeReasons {
    /// Whether the pod could fit with fewer pods on the node. If not, the scheduler need not try preemption.
    pub fn is_resolvable(&self) -> bool {
        match self {
            Self::NoGpus | Self::NoneSelected { .. } => false,
            Self::TooFewGpus { fitting, asked, refused } => {
                fitting + refused.iter().filter(|(_, reason)| reason.is_resolvable()).count() >= *asked
            }
            Self::NoSlot { .. } => true,
        }
    }

    /// A message that is equal for all nodes with the same shortage: without names of GPUs and amounts of a node.
    pub fn summary(&self) -> String {
        match self {
            Self::NoGpus | Self::NoneSelected { .. } => self.to_string(),
            Self::NoSlot { asked_ppm, .. } => {
                format!("no slot of {} for the gang beside those of others", format_share(*asked_ppm))
            }
            Self::TooFewGpus { asked, refused, .. } => {
                let (count, gpu) = match asked {
                    1 => ("no".to_owned(), "GPU"),
                    asked => (format!("fewer than {asked}"), "GPUs"),
                };
                match refused.first().map(|(_, reason)| reason) {
                    None => format!("{count} {gpu}"),
                    Some(Reason::Share { asked, .. }) => {
                        format!("{count} {gpu} with {} free", format_share(*asked))
                    }
                    Some(Reason::Memory { asked, .. } | Reason::TooSmall { asked, .. }) => {
                        format!("{count} {gpu} with {} memory free", memory_asked(*asked))
                    }
                    Some(Reason::HostMemory { asked, .. }) => {
                        format!("{count} {gpu} with {} of the host's memory free", memory_asked(*asked))
                    }
                    Some(Reason::Slots { .. }) => format!("{count} {gpu} with a free device slot"),
                    Some(Reason::HeldWhole | Reason::InUse { .. }) => format!("{count} {gpu} free"),
                    Some(Reason::Instance) => format!("{count} {gpu} that is no MIG instance"),
                    Some(Reason::SameGang) => format!("{count} {gpu} without a pod of the same gang"),
                    Some(Reason::Unhealthy(_) | Reason::Gone) => format!("{count} healthy {gpu}"),
                }
            }
        }
    }
}

impl fmt::Display for NodeReasons {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGpus => write!(to, "no GPUs of Sluice"),
            Self::NoneSelected { asked, has } => {
                write!(to, "no GPU {asked}")?;
                if has.is_empty() { Ok(()) } else { write!(to, " (has {})", has.join(", ")) }
            }
            Self::NoSlot { asked_ppm, together_ppm } => write!(
                to,
                "no slot of {} in which the gang runs on all of its GPUs: with two gangs on some of them it asks for {} of the same time",
                format_share(*asked_ppm),
                format_share(*together_ppm),
            ),
            Self::TooFewGpus { asked: 1, refused, .. } => write_gpus(to, refused),
            Self::TooFewGpus { fitting, asked, refused } if refused.is_empty() => {
                write!(to, "{fitting} of {asked} GPUs fit, and there are no others")
            }
            Self::TooFewGpus { fitting, asked, refused } => {
                write!(to, "{fitting} of {asked} GPUs fit: ")?;
                write_gpus(to, refused)
            }
        }
    }
}

fn write_gpus(to: &mut fmt::Formatter<'_>, gpus: &[(GpuName, Reason)]) -> fmt::Result {
    for (place, (name, reason)) in gpus.iter().take(NAMED_GPUS).enumerate() {
        let comma = if place == 0 { "" } else { "; " };
        write!(to, "{comma}{name} {reason}")?;
    }
    match gpus.len().saturating_sub(NAMED_GPUS) {
        0 => Ok(()),
        1 => write!(to, "; 1 more GPU does not fit either"),
        more => write!(to, "; {more} more GPUs do not fit either"),
    }
}

/// Parts per million of a GPU, or of several, as a decimal in thousandths: `0.300`.
pub fn format_share(ppm: u64) -> String {
    format!("{}.{:03}", ppm / 1_000_000, ppm % 1_000_000 / 1000)
}

/// Memory that is free, rounded down: `3.9 GiB`.
pub(crate) fn memory_free(bytes: u64) -> String {
    let unit = unit_of(bytes);
    tenths(u128::from(bytes) * 10 / u128::from(unit), unit)
}

/// Requested memory, rounded up: `4.0 GiB`.
pub(crate) fn memory_asked(bytes: u64) -> String {
    let unit = unit_of(bytes);
    tenths((u128::from(bytes) * 10).div_ceil(u128::from(unit)), unit)
}

fn unit_of(bytes: u64) -> u64 {
    if bytes == 0 || bytes >= GIB { GIB } else { MIB }
}

fn tenths(tenths: u128, unit: u64) -> String {
    let name = if unit == GIB { "GiB" } else { "MiB" };
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}
