//! What follows from a state if nothing disturbs it any more, or if all processes end.

use super::driver::DriverGroup;
use super::properties::{ACCEPTED, CONTROLLED, FORGOTTEN};
use super::world::{Claim, PROCESSES, Process, Threads, World, key};
use sluice_core::processes::Record;
use std::collections::BTreeSet;

/// The longest time that is waited for the ends of all stops, in steps of 1 s.
const LONGEST_STOPS: usize = 100;
/// After this time every process is scheduled, in steps of 1 s: times outside are over, and postponed announcements were made again.
const SETTLED_AFTER: usize = 4;
/// Within this time each group runs, in steps of 1 s.
const SERVED_WITHIN: usize = 4;
/// What was found in an ended process is remembered for 10 s, milliseconds.
const FORGOTTEN_AFTER_MS: [u64; 3] = [1_000, 11_000, 1_000];

impl World {
    /// Records what does not hold if nothing disturbs the processes any more, or if they end.
    pub(super) fn look_ahead(&mut self) {
        let mut calm = self.calm();
        let is_accepted = calm.accepts_true_announcements();
        let is_controlled = calm.is_controlled();
        let mut ended = self.after_the_end();
        let is_forgotten = ended.is_empty();
        let futures = [(ACCEPTED, is_accepted), (CONTROLLED, is_controlled), (FORGOTTEN, is_forgotten)];
        self.violated.extend(futures.into_iter().filter(|(_, holds)| !holds).map(|(name, _)| name));
        self.violated.append(&mut calm.violated);
        self.violated.append(&mut ended.violated);
    }

    /// Records whether the next stops are too short of processes that cheat without end.
    pub(super) fn look_at_next_stops(&mut self) {
        let mut world = self.clone();
        world.processes.iter_mut().for_each(|process| process.cheats = true);
        world.pass(60_000);
        self.violated.append(&mut world.violated);
    }

    fn has_stopped(&self) -> bool {
        self.manager.table.iter().any(|(_, record)| record.is_stopped())
    }

    /// No process cheats any more, and all stops have ended. What is announced falsely stays so.
    fn calm(&self) -> Self {
        let mut world = self.clone();
        world.processes.iter_mut().for_each(|process| process.cheats = false);
        // A process that has enabled its groups before may be stopped for that only now.
        world.pass(3_000);
        for _ in 0..LONGEST_STOPS {
            if !world.has_stopped() {
                break;
            }
            world.step(1_000);
        }
        (0..SETTLED_AFTER).for_each(|_| world.step(1_000));
        world
    }

    /// Whether each existing group is under control for one hardware-scheduled process, no other group is, and all of them run in turn.
    fn is_controlled(&mut self) -> bool {
        let (table, driver) = (&self.manager.table, &self.driver);
        let mut controlled = BTreeSet::new();
        for (group, known) in &driver.controlled {
            let owner = table.owner(*group).filter(|id| table.scheduler.owns(*id, *group));
            let is_scheduled = owner.is_some_and(|id| table.is_hardware_scheduled(id));
            if !is_scheduled || !controlled.insert(known.group) {
                return false;
            }
        }
        let exist: BTreeSet<DriverGroup> = driver.groups.keys().copied().collect();
        let all_run = self.processes.iter().all(|process| process.threads == Threads::Run);
        let mut served = BTreeSet::new();
        for _ in 0..SERVED_WITHIN {
            self.step(1_000);
            served
                .extend(self.driver.groups.iter().filter(|(_, enabled)| **enabled).map(|(group, _)| *group));
        }
        controlled == exist && all_run && served == exist
    }

    /// Whether each connected process counts as one that announces its groups if it announces all of them and no others. Two cases do not
    /// count: another process announces the same groups and was the first; or a process has groups of its parent, which the parent does not
    /// announce truly.
    fn accepts_true_announcements(&self) -> bool {
        let announces = |index: &usize| {
            let id = self.manager.table.find(key(*index));
            id.and_then(|id| self.manager.table.get(id)).is_some_and(Record::announces)
        };
        let is_true = |index: &usize| {
            let Process { connection, claim, .. } = self.processes[*index];
            connection.is_some() && claim == Claim::Its && (*index == 0 || self.processes[0].alive)
        };
        let is_false = |process: &Process| process.alive && process.claim != Claim::Its;
        let is_foreign = |process: &Process| process.alive && process.claim == Claim::Foreign;
        let mut processes = self.processes.iter();
        let does_not_count = if self.inherits { processes.any(is_false) } else { processes.any(is_foreign) };
        does_not_count || (0..PROCESSES).filter(is_true).all(|index| announces(&index))
    }

    fn after_the_end(&self) -> Self {
        let mut world = self.clone();
        (0..PROCESSES).for_each(|index| world.ends(index));
        world.manage();
        FORGOTTEN_AFTER_MS.into_iter().for_each(|ms| world.step(ms));
        world
    }

    /// Whether nothing is left of any process.
    fn is_empty(&self) -> bool {
        let (table, driver) = (&self.manager.table, &self.driver);
        let is_forgotten = table.is_empty() && !table.has_groups() && table.remembered() == 0;
        is_forgotten
            && driver.controlled.is_empty()
            && driver.descriptors.is_empty()
            && driver.groups.is_empty()
    }
}
