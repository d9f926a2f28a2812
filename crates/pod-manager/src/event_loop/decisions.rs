//! The decisions of a round: the token ledger decides, the parts carry out what it decided.

use super::EventLoop;
use crate::processes::{Event, read_activity};
use sluice_comm::HandOffStep;
use sluice_core::ClientId;
use sluice_core::ledger::Action;

/// How often the ledger decides in one round. A decision takes time, and with short grants the next one is due by then: without a bound
/// the loop would decide for seconds without reading a request. Most rounds need two, of which the last finds nothing left to decide.
const DECISIONS_PER_ROUND: usize = 8;

impl EventLoop {
    /// Lets the ledger decide and carries out its decisions. If there is something left to decide, the next round follows at once.
    pub(super) fn decide(&mut self) {
        self.apply(Event::RoundBegins);
        self.gangs.update(&self.clients, &mut self.grants.ledger);
        let Self { stalled, connections, clients, processes, grants, io, .. } = self;
        stalled.update(&mut *connections.peers, clients, processes, grants, io);
        self.undecided = (0..DECISIONS_PER_ROUND).all(|_| self.decide_once());
        self.apply(Event::RoundEnds);
        self.begin_control();
        self.publish_contenders();
        self.grants.show_hand_off(&self.processes, self.io.now());
    }

    /// Returns `false` if there was nothing to decide.
    pub(super) fn decide_once(&mut self) -> bool {
        self.beat();
        read_activity(&mut self.processes);
        let Self { clients, processes, io, .. } = self;
        let ledger = &mut self.grants.ledger;
        self.stream_gates.update(clients, processes, ledger, io);
        self.deadlines.update(clients, processes, ledger, io.now());
        let now = io.now();
        processes.scheduler.request_and_return_grants(ledger, now);
        let actions = ledger.advance(now);
        if actions.is_empty() && !self.request_wakeups() {
            return false;
        }
        self.io.record_step(HandOffStep::Decided);
        for action in in_order_of_urgency(&actions) {
            let Self { grants, clients, processes, io, .. } = self;
            let answers = grants.apply(action, clients, processes, io);
            self.send(answers);
        }
        true
    }
}

/// The actions in their order, except that a grant is accounted for when it has ended and the next one is shown: nothing waits for that.
/// If its client is granted again at once, the order matters.
fn in_order_of_urgency(actions: &[Action]) -> impl Iterator<Item = &Action> {
    let is_granted = |of: ClientId| {
        actions.iter().any(|action| matches!(action, Action::Grant { client, .. } if *client == of))
    };
    let is_late =
        move |action: &&Action| matches!(action, Action::Ended { client, .. } if !is_granted(*client));
    actions.iter().filter(move |action| !is_late(action)).chain(actions.iter().filter(is_late))
}
