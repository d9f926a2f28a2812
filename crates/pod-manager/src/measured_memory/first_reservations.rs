//! First reservations: the first one of each process waits for a reading that began after it. Only such a reading shows the context of the
//! process. Otherwise a process could fill its limit before the next reading, and would exceed it by its context. While one waits, all
//! reservations of its client do, because any process could make them in its place.

use sluice_core::{ClientId, ConnectionId, ProcessId};
use sluice_rate_limiter::{Rate, RateLimiter};
use std::collections::HashMap;
use tokio::sync::oneshot;

/// How long a reservation waits at most: half of the time after which a hook without a heartbeat takes the manager for silent.
const LONGEST_WAIT_NS: u64 = 100_000_000;
/// For how long after its last reading an agent counts as one that reads.
const AGENT_READS_NS: u64 = 1_000_000_000;
/// Readings that one client may cause: its processes decide how often a first reservation comes. The wait for a token is shorter than
/// [`LONGEST_WAIT_NS`], so that a reading comes all the same.
const READINGS: Rate = Rate::per_second(4, 16);
/// Reservations of one client that wait. A hook has one for each thread that allocates.
const MOST_WAITING: usize = 1_024;

/// A reservation that is not decided yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    pub(crate) connection: ConnectionId,
    /// The request's id.
    pub(crate) request: i32,
    pub(crate) process: ProcessId,
    pub(crate) bytes: u64,
}

/// Whether a reservation waits for a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delay {
    /// It is decided at once.
    None,
    /// It is decided after a reading.
    Waits,
    /// It is refused: too many of its client wait.
    TooMany,
}

/// A reservation, its client, and the time after which the reading has to begin.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: u64,
    client: ClientId,
    reservation: Reservation,
}

/// The reservations that wait, and the readings that they wait for.
#[derive(Debug, Default)]
pub(super) struct FirstReservations {
    /// In ascending order of `since`.
    waiting: Vec<Waiting>,
    /// The readings that each client may cause.
    limits: HashMap<ClientId, RateLimiter>,
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

    /// Makes a reservation wait if it is the first one of its process, or if such a one of the client waits.
    pub(super) fn delay(
        &mut self,
        client: ClientId,
        reservation: Reservation,
        is_first: bool,
        now: u64,
    ) -> Delay {
        let mut of_client = self.waiting.iter().filter(|waiting| waiting.client == client);
        let oldest = of_client.next().map(|waiting| waiting.since);
        if of_client.count() + 1 >= MOST_WAITING {
            return Delay::TooMany;
        }
        let since = if is_first { Some(now) } else { oldest };
        let Some(since) = since else { return Delay::None };
        let at = self.waiting.partition_point(|waiting| waiting.since <= since);
        self.waiting.insert(at, Waiting { since, client, reservation });
        self.limits.entry(client).or_insert_with(|| RateLimiter::full(READINGS));
        self.answer_agent(now);
        Delay::Waits
    }

    /// The agent asks: it is answered as soon as a reservation waits whose client may cause a reading.
    pub(super) fn ask(&mut self, question: oneshot::Sender<()>, now: u64) {
        self.question = Some(question);
        self.answer_agent(now);
    }

    fn answer_agent(&mut self, now: u64) {
        if self.reading_due().is_some_and(|due| due <= now)
            && let Some(question) = self.question.take()
        {
            self.reading_begins(now);
            // The agent may have stopped waiting.
            let _ = question.send(());
        }
    }

    /// When a client with a waiting reservation may cause a reading.
    pub(super) fn reading_due(&self) -> Option<u64> {
        let limits = self.waiting.iter().filter_map(|waiting| self.limits.get(&waiting.client));
        limits.filter_map(|limit| limit.ready_at(1)).min()
    }

    /// A reading begins: each client with a waiting reservation pays for it.
    pub(super) fn reading_begins(&mut self, now: u64) {
        let waiting = &self.waiting;
        let waits = |client: &ClientId| waiting.iter().any(|waiting| waiting.client == *client);
        self.limits.retain(|client, limit| waits(client) || limit.available(now) < READINGS.burst);
        for (_, limit) in self.limits.iter_mut().filter(|(client, _)| waits(client)) {
            limit.try_take(1, now);
        }
    }

    /// A reading that began at `taken_ns` is applied.
    pub(super) fn reading_applied(&mut self, taken_ns: u64) {
        self.read_ns = self.read_ns.max(Some(taken_ns));
    }

    /// When the wait of the first one ends without a reading, or the agent is to be answered.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        let end = self.waiting.first().map(|waiting| waiting.since.saturating_add(LONGEST_WAIT_NS));
        let answer = self.question.as_ref().and_then(|_| self.reading_due());
        end.into_iter().chain(answer).min()
    }

    /// Takes out those whose reading is applied, or whose wait has ended.
    pub(super) fn take_due(&mut self, now: u64) -> Vec<Reservation> {
        self.answer_agent(now);
        let is_due = |waiting: &mut Waiting| {
            self.read_ns >= Some(waiting.since) || waiting.since.saturating_add(LONGEST_WAIT_NS) <= now
        };
        self.waiting.extract_if(.., is_due).map(|waiting| waiting.reservation).collect()
    }

    /// No reading comes: all are due.
    pub(super) fn give_up(&mut self) {
        self.waiting.iter_mut().for_each(|waiting| waiting.since = 0);
    }
}
