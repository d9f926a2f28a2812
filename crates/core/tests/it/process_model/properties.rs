//! What holds in every state.

use super::world::{PROCESSES, Threads, World, key};
use super::{Model, Property, State};
use crate::simulated_gpu::S;
use sluice_core::processes;
use std::collections::BTreeSet;

pub(super) const SAME_GROUPS: &str = "the executor controls no group that the table has forgotten";
pub(super) const OWNED: &str = "a group is under control for one process, which has it";
pub(super) const STOPPED: &str = "no group of a stopped process is enabled";
pub(super) const CONNECTED: &str = "the table has the connections of the processes";
pub(super) const OUTSIDE: &str = "no process announces its groups again before its time outside is over";
pub(super) const KEPT: &str =
    "a process without the hook keeps its groups when it closes its channel for memory";
pub(super) const CONTROLLED: &str = "once calm, exactly the groups that exist are under control, and run";
pub(super) const ACCEPTED: &str =
    "once calm, a process that announces its groups truly is not scheduled from outside";
pub(super) const FORGOTTEN: &str = "nothing is left of ended processes";
pub(super) const DOUBLED: &str = "each stop of a client takes twice as long as the one before";

/// What happens in some state, so that the other properties say something.
pub(super) const IS_REACHED: [&str; 2] = ["a process is stopped", "a process is scheduled from outside"];

/// The shortest time for which a process is scheduled from outside.
const OUTSIDE_NS: u64 = S;

type Holds = fn(&World) -> bool;

pub(super) fn all() -> Vec<Property<Model>> {
    let [is_stopped, is_outside] = IS_REACHED;
    vec![
        Property::always(SAME_GROUPS, |_, state: &State| state.world.holds(SAME_GROUPS)),
        Property::always(OWNED, |_, state: &State| state.world.holds(OWNED)),
        Property::always(STOPPED, |_, state: &State| state.world.holds(STOPPED)),
        Property::always(CONNECTED, |_, state: &State| state.world.holds(CONNECTED)),
        Property::always(OUTSIDE, |_, state: &State| state.world.holds(OUTSIDE)),
        Property::always(DOUBLED, |_, state: &State| state.world.holds(DOUBLED)),
        Property::always(KEPT, |_, state: &State| state.world.holds(KEPT)),
        Property::always(CONTROLLED, |_, state: &State| state.world.holds(CONTROLLED)),
        Property::always(ACCEPTED, |_, state: &State| state.world.holds(ACCEPTED)),
        Property::always(FORGOTTEN, |_, state: &State| state.world.holds(FORGOTTEN)),
        Property::sometimes(is_stopped, |_, state: &State| {
            state.world.processes.iter().any(|process| process.threads == Threads::Stopped)
        }),
        Property::sometimes(is_outside, |_, state: &State| {
            state.world.manager.table.iter().any(|(_, record)| record.state == processes::State::Corrected)
        }),
    ]
}

impl World {
    /// Records the properties that this state does not have.
    pub(super) fn observe(&mut self) {
        let properties: [(_, Holds); 5] = [
            (SAME_GROUPS, same_groups),
            (OWNED, owned),
            (STOPPED, stopped),
            (CONNECTED, connected),
            (OUTSIDE, outside),
        ];
        let violated = properties.into_iter().filter(|(_, holds)| !holds(self)).map(|(name, _)| name);
        let violated: Vec<_> = violated.collect();
        self.violated.extend(violated);
    }

    fn holds(&self, property: &str) -> bool {
        !self.violated.contains(property)
    }
}

fn same_groups(world: &World) -> bool {
    let table = &world.manager.table;
    let has_group = !world.driver.controlled.is_empty();
    has_group == table.has_groups()
        && world.driver.controlled.keys().all(|group| table.owner(*group).is_some())
}

/// Each group under control belongs to a process that has the group's file open, if the driver knows the group and the process lives. No
/// two processes have a group that is relied on.
fn owned(world: &World) -> bool {
    let table = &world.manager.table;
    let mut seen = BTreeSet::new();
    let relied_on = world.driver.controlled.iter().filter_map(|(group, known)| {
        let id = table.owner(*group).filter(|id| table.scheduler.owns(*id, *group))?;
        Some((id, known.group))
    });
    relied_on.into_iter().all(|(id, group)| {
        let exists = world.driver.groups.contains_key(&group);
        let index = world.manager.index(id).filter(|index| exists && world.processes[*index].alive);
        let is_relied_on = !table.scheduler.is_on_probation(id);
        index.is_none_or(|index| world.has_file(index, group.file) && (!is_relied_on || seen.insert(group)))
    })
}

/// A group that a process has made while it was being stopped does not count, nor one that a child has inherited from a parent that runs:
/// the parent can enable it, which the next check finds.
fn stopped(world: &World) -> bool {
    (0..PROCESSES).filter(|index| world.processes[*index].threads == Threads::Stopped).all(|index| {
        let its = world.manager.table.find(key(index));
        let known = its.into_iter().flat_map(|id| world.groups_of_process(id));
        let groups = world.processes[index].stopped_groups.iter().copied().chain(known);
        let mut groups = groups.filter(|group| !world.runs(group.file));
        !world.processes[index].alive || groups.all(|group| world.driver.groups.get(&group) != Some(&true))
    })
}

fn connected(world: &World) -> bool {
    (0..PROCESSES).all(|index| {
        let record = world.manager.table.find(key(index)).and_then(|id| world.manager.table.get(id));
        record.and_then(|record| record.token) == world.processes[index].connection
    })
}

fn outside(world: &World) -> bool {
    (0..PROCESSES).all(|index| {
        let found_out = world.processes[index].found_out;
        let is_outside = found_out.is_some_and(|since| world.now < since + OUTSIDE_NS);
        let record = world.manager.table.find(key(index)).and_then(|id| world.manager.table.get(id));
        !is_outside || record.is_none_or(|record| !record.announces())
    })
}
