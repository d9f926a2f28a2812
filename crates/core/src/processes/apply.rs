//! Events are handed to the decisions that they concern. Those of connections, of controls and of the clients are decided here: whether the
//! groups of a process are released or kept.

use super::admission::MAX_OF_CLIENT;
use super::announcement::Announcement;
use super::event::{ClientFacts, Effect, Event, Step};
use super::note::Note;
use super::record::Protocol;
use super::table::Processes;
use super::uncertainty::Uncertainty;
use crate::channel_groups::{ControlOutcome, Event as GroupEvent};
use crate::ids::{ClientId, ConnectionId, ProcessId};
use crate::ledger::{Class, GrantRequest, ReturnKind, TokenLedger};
use sluice_comm::Channel;
use std::collections::BTreeSet;

/// How long it may take until all groups are set anew after the manager did not run.
const UNCHECKED_NS: u64 = 2_000_000_000;

impl<P, D: Clone + Default> Processes<P, D> {
    /// Applies an event that has happened at `now`. The caller carries out the effects in their order before it applies another event,
    /// except for the answers that the effects ask for.
    pub fn apply(&mut self, event: Event<P, D>, ledger: &mut TokenLedger, now: u64) -> Vec<Effect<D>> {
        let mut step = Step { ledger, now, effects: Vec::new() };
        let s = &mut step;
        match event {
            Event::ClientChanged(id, facts) => self.client_changed(id, facts, s),
            Event::ClientRemoved(id) => self.client_removed(id, s),
            Event::ChannelOpened(id, channel, connection) => self.channel_opened(id, channel, connection, s),
            Event::ChannelClosed { id, channel, connection, is_watched } => {
                self.channel_closed(id, channel, connection, is_watched, s);
            }
            Event::Attached(id, announcement) => self.attached(id, announcement, s),
            Event::Announced(id, announcement) => self.announced(id, announcement, s),
            Event::Opened { id, origin, contexts, descriptors, failure } => {
                self.opened(id, origin, contexts, &descriptors, failure, s);
            }
            Event::NotChecked { id, serial, why, is_lack_of_room } => {
                self.not_checked(id, serial, why, is_lack_of_room, s);
            }
            Event::Proven(proof) => self.proven(proof, s),
            Event::InspectedAttached { key, found, has_unannounced } => {
                self.inspected_attached(key, found, has_unannounced, s);
            }
            Event::Inspected(inspected) => self.inspected(inspected, s),
            Event::MapsOtherPage(key, page) => self.maps_other_page(key, page, s),
            Event::Checked(finding) => self.checked(&finding, s),
            Event::ThreadsStopped(id, result) => self.threads_stopped(id, result, s),
            Event::ControlEnded(outcome) => self.control_ended(outcome, s),
            Event::Ended(id) => self.ended(id, s),
            Event::ManagerStopped(since) => {
                self.scheduler.rebuild(s.ledger, since, now);
                self.unchecked_until = now.saturating_add(UNCHECKED_NS);
            }
            Event::RoundBegins => self.end_probation(s),
            Event::RoundEnds => {
                for group in self.scheduler.take_released() {
                    self.forget_group(group, s);
                }
            }
            Event::TimePassed => self.mark_kept_groups(s),
            Event::Due(id) => {
                self.end_stop(id, s);
                self.announce_due(id, s);
            }
            Event::DueEnded => {
                // After all announcements, and before the next control.
                self.stop_again(s);
                self.retire_timed();
            }
        }
        step.effects
    }

    fn client_changed(&mut self, id: ClientId, facts: ClientFacts, step: &mut Step<'_, D>) {
        let before = self.clients.get(&id).map(|client| client.facts.spec.class);
        self.set_facts(id, facts);
        if before.is_some_and(|before| before != facts.spec.class) {
            self.change_class(id, facts.spec.class, step);
        }
    }

    /// Schedules the processes of a client by its new class.
    fn change_class(&mut self, client: ClientId, class: Class, step: &mut Step<'_, D>) {
        let becomes_critical = class.is_latency_critical();
        self.scheduler.set_class(client, class, step.ledger, step.now);
        for id in self.ids_of_client(client) {
            let Some(record) = self.get(id) else { continue };
            // Peers of the old protocol have no pages. Their grants end by timer, whatever the class.
            let has_pages = record.is_attached() && record.protocol == Protocol::Attach;
            if !has_pages && !record.state.is_unhooked() {
                continue;
            }
            if becomes_critical && !self.scheduler.is_observed(id) {
                let none = (Vec::new(), &BTreeSet::new());
                self.scheduler.announce(id, (client, class), none, step.ledger, step.now);
            }
            if becomes_critical && has_pages {
                // It was added when its token channel was opened.
                let _ = step.ledger.request(id, step.now, GrantRequest::default());
            }
            step.effects.push(Effect::SchedulingChanged(id));
        }
    }

    /// The connections of a removed client's processes are closed. What they hold is remembered until they end.
    fn client_removed(&mut self, client: ClientId, step: &mut Step<'_, D>) {
        for id in self.ids_of_client(client) {
            if self.get_mut(id).is_some_and(|record| record.stop.take().is_some()) {
                step.effects.push(Effect::ReleaseThreads(id));
            }
            self.release(id, step);
            step.ledger.process_gone(id, step.now);
        }
    }

    fn control_ended(&mut self, outcome: ControlOutcome, step: &mut Step<'_, D>) {
        for event in self.scheduler.finish_control(outcome, step.ledger, step.now) {
            match event {
                GroupEvent::ProbationBegan(id) => {
                    step.effects.push(Effect::Report(id, Note::ProbationBegan));
                    step.effects.push(Effect::SchedulingChanged(id));
                }
                GroupEvent::GroupsDestroyed(id) => step.effects.push(Effect::SchedulingChanged(id)),
                GroupEvent::Released(group) => self.forget_group(group, step),
            }
        }
    }

    /// Takes the processes from probation whose groups can be controlled again. A child that has such a process's file open may have been
    /// given its groups meanwhile: it is inspected again.
    fn end_probation(&mut self, step: &mut Step<'_, D>) {
        let ended = self.scheduler.end_probation(step.ledger, step.now);
        for id in ended {
            step.effects.push(Effect::Report(id, Note::ProbationEnded));
            step.effects.push(Effect::SchedulingChanged(id));
            let client = self.get(id).map(|record| record.client);
            let of_client = client.map_or_else(Vec::new, |client| self.ids_of_client(client));
            of_client
                .into_iter()
                .filter(|other| *other != id)
                .for_each(|other| self.inspect_unhooked(other, step));
        }
    }

    /// The driver has freed the groups of an ended process. A file that was found from outside may be another living process's too: groups
    /// disabled through it are enabled again.
    fn ended(&mut self, id: ProcessId, step: &mut Step<'_, D>) {
        if self.get(id).is_none_or(|record| !record.state.is_unhooked()) {
            let its: Vec<_> = self.of_process(id).map(|(group, _)| group).collect();
            its.into_iter().for_each(|group| self.forget_group(group, step));
        }
        if let Some(history) = self.get_mut(id).map(|record| &mut record.history) {
            (history.is_requested, history.has_attached) = (false, false);
        }
    }

    /// Makes a connection the channel of a process. A connection that was the channel before is dropped: the process has opened the
    /// channel anew (after exec, for instance), and the end of the old connection will be reported.
    fn channel_opened(
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
        if record.announces() {
            record.history.unscheduled = None;
        }
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

    /// A process takes part in grants from here on, and announces its groups. A latency-critical one has its launch gate opened before it asks.
    fn attached(&mut self, id: ProcessId, announcement: Announcement<D>, step: &mut Step<'_, D>) {
        let Some(client) = self.client_of(id) else { return };
        // The ledger knows the client, or the process would have been expelled.
        let _ = step.ledger.add_process(id, client, ReturnKind::Returns);
        if self.is_critical(client) {
            let _ = step.ledger.request(id, step.now, GrantRequest::default());
        }
        self.announced(id, announcement, step);
    }

    /// A connection has closed. Unless another one has taken its place, what depended on the channel ends.
    fn channel_closed(
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
            record.postponed = None;
            if is_kept {
                record.state = record.state.found();
                step.effects.push(Effect::Kept(id));
                self.keep_groups(id, step.now);
            } else {
                // It may be about to end: its groups are released unless it does.
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
    fn mark_kept_groups(&mut self, step: &mut Step<'_, D>) {
        let now = step.now;
        let mut due = Vec::new();
        self.for_each_timed(|id, record| {
            due.extend(Uncertainty::take_due(&mut record.uncertainty, now).then_some(id));
        });
        for id in due {
            match self.mark_at(id, now) {
                None => self.scheduler.forget_settings(id, step.ledger, now),
                Some(at) => {
                    let known = self.get_mut(id).and_then(|record| record.uncertainty.as_mut());
                    known.into_iter().for_each(|known| known.postpone(at));
                }
            }
        }
    }

    /// Counts the mark of a process's groups against the limit of its client. Returns when the mark may be made if that is later.
    fn mark_at(&mut self, id: ProcessId, now: u64) -> Option<u64> {
        let groups = self.contexts(id).count().min(MAX_OF_CLIENT) as u64;
        let marks = &mut self.clients.get_mut(&self.client_of(id)?)?.marks;
        if marks.try_take(groups, now) { None } else { marks.ready_at(groups) }
    }

    /// Releases the groups of a process that has left, or that attaches anew.
    fn release(&mut self, id: ProcessId, step: &mut Step<'_, D>) {
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
            record.state = record.state.found();
        }
    }
}
