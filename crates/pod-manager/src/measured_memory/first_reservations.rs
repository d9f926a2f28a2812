//! First reservations: the first one of each process waits for a reading that began after it. Only such a reading shows the context of the
//! process. Otherwise a process could fill its limit before the next reading, and would exceed it by its context.

use crate::connections::ConnectionId;
use sluice_core::ProcessId;
use tokio::sync::oneshot;

/// How long a reservation waits at most: half of the time after which a hook without a heartbeat takes the manager for silent.
const LONGEST_WAIT_NS: u64 = 100_000_000;
/// For how long after its last reading an agent counts as one that reads.
const AGENT_READS_NS: u64 = 1_000_000_000;

/// A reservation that is not decided yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    pub(crate) connection: ConnectionId,
    /// The request's id.
    pub(crate) request: i32,
    pub(crate) process: ProcessId,
    pub(crate) bytes: u64,
}

/// The first reservations that wait, and the readings that they wait for.
#[derive(Debug, Default)]
pub(super) struct FirstReservations {
    /// Each with the time at which it came, oldest first.
    waiting: Vec<(u64, Reservation)>,
    /// When the last applied reading began.
    read_ns: Option<u64>,
    /// The agent's question whether a reservation waits.
    question: Option<oneshot::Sender<()>>,
}

impl FirstReservations {
    /// Whether the agent's readings come.
    pub(super) fn agent_reads(&self, now: u64) -> bool {
        self.read_ns.is_some_and(|read| now.saturating_sub(read) < AGENT_READS_NS)
    }

    pub(super) fn add(&mut self, reservation: Reservation, now: u64) {
        self.waiting.push((now, reservation));
        self.answer_agent();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The agent asks: it is answered as soon as a reservation waits.
    pub(super) fn ask(&mut self, question: oneshot::Sender<()>) {
        self.question = Some(question);
        self.answer_agent();
    }

    fn answer_agent(&mut self) {
        if !self.waiting.is_empty()
            && let Some(question) = self.question.take()
        {
            // The agent may have stopped waiting.
            let _ = question.send(());
        }
    }

    /// A reading that began at `taken_ns` is applied.
    pub(super) fn reading_applied(&mut self, taken_ns: u64) {
        self.read_ns = self.read_ns.max(Some(taken_ns));
    }

    /// When the wait of the first one ends without a reading.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.waiting.first().map(|(since, _)| since.saturating_add(LONGEST_WAIT_NS))
    }

    /// Takes out those whose reading is applied, or whose wait has ended.
    pub(super) fn take_due(&mut self, now: u64) -> Vec<Reservation> {
        let is_due = |(since, _): &mut (u64, Reservation)| {
            self.read_ns >= Some(*since) || since.saturating_add(LONGEST_WAIT_NS) <= now
        };
        self.waiting.extract_if(.., is_due).map(|(_, reservation)| reservation).collect()
    }

    /// No reading comes: all are due.
    pub(super) fn give_up(&mut self) {
        self.waiting.iter_mut().for_each(|(since, _)| *since = 0);
    }
}
