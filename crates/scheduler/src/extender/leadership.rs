//! Do we decide? Of several replicas only the one beside the leading kube-scheduler does, and not before it has seen the
//! cluster as it is since it leads.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// What we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeadershipState {
    /// Another replica leads, or none.
    Standby,
    /// We lead; the lists that show the cluster as it is are on their way.
    Syncing,
    /// We decide.
    Active,
}

/// What is known of the cluster and of who leads.
#[derive(Debug, Clone)]
struct LeadershipFacts {
    leads: bool,
    /// Who leads: a kube-scheduler that was restarted beside us is another.
    holder: String,
    /// When the lease runs out if nobody renews it; none where there is no lease.
    until: Option<Instant>,
    /// How often we were told to lead: a list counts if it began after that.
    term: u64,
    /// The term in which the last whole list of nodes began, and that of pods; `None` before the first.
    nodes: Option<u64>,
    pods: Option<u64>,
}

impl LeadershipFacts {
    /// Leads, by a lease that has not run out.
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

/// The two kinds of objects that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchedKind {
    Nodes,
    Pods,
}

/// Our role, shared by all that must know it.
#[derive(Debug)]
pub(crate) struct Leadership {
    facts: watch::Sender<LeadershipFacts>,
}

impl Leadership {
    pub(crate) fn new() -> Self {
        Self {
            facts: watch::Sender::new(LeadershipFacts {
                leads: false,
                holder: String::new(),
                until: None,
                term: 0,
                nodes: None,
                pods: None,
            }),
        }
    }

    /// We lead, or we do not, whoever asks us.
    pub(crate) fn set_leading(&self, leads: bool) {
        self.set_leader(leads, "", None);
    }

    /// The lease says that this kube-scheduler leads, and that it is ours or not; it was renewed just now for so long.
    ///
    /// A process that was stopped and goes on later knows by its own clock that another may lead by now, before it hears
    /// of that.
    pub(crate) fn set_leader(&self, leads: bool, holder: &str, lasting: Option<Duration>) {
        self.facts.send_if_modified(|facts| {
            let is_new = facts.leads() != leads || leads && facts.holder != holder;
            facts.term += u64::from(is_new && leads);
            facts.leads = leads;
            facts.until = lasting.map(|lasting| Instant::now() + lasting);
            if is_new {
                holder.clone_into(&mut facts.holder);
            }
            is_new
        });
    }

    /// A whole list has been taken in; it began in this term.
    pub(crate) fn listed(&self, kind: WatchedKind, term: u64) {
        self.facts.send_modify(|facts| match kind {
            WatchedKind::Nodes => facts.nodes = facts.nodes.max(Some(term)),
            WatchedKind::Pods => facts.pods = facts.pods.max(Some(term)),
        });
    }

    pub(crate) fn state(&self) -> LeadershipState {
        self.facts.borrow().state()
    }

    /// Both lists have been there once: we could take over.
    pub(crate) fn has_seen_the_cluster(&self) -> bool {
        let facts = self.facts.borrow();
        facts.nodes.is_some() && facts.pods.is_some()
    }

    /// The term that a list which begins now counts for.
    pub(crate) fn term(&self) -> u64 {
        self.facts.borrow().term
    }

    /// Returns when lists that began in this term do not count any more.
    pub(crate) async fn next_term(&self, term: u64) {
        // The sender is ours, so it is not gone.
        let _ = self.facts.subscribe().wait_for(|facts| facts.term > term).await;
    }

    /// Waits until we decide: our lease watch may learn of the kube-scheduler's election a little after it acts on it.
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
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_active_only_after_both_lists_of_its_own_term() {
        let leadership = Leadership::new();
        leadership.listed(WatchedKind::Nodes, leadership.term());
        leadership.listed(WatchedKind::Pods, leadership.term());
        assert_eq!((leadership.state(), leadership.has_seen_the_cluster()), (LeadershipState::Standby, true));
        leadership.set_leading(true);
        assert_eq!(leadership.state(), LeadershipState::Syncing);
        leadership.listed(WatchedKind::Pods, 0);
        leadership.listed(WatchedKind::Nodes, 1);
        assert_eq!(leadership.state(), LeadershipState::Syncing);
        leadership.listed(WatchedKind::Pods, 1);
        assert_eq!(leadership.state(), LeadershipState::Active);
        leadership.set_leading(true);
        assert_eq!(leadership.state(), LeadershipState::Active);
        leadership.set_leading(false);
        assert_eq!(leadership.state(), LeadershipState::Standby);
        leadership.set_leading(true);
        assert_eq!(leadership.state(), LeadershipState::Syncing);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_nobody_renews_is_over_and_begins_anew_with_new_lists() {
        let leadership = Leadership::new();
        let lease = Some(Duration::from_secs(15));
        leadership.set_leader(true, "me", lease);
        leadership.listed(WatchedKind::Nodes, 1);
        leadership.listed(WatchedKind::Pods, 1);
        tokio::time::advance(Duration::from_secs(14)).await;
        leadership.set_leader(true, "me", lease);
        tokio::time::advance(Duration::from_secs(14)).await;
        assert_eq!((leadership.state(), leadership.term()), (LeadershipState::Active, 1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(leadership.state(), LeadershipState::Standby);
        leadership.set_leader(true, "me", lease);
        assert_eq!((leadership.state(), leadership.term()), (LeadershipState::Syncing, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_waits_for_the_lists_but_not_for_ever() {
        let leadership = std::sync::Arc::new(Leadership::new());
        leadership.set_leading(true);
        assert_eq!(leadership.wait_until_active(Duration::from_secs(2)).await, LeadershipState::Syncing);
        let waiting = tokio::spawn({
            let leadership = leadership.clone();
            async move { leadership.wait_until_active(Duration::from_secs(2)).await }
        });
        tokio::task::yield_now().await;
        leadership.listed(WatchedKind::Nodes, 1);
        leadership.listed(WatchedKind::Pods, 1);
        assert_eq!(waiting.await.unwrap(), LeadershipState::Active);
    }
}
