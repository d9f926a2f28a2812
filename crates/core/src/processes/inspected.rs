//! What becomes of processes that were inspected from outside.
//!
//! A process that runs without the hook has the groups under control that were found. Of an attached process, the groups that are found
//! must be under control, with all of their channels: a second driver library in the process, or a program that has only sent an ATTACH,
//! has groups that no hook announces. A program may also announce its groups without their channels, groups that do not exist, or more
//! groups than are kept. Such a process is scheduled as one without the hook from then on, so it stays within its client's share. It is a
//! violation unless the hook itself reports that it has groups which are not announced: it makes a context, or it cannot announce all
//! groups. A false report gains nothing, because the process is scheduled from outside in both cases. A process whose announcement is
//! complete again is scheduled by its page again.

use super::admission::Admission;
use super::announcement::{Announcement, Origin, handles_of, lock_handles};
use super::event::{Effect, Inspected, Step, Violation};
use super::history::{GrantPageMapping, Suspicion};
use super::note::Note;
use super::obstacle::{Obstacle, ObstacleKind};
use super::record::{Record, State};
use super::table::Processes;
use super::violation::{Consequence, ViolationKind};
use crate::ids::{ClientId, ProcessId, ProcessKey};
use crate::ledger::ReturnKind;
use sluice_comm::attach::ContextHandles;
use sluice_rate_limiter::Backoff;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a group may be unannounced without a report of the hook: a group exists before its ioctl returns to the hook, and the hook
/// withdraws its report when it has sent the announcement, which the manager may not have read yet.
const UNANNOUNCED_FOR_NS: u64 = 250_000_000;
/// The first and the longest time for which a process is scheduled from outside after it had unannounced groups. A process could otherwise
/// have them for half a second again and again.
const OUTSIDE_FOR: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(64)];
/// After this time without unannounced groups the next time outside is the first one again.
const FORGOTTEN_AFTER_NS: u64 = 64_000_000_000;

impl<P, D: Clone + Default> Processes<P, D> {
    /// An attached process was inspected: compares its groups with those that are under control. If it has others for some time already, or
    /// more descriptors than are searched, it is a process without the hook for the searches from now on.
    pub(super) fn inspected_attached(
        &mut self,
        key: ProcessKey,
        found: Result<Vec<ContextHandles>, Obstacle>,
        has_unannounced: bool,
        step: &mut Step<'_, D>,
    ) {
        let Some(id) = self.find(key) else { return };
        let Some(record) = self.get(id) else { return };
        let client = record.client;
        // A process that keeps its announcement waiting gains nothing: it is scheduled from outside meanwhile.
        let is_excused = has_unannounced || record.postponed.is_some() || record.has_no_room;
        let found = match found {
            Ok(found) => {
                self.history(key).unscheduled = None;
                self.its_own(id, &found)
            }
            Err(obstacle) => {
                if !is_excused {
                    self.record_overfull(client, key, &obstacle, step);
                }
                // Without the lock, the groups that it has announced stay under control. The lock may be ready later.
                if obstacle.kind == ObstacleKind::TooMany && self.can_lock(client) {
                    return self.schedule_from_outside(id, key, step);
                }
                return self.not_inspected(id, client, key, obstacle, step);
            }
        };
        let uncontrolled = self.uncontrolled(id, &found);
        let count = uncontrolled.len();
        if !self.is_suspicion_confirmed(key, uncontrolled, step.now) {
            return;
        }
        let what = format!(
            "{count} of the process's {} channel groups are not under control as it announced them",
            found.len()
        );
        step.effects.push(if is_excused {
            Effect::Report(id, Note::Outside(what))
        } else {
            violation(client, key, ViolationKind::UnannouncedGroups, what)
        });
        self.schedule_from_outside(id, key, step);
    }

    /// Counts an attached process that the manager cannot inspect, and reports that once. The manager does not lock the process: the reason
    /// may be a passing one, and the groups that the process announced are under control.
    fn not_inspected(
        &mut self,
        id: ProcessId,
        client: ClientId,
        key: ProcessKey,
        obstacle: Obstacle,
        step: &mut Step<'_, D>,
    ) {
        // A process without groups may not compute at all.
        let why = Some((client, obstacle.kind)).filter(|_| obstacle.kind != ObstacleKind::NoGroups);
        let before = std::mem::replace(&mut self.history(key).unscheduled, why);
        if why.is_some() && before != why {
            step.effects.push(Effect::Report(id, Note::NotInspected(obstacle)));
        }
    }

    /// The searches take an attached process for one without the hook from here on.
    fn schedule_from_outside(&mut self, id: ProcessId, key: ProcessKey, step: &mut Step<'_, D>) {
        let now = step.now;
        let Some(record) = self.get_mut(id) else { return };
        record.state = match record.state {
            State::Announces | State::Misannounced => State::Misannounced,
            State::Corrected | State::Unhooked => State::Corrected,
        };
        record.postponed = None;
        let [first, longest] = OUTSIDE_FOR;
        let outside = self.history(key).outside.get_or_insert_with(|| Backoff::new(first, longest));
        if now.saturating_sub(outside.ready_at()) > FORGOTTEN_AFTER_NS {
            outside.succeeded();
        }
        outside.failed(now);
        self.inspect_again(id, step);
    }

    /// Whether one of these unannounced groups was there in an earlier search, long enough ago. The next search looks again.
    fn is_suspicion_confirmed(&mut self, key: ProcessKey, groups: BTreeSet<(u32, u32)>, now: u64) -> bool {
        let suspicion = &mut self.history(key).suspicion;
        let before = suspicion.take().filter(|before| !before.groups.is_disjoint(&groups));
        let since = before.map_or(now, |before| before.since);
        let is_confirmed = !groups.is_empty() && now.saturating_sub(since) >= UNANNOUNCED_FOR_NS;
        if !groups.is_empty() && !is_confirmed {
            *suspicion = Some(Suspicion { since, groups });
        }
        is_confirmed
    }

    /// Records that a process has more descriptors than are searched, once. The driver may be behind any of them. So such a process is a
    /// violation, and is stopped by the driver's lock if that can be used.
    fn record_overfull(
        &mut self,
        client: ClientId,
        key: ProcessKey,
        obstacle: &Obstacle,
        step: &mut Step<'_, D>,
    ) {
        if obstacle.kind == ObstacleKind::TooMany
            && !std::mem::replace(&mut self.history(key).is_overfull, true)
        {
            let what = obstacle.text.clone();
            step.effects.push(violation(client, key, ViolationKind::TooManyDescriptors, what));
        }
    }

    /// Records that a process maps another page in place of its grant page. It may have attached anew while the page was looked for, so that
    /// only a second finding counts.
    pub(super) fn maps_other_page(
        &mut self,
        key: ProcessKey,
        page: GrantPageMapping,
        step: &mut Step<'_, D>,
    ) {
        let Some(client) = self.find(key).and_then(|id| self.client_of(id)) else { return };
        let (before, findings) = self.history(key).other_page.get_or_insert((page, 0));
        if *before != page {
            (*before, *findings) = (page, 0);
        }
        *findings += 1;
        if *findings == 2 {
            let what = format!("another page is mapped at {:#x}, where the grant page was", page.address);
            step.effects.push(violation(client, key, ViolationKind::GrantPage, what));
        }
    }

    /// A process that does not announce its groups was inspected.
    pub(super) fn inspected(&mut self, inspected: Inspected<P, D>, step: &mut Step<'_, D>) {
        let Inspected { key, client, command, found, endpoint, has_unannounced } = inspected;
        let known = self.find(key);
        let record = known.and_then(|id| self.get(id));
        // It has attached meanwhile, or it is the process of a client that was removed.
        if record.is_some_and(|record| record.announces() || record.client != client) {
            self.history(key).unscheduled = None;
            return;
        }
        let is_stopped = record.is_some_and(Record::is_stopped);
        if let Err(obstacle) = &found {
            self.record_overfull(client, key, obstacle, step);
        }
        // What is found at a stopped process is controlled too, and nothing is released: another process may have made groups on its
        // file, or have closed its descriptors. Its threads may stand in the driver, so it is not locked.
        if !is_stopped && let Some(id) = self.end_misannounced(key, &found, has_unannounced, step) {
            self.history(key).unscheduled = None;
            return step.effects.push(Effect::SchedulingChanged(id));
        }
        match found {
            Ok(announcement) => self.take_found(client, key, command, announcement, endpoint, step),
            Err(_) if is_stopped => {}
            Err(obstacle) => {
                let can_lock = obstacle.kind.can_be_locked() && self.can_lock(client);
                let id = known.or_else(|| can_lock.then(|| self.add_unhooked(client, key, endpoint, step)));
                self.not_scheduled(client, key, id, command, obstacle, step);
            }
        }
    }

    /// A process that is scheduled from outside counts as attached again if it has announced exactly the groups that were found, and all of
    /// them are under control. Returns the process.
    fn end_misannounced(
        &mut self,
        key: ProcessKey,
        found: &Result<Announcement<D>, Obstacle>,
        has_unannounced: bool,
        step: &Step<'_, D>,
    ) -> Option<ProcessId> {
        let id = self.find(key)?;
        let found = match found {
            Ok(announcement) => announcement.contexts.as_slice(),
            Err(obstacle) if obstacle.kind == ObstacleKind::NoGroups => &[],
            Err(_) => return None,
        };
        let found = self.its_own(id, found);
        let is_complete = self.has_announced(id, &found) && self.controls_exactly(id, &found);
        let is_over = self.history(key).outside.as_ref().is_none_or(|outside| outside.is_ready(step.now));
        let record = self.get_mut(id).filter(|record| record.is_attached())?;
        if !record.state.is_misannounced() || has_unannounced || !is_complete || !is_over {
            return None;
        }
        record.state = State::Announces;
        // What was found may be some seconds old.
        self.inspect_next(id);
        Some(id)
    }

    /// Takes all groups of a process under control, in place of those that it had.
    fn take_found(
        &mut self,
        client: ClientId,
        key: ProcessKey,
        command: String,
        mut found: Announcement<D>,
        endpoint: P,
        step: &mut Step<'_, D>,
    ) {
        let known = self.find(key);
        // A child that has inherited the file of its parent: the groups are the parent's.
        found.contexts.retain(|found| !self.is_of_others(known, client, found));
        if known.map_or(found.contexts.is_empty(), |id| self.controls_exactly(id, &found.contexts)) {
            return self.set_scheduled(key);
        }
        let id = known.unwrap_or_else(|| self.add_unhooked(client, key, endpoint, step));
        self.set_found(id);
        // It may have been there before, with a connection that has gone.
        let is_added = step.ledger.add_process(id, client, ReturnKind::Returns).is_ok();
        let admission = if is_added { self.admit(id, &found.contexts, step.now) } else { Admission::Off };
        if admission == Admission::Now {
            return step.effects.push(Effect::Open(id, Origin::Found { command }, found));
        }
        let why = ObstacleKind::TooMany.because(match admission {
            Admission::NoRoom => "the pods of the GPU have too many channel groups",
            _ => "its pod has too many channel groups, or new ones too often",
        });
        self.take_none(id, step);
        self.found_taken(id, command, Err(why), step);
    }

    /// The groups of a process were taken under control as they were found, or why not.
    pub(super) fn found_taken(
        &mut self,
        id: ProcessId,
        command: String,
        taken: Result<(), Obstacle>,
        step: &mut Step<'_, D>,
    ) {
        let Some(record) = self.get(id).filter(|record| !record.is_stopped()) else { return };
        let (client, Some(key)) = (record.client, record.key) else { return };
        match taken {
            Ok(()) => self.set_scheduled(key),
            Err(why) => self.not_scheduled(client, key, Some(id), command, why, step),
        }
    }

    fn set_scheduled(&mut self, key: ProcessKey) {
        let is_stopped = self.find(key).and_then(|id| self.get(id)).is_some_and(Record::is_stopped);
        if !is_stopped {
            self.history(key).unscheduled = None;
        }
    }

    fn add_unhooked(
        &mut self,
        client: ClientId,
        key: ProcessKey,
        endpoint: P,
        step: &mut Step<'_, D>,
    ) -> ProcessId {
        let mut record = Record::new(client, Some(key), Some(key.0), endpoint);
        record.state = State::Unhooked;
        let id = self.add(record);
        step.effects.push(Effect::Added(id));
        id
    }

    /// Whether the driver's lock can be used for a client's processes. Latency-critical ones are never locked.
    fn can_lock(&self, client: ClientId) -> bool {
        self.class(client).is_some_and(|class| !class.is_latency_critical()) && self.locks_ready
    }

    /// Holds a process by the driver's lock if that is possible. Otherwise notes why it is not scheduled, and logs that once.
    fn not_scheduled(
        &mut self,
        client: ClientId,
        key: ProcessKey,
        id: Option<ProcessId>,
        command: String,
        obstacle: Obstacle,
        step: &mut Step<'_, D>,
    ) {
        let can_lock = obstacle.kind.can_be_locked() && self.can_lock(client);
        if obstacle.kind.can_be_locked() && !self.is_critical(client) && !self.locks_ready {
            step.effects.push(Effect::LoadLocks);
        }
        match id.filter(|_| can_lock) {
            Some(id) => self.lock(id, key, command, obstacle, step),
            None => self.log_unscheduled(client, key, id, command, obstacle, step),
        }
    }

    /// Schedules a process by the driver's lock in place of its groups: it counts as one group, which is disabled by locking and has no
    /// time slice.
    fn lock(
        &mut self,
        id: ProcessId,
        key: ProcessKey,
        command: String,
        obstacle: Obstacle,
        step: &mut Step<'_, D>,
    ) {
        let Some(client) = self.client_of(id) else { return };
        let handles = lock_handles(key.0);
        if self.contexts(id).any(|context| handles_of(context) == handles_of(&handles)) {
            self.history(key).unscheduled = None;
            return step.effects.push(Effect::SchedulingChanged(id));
        }
        self.set_found(id);
        let is_added = step.ledger.add_process(id, client, ReturnKind::Returns).is_ok();
        let contexts = vec![handles];
        if !is_added || self.admit(id, &contexts, step.now) != Admission::Now {
            return self.log_unscheduled(client, key, Some(id), command, obstacle, step);
        }
        let announcement = Announcement { contexts, descriptors: D::default() };
        step.effects.push(Effect::Open(id, Origin::Lock { command, obstacle }, announcement));
    }

    /// The lock has taken the place of a process's groups.
    pub(super) fn locked(&mut self, id: ProcessId, obstacle: Obstacle, step: &mut Step<'_, D>) {
        if let Some(key) = self.get(id).and_then(|record| record.key) {
            self.history(key).unscheduled = None;
        }
        step.effects.push(Effect::Report(id, Note::Locked(obstacle)));
    }

    /// The lock was not to be had.
    pub(super) fn note_unscheduled(
        &mut self,
        id: ProcessId,
        command: String,
        obstacle: Obstacle,
        step: &mut Step<'_, D>,
    ) {
        let Some(record) = self.get(id) else { return };
        let (client, Some(key)) = (record.client, record.key) else { return };
        self.log_unscheduled(client, key, Some(id), command, obstacle, step);
    }

    fn log_unscheduled(
        &mut self,
        client: ClientId,
        key: ProcessKey,
        id: Option<ProcessId>,
        command: String,
        obstacle: Obstacle,
        step: &mut Step<'_, D>,
    ) {
        let why = Some((client, obstacle.kind));
        if std::mem::replace(&mut self.history(key).unscheduled, why) != why {
            step.effects.push(Effect::NotScheduled { client, pid: key.0, command, obstacle });
        }
        if let Some(id) = id {
            self.release_groups(id, step);
            step.effects.push(Effect::SchedulingChanged(id));
        }
    }
}

/// A violation without further consequence.
fn violation<D>(client: ClientId, key: ProcessKey, kind: ViolationKind, what: String) -> Effect<D> {
    let (pid, consequence) = (Some(key.0), Consequence::Report);
    Effect::Violation(Violation { client, pid, kind, what, consequence })
}
