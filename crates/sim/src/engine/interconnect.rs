//! The GPUs of a node on one timeline, with the collectives in which their kernels meet.

use super::collective::Arrival;
use super::{CollectiveRank, Engine};
use std::collections::{BTreeMap, HashMap};

/// A collective kernel that spins.
#[derive(Debug, Clone, Copy)]
struct Spinning {
    /// Index of its engine.
    engine: usize,
    arrival: Arrival,
    /// How often its rank has arrived at this communicator, this time included.
    round: u64,
}

#[derive(Debug, Default)]
struct Communicator {
    /// Number of ranks.
    ranks: u32,
    /// How often each rank has arrived.
    arrivals: BTreeMap<u32, u64>,
    spinning: Vec<Spinning>,
}

impl Communicator {
    fn arrive(&mut self, engine: usize, arrival: Arrival) {
        let CollectiveRank { rank, ranks, .. } = arrival.rank;
        self.ranks = ranks;
        let round = self.arrivals.entry(rank).or_default();
        *round += 1;
        self.spinning.push(Spinning { engine, arrival, round: *round });
    }

    /// Removes and returns the kernels at whose round every rank has arrived.
    fn released(&mut self) -> impl Iterator<Item = Spinning> + use<'_> {
        let is_complete = self.arrivals.len() >= self.ranks as usize;
        let round = self.arrivals.values().copied().min().filter(|_| is_complete).unwrap_or(0);
        self.spinning.extract_if(.., move |spinning| spinning.round <= round)
    }
}

/// What joins the GPUs of a node. It advances their engines together, from one event of any of them to the next, so that a kernel sees
/// the other ranks' kernels at the time at which they began. The n-th collective of a communicator on one rank is the n-th on every rank.
///
/// Bytes and links are not modelled: from the last arrival on each kernel takes the time of its part and needs the others only at the
/// next part, as NCCL's buffers allow. A communicator stays known until the daemon ends. If a rank's process ends, the others spin, as
/// NCCL's do until they are aborted.
#[derive(Debug, Default)]
pub struct Interconnect {
    communicators: HashMap<u64, Communicator>,
}

impl Interconnect {
    /// The time of the next event of any engine if nothing further is submitted.
    pub fn next_event(&mut self, engines: &mut [&mut Engine]) -> Option<u64> {
        let next = Self::earliest(engines);
        // The search may have begun kernels; what they release has events of its own.
        if self.exchange(engines) { Self::earliest(engines) } else { next }
    }

    fn earliest(engines: &mut [&mut Engine]) -> Option<u64> {
        engines.iter_mut().filter_map(|engine| engine.next_event()).min()
    }

    /// Computes the timelines up to and including `to`.
    pub fn advance(&mut self, engines: &mut [&mut Engine], to: u64) {
        while let Some(at) = self.next_event(engines).filter(|at| *at <= to) {
            engines.iter_mut().for_each(|engine| engine.advance(at));
        }
        engines.iter_mut().for_each(|engine| engine.advance(to));
    }

    /// Collects the arrivals of kernels, and releases those for which every rank has arrived. Returns whether it released any.
    fn exchange(&mut self, engines: &mut [&mut Engine]) -> bool {
        let mut has_released = false;
        for index in 0..engines.len() {
            for arrival in engines[index].take_arrivals() {
                let communicator = self.communicators.entry(arrival.rank.communicator).or_default();
                communicator.arrive(index, arrival);
                for spinning in communicator.released() {
                    engines[spinning.engine].release(spinning.arrival);
                    has_released = true;
                }
            }
        }
        has_released
    }
}
