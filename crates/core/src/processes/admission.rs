//! Announcements of channel groups. Each group costs controls, which delay those of others, so announcements are limited. Where processes
//! can be inspected, their ownership is checked first. Admitted groups replace those that the process had.
//!
//! Two processes of a client may have one open file: a child inherits its parent's, and a process can send it to another one. Handles can be
//! guessed: a process that announced another program's groups would take them out of that program's scheduling.

use super::announcement::{Announcement, ControlDescriptorId, Origin, PostponedUntil, handles_of};
use super::event::{Effect, OwnershipProof, Step};
use super::note::Note;
use super::obstacle::{Obstacle, ObstacleKind};
use super::table::Processes;
use crate::channel_groups::GroupId;
use crate::ids::ProcessId;
use sluice_comm::attach::ContextHandles;
use std::collections::BTreeSet;

/// When the manager may control groups that a process has announced or that a search has found, or lock the process in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Now.
    Now,
    /// Not before this time: the client had too many lately.
    At(u64),
    /// The client has too many.
    Never,
    /// The groups of the client cannot be controlled at all.
    Off,
    /// All clients together have too many. The client is not the cause.
    NoRoom,
}

impl Admission {
    /// The note about an announcement that cannot be made now.
    const fn note(self) -> Option<Note> {
        match self {
            Self::Now | Self::Off => None,
            Self::At(_) | Self::Never => Some(Note::TooManyAnnounced),
            Self::NoRoom => Some(Note::NoRoom),
        }
    }
}

/// Groups of one client's processes that are kept.
pub(super) const MAX_OF_CLIENT: usize = 64;

/// Groups of all clients that are kept.
const MAX_GROUPS: usize = 1024;

/// When an announcement of groups that are another process's is tried again.
const OWNED_RETRY_NS: u64 = 1_000_000_000;

impl<P, D: Clone + Default> Processes<P, D> {
    /// A process announces its groups. Those of a stopped process are disabled, and what it leaves out is released at the end of the stop.
    pub(super) fn announced(&mut self, id: ProcessId, announcement: Announcement<D>, step: &mut Step<'_, D>) {
        let Some(record) = self.get_mut(id) else { return };
        if let Some(stop) = &mut record.stop {
            stop.announcement = Some(announcement.clone());
        }
        if record.state.is_misannounced() {
            record.announced = Some(announcement.contexts);
            self.inspect_next(id);
            return step.effects.push(Effect::SchedulingChanged(id));
        }
        self.announce(id, announcement, step);
    }

    /// Takes a process's groups under control, in place of those that it had. What may not be announced yet is postponed; until then
    /// the process is scheduled by token.
    fn announce(&mut self, id: ProcessId, announcement: Announcement<D>, step: &mut Step<'_, D>) {
        let Some(record) = self.get_mut(id) else { return };
        (record.postponed, record.has_no_room) = (None, false);
        record.announced = Some(announcement.contexts.clone());
        // What comes under control is compared with what the process has.
        self.inspect_next(id);
        if self.belongs_to_other(id, &announcement.contexts) {
            return self.postpone_owned(id, announcement, step);
        }
        let admission = self.admit(id, &announcement.contexts, step.now);
        step.effects.extend(admission.note().map(|note| Effect::Report(id, note)));
        match admission {
            Admission::Now if self.must_prove(id, &announcement.contexts) => {
                self.last_check += 1;
                let serial = self.last_check;
                self.postpone(id, announcement.clone(), PostponedUntil::Proven(serial), step);
                step.effects.push(Effect::Prove(id, serial, announcement));
            }
            Admission::Now => step.effects.push(Effect::Open(id, Origin::Announced, announcement)),
            Admission::Never | Admission::Off => self.take_none(id, step),
            Admission::NoRoom => {
                self.set_no_room(id);
                self.take_none(id, step);
            }
            Admission::At(at) => self.postpone(id, announcement, PostponedUntil::Time(at), step),
        }
    }

    /// Whether one of these groups is another process's of the same client: one that has announced it and is attached, or one that is
    /// stopped. Its groups would be enabled in the quanta of the process that announces them now. A process on probation may have announced
    /// what it does not have.
    fn belongs_to_other(&self, id: ProcessId, contexts: &[ContextHandles]) -> bool {
        let Some(record) = self.get(id) else { return false };
        let announced: BTreeSet<(u32, u32)> = contexts.iter().map(handles_of).collect();
        let mut others = self.groups.iter().filter(|(_, group)| group.process != id);
        others.any(|(number, group)| {
            let owner = self.get(group.process).filter(|owner| owner.client == record.client);
            let is_same_process = record.pid.is_some() && group.pid == record.pid;
            let is_attached = owner.is_some_and(|owner| owner.is_attached() && !owner.state.is_unhooked());
            let is_relied_on = is_attached && !self.scheduler.is_on_probation(group.process);
            let is_owner = self.scheduler.owns(group.process, *number)
                && (is_relied_on || owner.is_some() && self.scheduler.is_stopped(group.process));
            is_owner && !is_same_process && announced.contains(&handles_of(&group.context))
        })
    }

    /// Postpones an announcement of groups that are another process's now.
    fn postpone_owned(&mut self, id: ProcessId, announcement: Announcement<D>, step: &mut Step<'_, D>) {
        let until = PostponedUntil::Time(step.now.saturating_add(OWNED_RETRY_NS));
        self.postpone(id, announcement, until, step);
    }

    /// When these groups of a process may come under control. Groups that it has already cost nothing.
    pub(super) fn admit(&mut self, id: ProcessId, contexts: &[ContextHandles], now: u64) -> Admission {
        let Some(client) = self.client_of(id).filter(|_| self.policy.controls) else {
            return Admission::Off;
        };
        let count = contexts.len();
        let new = contexts.iter().filter(|context| self.unchanged(id, context).is_none()).count();
        let of_client =
            self.of_others(Some(id)).filter(|group| self.client_of(group.process) == Some(client));
        let of_others = of_client.count();
        let kept = self.kept(id, contexts);
        let fits_client = of_others + count <= MAX_OF_CLIENT && of_others + count + kept <= 2 * MAX_OF_CLIENT;
        let has_room = self.of_others(Some(id)).count() + count + kept <= MAX_GROUPS;
        let fits = fits_client && has_room;
        let Some(limit) = self.clients.get_mut(&client).map(|client| &mut client.announcements) else {
            return Admission::Off;
        };
        if count == 0 || fits && limit.try_take(new as u64, now) {
            return Admission::Now;
        }
        // It gives back all its groups meanwhile, so all of them are announced anew.
        let ready_at = limit.ready_at(count as u64).filter(|_| fits);
        if fits_client && !has_room {
            return Admission::NoRoom;
        }
        ready_at.map_or(Admission::Never, |at| Admission::At(at.max(now)))
    }

    /// How many groups a process keeps under control that are not among these: those of a stopped process.
    pub(super) fn kept(&self, id: ProcessId, contexts: &[ContextHandles]) -> usize {
        if !self.scheduler.is_stopped(id) {
            return 0;
        }
        let announced: BTreeSet<(u32, u32)> = contexts.iter().map(handles_of).collect();
        self.contexts(id).filter(|context| !announced.contains(&handles_of(context))).count()
    }

    /// Whether an announcement is checked from outside before it counts. Groups that the process has already were checked before.
    fn must_prove(&self, id: ProcessId, contexts: &[ContextHandles]) -> bool {
        let client = self.client_of(id).and_then(|client| self.clients.get(&client));
        let is_pod = client.is_some_and(|client| client.facts.is_pod);
        let is_new = |context| self.unchanged(id, context).is_none();
        self.policy.searches && is_pod && contexts.iter().any(is_new)
    }

    /// The announcement that waits for this check, unless the process has announced other groups since, or has ended.
    fn take_checked(&mut self, id: ProcessId, serial: u64) -> Option<Announcement<D>> {
        let awaits = |(_, until): &mut (_, _)| *until == PostponedUntil::Proven(serial);
        self.get_mut(id)?.postponed.take_if(awaits).map(|(announcement, _)| announcement)
    }

    pub(super) fn not_checked(
        &mut self,
        id: ProcessId,
        serial: u64,
        why: String,
        is_lack_of_room: bool,
        step: &mut Step<'_, D>,
    ) {
        if self.take_checked(id, serial).is_none() {
            return;
        }
        if is_lack_of_room {
            self.set_no_room(id);
        }
        self.refuse(id, why, step);
    }

    pub(super) fn proven(&mut self, proof: OwnershipProof, step: &mut Step<'_, D>) {
        let OwnershipProof { process: id, serial, owns } = proof;
        let Some(announcement) = self.take_checked(id, serial) else { return };
        // Its owner may have been stopped meanwhile.
        if self.belongs_to_other(id, &announcement.contexts) {
            return self.postpone_owned(id, announcement, step);
        }
        match owns {
            Ok(false) => self.refuse(id, "they belong to another process".into(), step),
            // A process that cannot be inspected is trusted with groups that were found nowhere else.
            Err(Obstacle { kind, text })
                if kind != ObstacleKind::NotPermitted
                    || self.was_found_elsewhere(id, &announcement.contexts) =>
            {
                self.refuse(id, text, step);
            }
            Ok(true) | Err(_) => step.effects.push(Effect::Open(id, Origin::Announced, announcement)),
        }
    }

    /// Whether one of these groups was found at another process, which runs without the hook.
    fn was_found_elsewhere(&self, id: ProcessId, contexts: &[ContextHandles]) -> bool {
        let unhooked = |owner| self.get(owner).is_some_and(|record| record.state.is_unhooked());
        let announced: BTreeSet<(u32, u32)> = contexts.iter().map(handles_of).collect();
        let mut others = self.of_others(Some(id)).filter(|group| unhooked(group.process));
        others.any(|group| announced.contains(&handles_of(&group.context)))
    }

    /// Refuses an announcement. Its groups count as unannounced.
    fn refuse(&mut self, id: ProcessId, why: String, step: &mut Step<'_, D>) {
        if let Some(record) = self.get_mut(id) {
            record.announced = None;
        }
        step.effects.push(Effect::Report(id, Note::NotProven(why)));
        self.take_none(id, step);
    }

    fn set_no_room(&mut self, id: ProcessId) {
        if let Some(record) = self.get_mut(id) {
            record.has_no_room = true;
        }
    }

    fn postpone(
        &mut self,
        id: ProcessId,
        announcement: Announcement<D>,
        until: PostponedUntil,
        step: &mut Step<'_, D>,
    ) {
        if let Some(record) = self.get_mut(id) {
            record.postponed = Some((announcement, until));
            self.note_timed(id);
        }
        self.take_none(id, step);
    }

    /// Makes the postponed announcement of a process if its time has come.
    pub(super) fn announce_due(&mut self, id: ProcessId, step: &mut Step<'_, D>) {
        let now = step.now;
        let is_due = |(_, until): &mut (_, _)| matches!(until, PostponedUntil::Time(at) if *at <= now);
        let due = self.get_mut(id).and_then(|record| record.postponed.take_if(is_due));
        if let Some((announcement, _)) = due {
            self.announce(id, announcement, step);
        }
    }

    /// Takes groups under control whose descriptors were opened.
    pub(super) fn opened(
        &mut self,
        id: ProcessId,
        origin: Origin,
        contexts: Vec<ContextHandles>,
        descriptors: &[Option<ControlDescriptorId>],
        failure: Option<String>,
        step: &mut Step<'_, D>,
    ) {
        if self.get(id).is_none() {
            return step.effects.extend(descriptors.iter().flatten().copied().map(Effect::Seal));
        }
        let is_announced = origin == Origin::Announced;
        if let Some(why) = failure.clone().filter(|_| is_announced) {
            step.effects.push(Effect::Report(id, Note::BadDescriptor(why)));
        }
        if failure.is_none() || !matches!(origin, Origin::Lock { .. }) {
            let donors =
                if is_announced { self.reassign(id, &contexts, descriptors) } else { BTreeSet::new() };
            self.take(id, contexts, descriptors, step);
            for donor in donors {
                if self.contexts(donor).next().is_none() {
                    self.release_groups(donor, step);
                    step.effects.push(Effect::SchedulingChanged(donor));
                }
                self.inspect_unhooked(donor, step);
            }
        }
        let failure = failure.map(|why| ObstacleKind::Driver.because(why));
        match origin {
            Origin::Announced => {}
            Origin::Found { command } => self.found_taken(id, command, failure.map_or(Ok(()), Err), step),
            Origin::Lock { command, obstacle } if failure.is_some() => {
                self.note_unscheduled(id, command, obstacle, step);
            }
            Origin::Lock { obstacle, .. } => self.locked(id, obstacle, step),
        }
    }

    /// Assigns announced groups to a process that were found at an unhooked process of the same client before: a child had inherited
    /// its parent's file. The groups keep their numbers. Returns the processes that had them.
    fn reassign(
        &mut self,
        id: ProcessId,
        contexts: &[ContextHandles],
        descriptors: &[Option<ControlDescriptorId>],
    ) -> BTreeSet<ProcessId> {
        let Some((client, pid)) = self.get(id).map(|record| (record.client, record.pid)) else {
            return BTreeSet::new();
        };
        if !all_opened(contexts, descriptors) {
            return BTreeSet::new();
        }
        let announced: BTreeSet<(u32, u32)> = contexts.iter().map(handles_of).collect();
        let mut donors = BTreeSet::new();
        let mut assigned = Vec::new();
        for (number, group) in self.groups.iter().filter(|(_, group)| group.process != id) {
            let owner = self.get(group.process);
            let from_unhooked =
                owner.is_some_and(|owner| owner.state.is_unhooked() && owner.client == client);
            if from_unhooked && announced.contains(&handles_of(&group.context)) {
                donors.insert(group.process);
                assigned.push(*number);
            }
        }
        for number in assigned {
            if let Some(group) = self.groups.get_mut(&number) {
                (group.process, group.pid) = (id, pid);
            }
        }
        donors
    }

    /// Takes a process's groups under control if all of them can be: a process with one context that is not controlled would run
    /// outside its quanta.
    fn take(
        &mut self,
        id: ProcessId,
        mut contexts: Vec<ContextHandles>,
        descriptors: &[Option<ControlDescriptorId>],
        step: &mut Step<'_, D>,
    ) {
        let unchanged: BTreeSet<GroupId> =
            contexts.iter().filter_map(|context| self.unchanged(id, context)).collect();
        if !all_opened(&contexts, descriptors) {
            contexts.clear();
        }
        let mut groups = Vec::new();
        for context in contexts {
            let Some(descriptor) = descriptor_of(&context, descriptors) else { continue };
            let group = self.add_group(id, &context);
            step.effects.push(Effect::Control(group, descriptor, context));
            groups.push(group);
        }
        step.effects.extend(descriptors.iter().flatten().copied().map(Effect::Seal));
        self.schedule(id, groups, unchanged, step);
        step.effects.push(Effect::SchedulingChanged(id));
    }

    /// Schedules a process by these groups, in place of those that it had. The settings of those that are unchanged are known. A stopped
    /// process keeps those that it had, because leaving them out would enable them.
    fn schedule(
        &mut self,
        id: ProcessId,
        mut groups: Vec<GroupId>,
        mut unchanged: BTreeSet<GroupId>,
        step: &mut Step<'_, D>,
    ) {
        let Some(client) = self.client_of(id) else { return };
        let Some(class) = self.class(client) else { return };
        if self.scheduler.is_stopped(id) {
            let its = self.of_process(id).map(|(group, _)| group).filter(|group| !groups.contains(group));
            let kept: Vec<GroupId> = its.filter(|group| self.scheduler.owns(id, *group)).collect();
            unchanged.extend(&kept);
            groups.extend(kept);
        }
        self.scheduler.announce(id, (client, class), (groups, &unchanged), step.ledger, step.now);
    }

    /// Gives back the groups of a process: it is scheduled by token. A stopped process keeps them.
    pub(super) fn take_none(&mut self, id: ProcessId, step: &mut Step<'_, D>) {
        if !self.scheduler.is_stopped(id) {
            self.take(id, Vec::new(), &[], step);
        }
    }
}

/// The opened descriptor that a group names.
fn descriptor_of(
    context: &ContextHandles,
    descriptors: &[Option<ControlDescriptorId>],
) -> Option<ControlDescriptorId> {
    *descriptors.get(usize::try_from(context.descriptor).ok()?)?
}

/// Whether the descriptors of all groups were opened.
fn all_opened(contexts: &[ContextHandles], descriptors: &[Option<ControlDescriptorId>]) -> bool {
    contexts.iter().all(|context| descriptor_of(context, descriptors).is_some())
}
