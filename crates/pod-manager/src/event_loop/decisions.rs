//! The decisions of a round: the token ledger decides, the parts carry out what it decided.

use super::EventLoop;
use sluice_comm::HandOffStep;
use sluice_core::ClientId;
use sluice_core::ledger::Action;

/// How often the ledger decides in one round. A decision takes time, and with short grants the next one is due by then: without a bound
/// the loop would decide for seconds without reading a request. Most rounds need two, of which the last finds nothing left to decide.
const DECISIONS_PER_ROUND: usize = 8;

impl EventLoop {
    /// Lets the ledger decide and carries out its decisions. If there is something left to decide, the next round follows at once.
    pub(super) fn decide(&mut self) {
        let effects = self.channel_groups.end_probation(&mut self.shared);
        self.carry_out(effects);
        self.stalled.update(&mut *self.connections.peers, &self.channel_groups, &mut self.shared);
        self.undecided = (0..DECISIONS_PER_ROUND).all(|_| self.decide_once());
        let effects = self.channel_groups.take_released();
        self.carry_out(effects);
        self.channel_groups.begin_control(&self.shared.io);
        self.publish_contenders();
        self.shared.show_hand_off();
    }

    /// Returns `false` if there was nothing to decide.
    pub(super) fn decide_once(&mut self) -> bool {
        self.beat();
        self.channel_groups.read_activity(&self.shared.processes);
        self.stream_gates.update(&self.channel_groups, &mut self.shared);
        self.deadlines.update(&self.shared);
        let now = self.shared.io.now();
        let ledger = &mut self.shared.grants.ledger;
        self.channel_groups.scheduler.request_and_return_grants(ledger, now);
        let actions = ledger.advance(now);
        if actions.is_empty() && !self.request_wakeups() {
            return false;
        }
        self.shared.io.record_step(HandOffStep::Decided);
        for action in in_order_of_urgency(&actions) {
            let effects = self.shared.apply(action, &mut self.channel_groups);
            self.carry_out(effects);
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
