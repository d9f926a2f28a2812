//! What all parts of the extender share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_placement::Strategy;
use tokio::sync::watch;
use tokio::time::Instant;

use super::clock::Clock;
use super::events::Events;
use super::leadership::Leadership;
use super::metrics::Metrics;
use super::placement_state::PlacementState;
use super::recheck::Recheck;

/// How the extender decides.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) strategy: Strategy,
    /// Nodes offered where scores matter.
    pub(crate) candidates: usize,
    /// Scores matter for every pod.
    pub(crate) always_score: bool,
    pub(crate) reservation: Duration,
    pub(crate) bind_timeout: Duration,
    /// How long a question waits for us to become active.
    pub(crate) activation_timeout: Duration,
    /// How long after the beginning of a term its lists begin: a bind that the last leader sent before its end has been
    /// carried out by then.
    pub(crate) settle: Duration,
    /// Profile whose pods we place; `None`: every pod of the cluster counts.
    pub(crate) scheduler_name: Option<String>,
}

/// How long after a bind was given up it might still take effect: longer than API servers let a request run.
pub(crate) const BIND_AFTERMATH: Duration = Duration::from_secs(90);

/// How often a filter call may wait for the watches to catch up.
const WAIT_EVERY: Duration = Duration::from_millis(500);

/// The extender.
pub(crate) struct Extender {
    pub(crate) policy: Policy,
    pub(crate) client: kube::Client,
    pub(crate) clock: Clock,
    pub(crate) leadership: Leadership,
    pub(crate) metrics: Metrics,
    pub(crate) events: Events,
    pub(super) recheck: Recheck,
    state: Mutex<PlacementState>,
    /// Counts what the watches changed.
    changes: watch::Sender<u64>,
    /// Binds that are being sent.
    sending: watch::Sender<usize>,
    /// When a filter call last waited for a change.
    last_wait: Mutex<Option<Instant>>,
}

impl Extender {
    pub(crate) fn new(policy: Policy, client: kube::Client, metrics: Metrics, events: Events) -> Self {
        let state = PlacementState::new(policy.strategy);
        Self {
            policy,
            client,
            clock: Clock::start(),
            leadership: Leadership::new(),
            metrics,
            events,
            recheck: Recheck::new(),
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
            sending: watch::Sender::new(0),
            last_wait: Mutex::new(None),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, PlacementState> {
        // Every change of the index is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The watches have changed the index.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Learns of changes from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Binds that are being sent.
    pub(crate) fn sending(&self) -> watch::Receiver<usize> {
        self.sending.subscribe()
    }

    /// Counts a bind as being sent, until what is returned is dropped.
    pub(crate) fn begin_sending(&self) -> Sending<'_> {
        self.sending.send_modify(|count| *count += 1);
        Sending(&self.sending)
    }

    /// May a filter call wait for the watches? Yes, if none has for a while: calls come one at a time, and who waits
    /// holds up all pods.
    pub(crate) fn may_wait(&self) -> bool {
        let mut last = self.last_wait.lock().unwrap_or_else(PoisonError::into_inner);
        let may = last.is_none_or(|last| last.elapsed() >= WAIT_EVERY);
        if may {
            *last = Some(Instant::now());
        }
        may
    }

    /// Gives back reservations that nobody came for.
    pub(crate) fn expire(&self) {
        let expired = self.state().index.expire(self.clock.now_ns());
        self.metrics.expired.inc_by(expired as u64);
    }

    /// Gives back what runs out, every second, as long as it is polled.
    pub(crate) async fn keep_expiring(&self) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        loop {
            ticks.tick().await;
            self.expire();
        }
    }
}

/// A bind is being sent as long as this lives.
pub(crate) struct Sending<'a>(&'a watch::Sender<usize>);

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
