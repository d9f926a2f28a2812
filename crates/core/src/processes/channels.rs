//! The channels of a process open and close, and its groups are released or kept.

use super::event::Effect;
use super::record::State;
use super::step::Step;
use super::table::Processes;
use super::uncertainty::Uncertainty;
use crate::ids::{ConnectionId, ProcessId};
use crate::ledger::ReturnKind;
use sluice_comm::Channel;

impl<P, D: Clone + Default> Processes<P, D> {
    /// Makes a connection the channel of a process. A connection that was the channel before is dropped: the process has opened the
    /// channel anew (after exec, for instance), and the end of the old connection will be reported.
    pub(super) fn channel_opened(
        &mut self,
        id: ProcessId,
        channel: Channel,
        connection: ConnectionId,
        step: &mut Step<'_, D>,
    ) {
        let Some(record) = self.get_mut(id) else { return };
        if channel == Channel::Token {
            record.state = record.state.attached(record.history.has_attached);
        }
        let before = record.channel_mut(channel).replace(connection);
        if channel == Channel::Token {
            if record.keeps_groups() {
                self.keep_groups(id, step.now);
            } else if before.is_some() {
                self.release(id, step);
            }
            if before.is_some() {
                self.end_token_channel(id, step);
            }
        }
        step.effects.extend(before.map(Effect::Close));
    }

    /// A connection has closed. Unless another one has taken its place, what depended on the channel ends.
    pub(super) fn channel_closed(
        &mut self,
        id: ProcessId,
        channel: Channel,
        connection: ConnectionId,
        is_watched: bool,
        step: &mut Step<'_, D>,
    ) {
        let searches = self.policy.searches;
        let Some(record) = self.get_mut(id) else { return };
        if record.channel_mut(channel).take_if(|its| *its == connection).is_none() {
            return;
        }
        let is_kept = is_watched && record.keeps_groups();
        let is_disconnected = record.connections().next().is_none();
        if channel == Channel::Token {
            record.history.has_attached |= searches && record.key.is_some();
            if is_kept {
                record.state = record.state.found();
                step.effects.push(Effect::Kept(id));
                self.keep_groups(id, step.now);
            } else {
                // It may be about to end: its groups are released unless it does.
                record.postponed = None;
                self.scheduler.disconnect(id, step.ledger, step.now);
            }
            self.end_token_channel(id, step);
        }
        if is_disconnected && !is_kept {
            step.effects.push(Effect::Disconnected(id));
        }
    }

    /// The token channel of a process has closed: its grant ends. Its groups were released before, unless they are kept.
    fn end_token_channel(&mut self, id: ProcessId, step: &mut Step<'_, D>) {
        let Some(record) = self.get(id) else { return };
        let (client, is_kept) = (record.client, record.keeps_groups());
        step.effects.push(Effect::TokenChannelClosed(id));
        if is_kept && self.is_hardware_scheduled(id) {
            return;
        }
        step.ledger.process_gone(id, step.now);
        if is_kept {
            // For a token. Its client is known, or the process would have been expelled.
            let _ = step.ledger.add_process(id, client, ReturnKind::Returns);
        }
    }

    fn keep_groups(&mut self, id: ProcessId, now: u64) {
        if let Some(record) = self.get_mut(id) {
            Uncertainty::connection_changed(&mut record.uncertainty, now);
            self.note_timed(id);
        }
    }

    /// Marks the settings of the groups as unknown that a hook may have set meanwhile.
    pub(super) fn mark_kept_groups(&mut self, step: &mut Step<'_, D>) {
        let now = step.now;
        let mut due = Vec::new();
        self.for_each_timed(|id, record| {
            due.extend(Uncertainty::take_due(&mut record.uncertainty, now).then_some(id));
        });
        due.into_iter().for_each(|id| self.scheduler.forget_settings(id, step.ledger, now));
    }

    /// Releases the groups of a process that has left, or that attaches anew.
    pub(super) fn release(&mut self, id: ProcessId, step: &mut Step<'_, D>) {
        if let Some(record) = self.get_mut(id) {
            (record.announced, record.has_no_room, record.uncertainty) = (None, false, None);
        }
        self.release_groups(id, step);
    }

    /// Releases a process's groups: it is token-scheduled from here on.
    pub(super) fn release_groups(&mut self, id: ProcessId, step: &mut Step<'_, D>) {
        if let Some(record) = self.get_mut(id) {
            record.postponed = None;
        }
        self.scheduler.remove_process(id, step.ledger, step.now);
    }

    /// The groups of a process are taken as they are found from here on.
    pub(super) fn set_found(&mut self, id: ProcessId) {
        if let Some(record) = self.get_mut(id) {
            record.state = State::found(record.state);
        }
    }
}
