//! Reservations, and the answers of the index.

use std::fmt;
use std::sync::Arc;

use sluice_units::Share;

use super::reasons::{GpuName, NodeReasons, format_share, memory_asked};
use crate::demand::Demand;

/// State of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservationState {
    /// Offered to the scheduler, which may still choose another node. Released at the deadline, or when the pod is
    /// placed again.
    Reserved {
        /// On the caller's clock, nanoseconds.
        deadline_ns: u64,
    },
    /// A bind was sent and may yet succeed: placing the pod again does not release the reservation.
    Binding {
        /// When no answer to the bind can come any more, on the caller's clock, nanoseconds.
        deadline_ns: u64,
    },
    /// The pod is bound to these GPUs.
    Confirmed,
}

impl ReservationState {
    /// When the reservation ends by itself.
    pub fn deadline_ns(self) -> Option<u64> {
        match self {
            Self::Reserved { deadline_ns } | Self::Binding { deadline_ns } => Some(deadline_ns),
            Self::Confirmed => None,
        }
    }
}

/// GPUs of one node that are reserved for one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The node.
    pub node: Arc<str>,
    /// UUIDs of the GPUs.
    pub gpus: Vec<Arc<str>>,
    /// The pod's demand on each of them.
    pub demand: Arc<Demand>,
    /// State.
    pub state: ReservationState,
}

impl Reservation {
    /// Whether the pod is bound to these GPUs.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.state == ReservationState::Confirmed
    }
}

/// GPUs of one node for one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The node.
    pub node: Arc<str>,
    /// UUIDs of the GPUs.
    pub gpus: Vec<Arc<str>>,
    /// Their ordinals on the node, for messages.
    pub ordinals: Vec<u32>,
    /// Bytes on each.
    pub memory_bytes: u64,
    /// Share of each.
    pub share: Share,
}

/// `gpu-1 of node-a: 0.300 of GPU-…, 4.0 GiB`
impl fmt::Display for Placement {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, ordinal) in self.ordinals.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(to, "{comma}gpu-{ordinal}")?;
        }
        write!(to, " of {}: ", self.node)?;
        let share = format_share(self.share.ppm().into());
        write!(to, "{share} of {}, {}", self.gpus.join(", "), memory_asked(self.memory_bytes))?;
        if self.gpus.len() > 1 { write!(to, " each") } else { Ok(()) }
    }
}

/// Result of placing a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementOutcome {
    /// Reserved for the pod on each of these nodes, best first, until it is bound to one of them.
    Reserved(Vec<Placement>),
    /// The pod is bound there already, or a bind was sent.
    Bound(Placement),
    /// The pod has a reservation on a node that is not among the candidates.
    ReservedElsewhere(Reservation),
    /// The pod fits on no candidate; the reasons of each. Nothing is reserved for it any more.
    Refused(Vec<(Arc<str>, NodeReasons)>),
}

/// The reason why a bind must not be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CannotBind {
    /// Nothing is reserved for the pod on that node: its reservation expired, or was never made here.
    NotReserved,
    /// The pod is bound to another node.
    BoundElsewhere(Arc<str>),
    /// A reserved GPU cannot be used any more.
    Lost {
        /// The GPU.
        gpu: GpuName,
        /// The reason, in words.
        why: String,
    },
}

impl fmt::Display for CannotBind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReserved => write!(to, "no GPU is reserved for the pod there (any more)"),
            Self::BoundElsewhere(node) => write!(to, "the pod is bound to {node} already"),
            Self::Lost { gpu, why } => write!(to, "{gpu} cannot be had any more: it {why}"),
        }
    }
}
