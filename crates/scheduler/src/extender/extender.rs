//! The state that all parts of the extender share: its configuration, its clock, and the decisions under one lock.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_placement::{Demand, Index, Strategy};
use tokio::sync::watch;
use tokio::time::Instant;

use super::attempts::SchedulingAttempt;
use super::events::Events;
use super::leadership::{Leadership, SettleTimes};
use super::metrics::Metrics;
use super::objects::{Budget, Pod};
use super::occupants::Occupant;
use super::recheck::Recheck;
use super::scale_up::Refusals;

/// Configuration of the extender's decisions.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) strategy: Strategy,
    /// Nodes offered where scores matter.
    pub(crate) candidates: usize,
    /// Scores matter for every pod.
    pub(crate) always_score: bool,
    pub(crate) reservation: Duration,
    pub(crate) bind_timeout: Duration,
    /// How long a filter call waits for this replica to become active.
    pub(crate) activation_timeout: Duration,
    /// How long a pod is refused before it gets a scale-up pod.
    pub(crate) scale_up_after: Duration,
    /// Delay between the begin of a term and its lists.
    pub(crate) settle: SettleTimes,
    /// Scheduler profile whose pods are placed; `None`: every pod of the cluster counts.
    pub(crate) scheduler_name: Option<String>,
}

/// How long an abandoned bind may still take effect: longer than API servers let a request run.
pub(crate) const BIND_AFTERMATH: Duration = Duration::from_secs(90);

/// Minimum interval between two filter calls that wait for the watches.
const WAIT_EVERY: Duration = Duration::from_millis(500);

pub(crate) struct Extender {
    pub(crate) policy: Policy,
    pub(crate) client: kube::Client,
    pub(crate) clock: Clock,
    pub(crate) leadership: Leadership,
    pub(crate) metrics: Metrics,
    pub(crate) events: Events,
    pub(super) recheck: Recheck,
    state: Mutex<PlacementState>,
    /// Incremented when a watch changed the index.
    changes: watch::Sender<u64>,
    /// Number of binds that are being sent.
    sending: watch::Sender<usize>,
    /// When a filter call last waited for a change.
    last_wait: Mutex<Option<Instant>>,
}

impl Extender {
    pub(crate) fn new(policy: Policy, client: kube::Client, metrics: Metrics, events: Events) -> Self {
        let state = PlacementState { index: Index::new(policy.strategy), ..PlacementState::default() };
        Self {
            policy,
            client,
            clock: Clock::start(),
            leadership: Leadership::default(),
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
        // A panic cannot leave the index inconsistent: every change is complete before code that may panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that a watch changed the index.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Subscribes to changes of the index.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Subscribes to the number of binds that are being sent.
    pub(crate) fn sending(&self) -> watch::Receiver<usize> {
        self.sending.subscribe()
    }

    /// Counts a bind as being sent until the returned value is dropped.
    pub(crate) fn begin_sending(&self) -> Sending<'_> {
        self.sending.send_modify(|count| *count += 1);
        Sending(&self.sending)
    }

    /// Whether this filter call may wait for the watches: at most one call per interval. The kube-scheduler sends one
    /// call at a time, so waiting delays all pods.
    pub(crate) fn may_wait(&self) -> bool {
        let mut last = self.last_wait.lock().unwrap_or_else(PoisonError::into_inner);
        let may = last.is_none_or(|last| last.elapsed() >= WAIT_EVERY);
        if may {
            *last = Some(Instant::now());
        }
        may
    }

    pub(crate) fn expire(&self) {
        let expired = self.state().index.expire(self.clock.now_ns());
        self.metrics.expired.inc_by(expired as u64);
    }

    /// Releases expired reservations every second and forgets old refusals, as long as it is polled.
    pub(crate) async fn keep_expiring(&self) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        loop {
            ticks.tick().await;
            self.expire();
            self.state().refusals.expire(self.clock.now_ns());
        }
    }
}

/// Counts a bind as being sent while it lives.
pub(crate) struct Sending<'a>(&'a watch::Sender<usize>);

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// The decisions and what is known of pods. The lock is held for microseconds, and never across an `await`.
#[derive(Default)]
pub(crate) struct PlacementState {
    pub(crate) index: Index,
    /// Pods that this replica bound and that the watch has not shown as bound since its last list began. A list
    /// without them may be older than their bind.
    pub(crate) unobserved_binds: HashSet<String>,
    /// The number of the latest bind of each pod to each node, by the UID of the pod and the name of the node, until its
    /// result is known.
    pub(crate) binds: HashMap<(String, String), u64>,
    /// The latest attempt for each pod that is not bound and has been offered nodes, by UID.
    pub(crate) attempts: HashMap<String, SchedulingAttempt>,
    /// Bound pods as the watch shows them, by UID. Only these may be evicted.
    pub(crate) occupants: HashMap<String, Occupant>,
    /// PodDisruptionBudgets by namespace and name; `None` before their first list.
    pub(crate) budgets: Option<HashMap<String, Budget>>,
    /// Bound pods that are being deleted, by UID.
    pub(crate) deleting: HashMap<String, DeletingPod>,
    /// Pods that filter refused since kube-scheduler last found victims for them, and since the last list of pods began.
    pub(crate) refused: HashSet<String>,
    /// The refusals that count for scale-up pods.
    pub(crate) refusals: Refusals,
    /// Pods whose end the API server reported on request, before the watch showed it. Events of these pods in the
    /// watch are older.
    pub(crate) ended_unobserved: HashSet<String>,
}

/// A bound pod that is being deleted.
#[derive(Debug, Clone)]
pub(crate) struct DeletingPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// When the API server was last asked whether it still exists.
    pub(crate) checked_at: Option<Instant>,
}

impl PlacementState {
    /// Chooses GPUs for nominated pods of which only the node is known.
    pub(crate) fn place_nominated(&mut self) {
        self.index.place_nominated(|pod| self.deleting.contains_key(pod));
    }

    /// Whether pods on the node have to end before the pod fits there.
    pub(crate) fn awaits_victims(&self, pod: &Pod, node: &str, demand: &Demand) -> bool {
        let is_ending = |pod: &str| self.deleting.contains_key(pod);
        self.index.awaits_victims(pod.uid().unwrap_or_default(), node, demand, is_ending)
    }

    /// Whether the pod will have its room on the nominated node: it waits for its victims there, or the room is free.
    pub(crate) fn keeps_nomination(&self, pod: &Pod, node: &str, demand: &Demand) -> bool {
        self.awaits_victims(pod, node, demand)
            || self.index.has_room(pod.uid().unwrap_or_default(), node, demand)
    }

    /// Releases what the pod holds: it has ended, or is gone. Returns whether it had a reservation.
    pub(crate) fn end(&mut self, uid: &str) -> bool {
        self.unobserved_binds.remove(uid);
        self.deleting.remove(uid);
        self.refused.remove(uid);
        self.occupants.remove(uid);
        self.attempts.remove(uid);
        self.refusals.remove(uid);
        self.index.release(uid)
    }

    /// Releases what the pod holds: the API server reports its end. Without a reservation, the watch has shown the end already,
    /// and shows no more events of the pod.
    pub(crate) fn end_unobserved(&mut self, uid: &str) {
        if self.end(uid) {
            self.ended_unobserved.insert(uid.to_owned());
        }
    }
}

/// Nanoseconds since the start of this process. It follows tokio's clock, so a test can pause it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.start.elapsed())
    }

    /// The time `after` from now.
    pub(crate) fn in_ns(&self, after: Duration) -> u64 {
        self.now_ns().saturating_add(nanoseconds(after))
    }
}

/// u64 nanoseconds last 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
