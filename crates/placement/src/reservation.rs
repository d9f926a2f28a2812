//! GPUs that are reserved for a pod, and until when.

use std::sync::Arc;

use super::demand::Demand;

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
