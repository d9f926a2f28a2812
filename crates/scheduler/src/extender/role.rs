//! Do we decide? Of several replicas only the one beside the leading kube-scheduler does, and not before it has seen the
//! cluster as it is since it leads.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// What we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Another replica leads, or none.
    Standby,
    /// We lead; the lists that show the cluster as it is are on their way.
    Syncing,
    /// We decide.
    Active,
}

/// What is known of the cluster and of who leads.
#[derive(Debug, Clone)]
struct Facts {
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

impl Facts {
    /// Leads, by a lease that has not run out.
    fn leads(&self) -> bool {
        self.leads && self.until.is_none_or(|until| Instant::now() < until)
    }

    fn state(&self) -> State {
        match (self.leads(), self.nodes, self.pods) {
            (false, ..) => State::Standby,
            (true, Some(nodes), Some(pods)) if nodes >= self.term && pods >= self.term => State::Active,
            (true, ..) => State::Syncing,
        }
    }
}

/// The two kinds of objects that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nodes,
    Pods,
}

/// Our role, shared by all that must know it.
#[derive(Debug)]
pub(crate) struct Role {
    facts: watch::Sender<Facts>,
}

impl Role {
    pub(crate) fn new() -> Self {
        Self {
            facts: watch::Sender::new(Facts {
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
    pub(crate) fn listed(&self, kind: Kind, term: u64) {
        self.facts.send_modify(|facts| match kind {
            Kind::Nodes => facts.nodes = facts.nodes.max(Some(term)),
            Kind::Pods => facts.pods = facts.pods.max(Some(term)),
        });
    }

    pub(crate) fn state(&self) -> State {
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
    pub(crate) async fn wait_active(&self, patience: Duration) -> State {
        if self.state() != State::Active {
            let mut facts = self.facts.subscribe();
            let active = facts.wait_for(|facts| facts.state() == State::Active);
            let _ = tokio::time::timeout(patience, active).await;
        }
        self.state()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_active_only_after_both_lists_of_its_own_term() {
        let role = Role::new();
        role.listed(Kind::Nodes, role.term());
        role.listed(Kind::Pods, role.term());
        assert_eq!((role.state(), role.has_seen_the_cluster()), (State::Standby, true));
        role.set_leading(true);
        assert_eq!(role.state(), State::Syncing);
        role.listed(Kind::Pods, 0);
        role.listed(Kind::Nodes, 1);
        assert_eq!(role.state(), State::Syncing);
        role.listed(Kind::Pods, 1);
        assert_eq!(role.state(), State::Active);
        role.set_leading(true);
        assert_eq!(role.state(), State::Active);
        role.set_leading(false);
        assert_eq!(role.state(), State::Standby);
        role.set_leading(true);
        assert_eq!(role.state(), State::Syncing);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_nobody_renews_is_over_and_begins_anew_with_new_lists() {
        let role = Role::new();
        let lease = Some(Duration::from_secs(15));
        role.set_leader(true, "me", lease);
        role.listed(Kind::Nodes, 1);
        role.listed(Kind::Pods, 1);
        tokio::time::advance(Duration::from_secs(14)).await;
        role.set_leader(true, "me", lease);
        tokio::time::advance(Duration::from_secs(14)).await;
        assert_eq!((role.state(), role.term()), (State::Active, 1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(role.state(), State::Standby);
        role.set_leader(true, "me", lease);
        assert_eq!((role.state(), role.term()), (State::Syncing, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_waits_for_the_lists_but_not_for_ever() {
        let role = std::sync::Arc::new(Role::new());
        role.set_leading(true);
        assert_eq!(role.wait_active(Duration::from_secs(2)).await, State::Syncing);
        let waiting = tokio::spawn({
            let role = role.clone();
            async move { role.wait_active(Duration::from_secs(2)).await }
        });
        tokio::task::yield_now().await;
        role.listed(Kind::Nodes, 1);
        role.listed(Kind::Pods, 1);
        assert_eq!(waiting.await.unwrap(), State::Active);
    }
}
