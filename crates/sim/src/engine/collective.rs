//! Collective kernels: each occupies its GPU and spins until the kernels of all ranks have begun, and then takes its transfer time.

use super::{Engine, StreamId};
use serde::{Deserialize, Serialize};

/// The place of a kernel among the kernels of a collective, as NCCL's `ncclComm_t` gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectiveRank {
    /// Number of the communicator, the same for all ranks. One job uses it once, as it does an `ncclUniqueId`.
    pub communicator: u64,
    /// The kernel's rank, less than `ranks`.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// Parts of the transfer, at least 1 and the same for all ranks. Each begins when every rank has ended the part before: a ring
    /// passes on what it has received.
    pub parts: u32,
}

/// The report that a collective kernel has begun or has ended a part: the other ranks can read its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) stream: StreamId,
    pub(super) node: usize,
    pub(super) rank: CollectiveRank,
}

impl Engine {
    /// The arrivals since the last call.
    pub(super) fn take_arrivals(&mut self) -> Vec<Arrival> {
        std::mem::take(&mut self.arrivals_of_ranks)
    }

    /// Ends the spinning of a collective kernel: every rank has arrived. While its group is saved the kernel makes no progress. A kernel
    /// whose context has ended is not there any more.
    pub(super) fn release(&mut self, arrival: Arrival) {
        let running = self.runlist.groups.values_mut().flat_map(|group| &mut group.running);
        let is_it = |task: &super::group::Task| (task.stream, task.node) == (arrival.stream, arrival.node);
        running.filter(|running| is_it(&running.task)).for_each(|running| running.is_spinning = false);
    }
}
