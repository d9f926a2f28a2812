//! Whether this replica decides. Only the replica beside the leading kube-scheduler does, and only after it has listed
//! nodes and pods since it leads.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// State of this replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeadershipState {
    /// Another replica leads, or none.
    Standby,
    /// This replica leads; the lists of nodes and pods are not complete yet.
    Syncing,
    /// This replica leads and decides.
    Active,
}

/// Delays between the begin of a term and its lists. After them the API server has carried out the binds of the previous
/// term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SettleTimes {
    /// This process led before: it knows its own binds.
    pub(crate) own: Duration,
    /// Another process led before, or it is unknown which. Its binds may arrive for as long as a bind may take.
    pub(crate) takeover: Duration,
}

/// The facts from which the state follows.
#[derive(Debug, Clone, Default)]
struct LeadershipFacts {
    leads: bool,
    /// Identity of the leading kube-scheduler. A restarted one has another.
    holder: String,
    /// When the lease expires without a renewal; `None` without a lease.
    until: Option<Instant>,
    /// When the term began, and whether this process led until then.
    began: Option<Instant>,
    led_before: bool,
    /// Number of times that this replica became leader. A list counts if it began in the current term.
    term: u64,
    /// The term in which the last complete list of nodes began, and that of pods; `None` before the first.
    nodes: Option<u64>,
    pods: Option<u64>,
}

impl LeadershipFacts {
    /// Whether this replica leads by a lease that has not expired.
    fn leads(&self) -> bool {
        self.leads && self.until.is_none_or(|until| Instant::now() < until)
    }

    fn state(&self) -> LeadershipState {
        match (self.leads(), self.nodes, self.pods) {
            (false, ..) => LeadershipState::Standby,
            (true, Some(nodes), Some(pods)) if nodes >= self.term && pods >= self.term => {
                LeadershipState::Active
            }
            (true, ..) => LeadershipState::Syncing,
        }
    }
}

/// The kinds of objects that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchedKind {
    Nodes,
    Pods,
    /// No decision but the choice of victims needs them.
    Budgets,
}

/// The leadership, shared by all parts of the extender.
#[derive(Debug, Default)]
pub(crate) struct Leadership {
    facts: watch::Sender<LeadershipFacts>,
}

impl Leadership {
    /// Sets whether this replica leads, without a lease.
    pub(crate) fn set_leading(&self, leads: bool) {
        self.set_leader(leads, "", None);
    }

    /// Applies a renewal of the lease: whether the holder is the kube-scheduler of this pod, and how long the lease
    /// lasts from now.
    ///
    /// A process that was suspended sees by its own clock that the lease has expired, before the watch reports a new
    /// leader.
    pub(crate) fn set_leader(&self, leads: bool, holder: &str, lasting: Option<Duration>) {
        self.facts.send_if_modified(|facts| {
            let is_new = facts.leads() != leads || leads && facts.holder != holder;
            if is_new && leads {
                facts.term += 1;
                facts.led_before = facts.leads();
                facts.began = Some(Instant::now());
            }
            facts.leads = leads;
            facts.until = lasting.map(|lasting| Instant::now() + lasting);
            if is_new {
                holder.clone_into(&mut facts.holder);
            }
            is_new
        });
    }

    /// Records a complete list that began in this term.
    pub(crate) fn record_list(&self, kind: WatchedKind, term: u64) {
        self.facts.send_modify(|facts| match kind {
            WatchedKind::Nodes => facts.nodes = facts.nodes.max(Some(term)),
            WatchedKind::Pods => facts.pods = facts.pods.max(Some(term)),
            WatchedKind::Budgets => {}
        });
    }

    pub(crate) fn state(&self) -> LeadershipState {
        self.facts.borrow().state()
    }

    /// Whether both lists were complete once: this replica could take over.
    pub(crate) fn has_listed_once(&self) -> bool {
        let facts = self.facts.borrow();
        facts.nodes.is_some() && facts.pods.is_some()
    }

    /// The term for which a list counts that begins now.
    pub(crate) fn term(&self) -> u64 {
        self.facts.borrow().term
    }

    /// Waits until lists may begin: until the binds of the previous term have taken effect. No wait before the first term.
    pub(crate) async fn settled(&self, times: SettleTimes) {
        let (began, led_before) = {
            let facts = self.facts.borrow();
            (facts.began, facts.led_before)
        };
        if let Some(began) = began {
            tokio::time::sleep_until(began + if led_before { times.own } else { times.takeover }).await;
        }
    }

    /// Returns when lists that began in this term count no longer.
    pub(crate) async fn next_term(&self, term: u64) {
        // This struct owns the sender, so waiting cannot fail.
        let _ = self.facts.subscribe().wait_for(|facts| facts.term > term).await;
    }

    /// Waits until this replica is active: the watch of the lease may lag behind the elected kube-scheduler.
    pub(crate) async fn wait_until_active(&self, timeout: Duration) -> LeadershipState {
        if self.state() != LeadershipState::Active {
            let mut facts = self.facts.subscribe();
            let active = facts.wait_for(|facts| facts.state() == LeadershipState::Active);
            let _ = tokio::time::timeout(timeout, active).await;
        }
        self.state()
    }
}

#[cfg(test)]
mod tests;
