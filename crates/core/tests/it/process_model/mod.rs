//! Model check of the table of processes. The pod-manager around it is modelled too: `manager.rs` applies events and carries out their
//! effects, `driver.rs` and `world.rs` stand for the driver, the kernel and the processes.
//!
//! Checked is every order of three or four events of two processes, from two states: neither process is connected, or both are and have
//! announced their groups. The processes announce groups truthfully or falsely, are found and stopped, detach, reconnect and end. One that
//! runs without the hook opens and closes its channel for memory. Whether all groups are under control is judged after 4 s of calm.
//!
//! The model has no ownership check that is not made, no descriptor that cannot be opened, no obstacle but `NoGroups`, no lock of the
//! driver, no change of a class, no removed client, and no stop of the manager.

mod bugs;
mod driver;
mod futures;
mod manager;
mod properties;
mod world;

use bugs::Bug;
use sluice_core::ClientId;
use stateright::{Checker, Model as _, Property};
use world::{Claim, PROCESSES, World};

/// How the two processes are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setup {
    /// They belong to two clients.
    Strangers,
    /// They belong to one client.
    Siblings,
    /// They belong to one client, and the second one has inherited the file of the first one.
    Family,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    /// Milliseconds pass: the manager gets the answers that it waits for, and searches.
    Pass(u64),
    /// The manager gets the answers that it waits for: proofs, results of searches, and that threads have stopped.
    Answers,
    /// A search begins.
    Search,
    /// A process connects, or opens its connection anew.
    Connects(usize),
    Detaches(usize),
    /// A process opens its channel for memory, and closes it.
    UsesMemoryChannel(usize),
    /// The hook of a process announces something else.
    Claims(usize, Claim),
    /// A process makes its second group.
    Makes(usize),
    /// A process destroys its first group.
    Destroys(usize),
    /// A process enables its groups from here on whenever they are disabled.
    Cheats(usize),
    Ends(usize),
}

impl Event {
    const fn process(self) -> Option<usize> {
        match self {
            Self::Pass(_) | Self::Answers | Self::Search => None,
            Self::Connects(index) | Self::Detaches(index) | Self::UsesMemoryChannel(index) => Some(index),
            Self::Claims(index, _) | Self::Makes(index) | Self::Destroys(index) => Some(index),
            Self::Cheats(index) | Self::Ends(index) => Some(index),
        }
    }
}

/// A state of the world, and how many events have led to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    world: World,
    events: u8,
    /// Time has passed last.
    has_passed: bool,
    /// A process has done something.
    is_asymmetric: bool,
}

struct Model {
    setup: Setup,
    bug: Bug,
    events: u8,
}

impl Model {
    /// Bounds that keep each check below twenty seconds. Most of what siblings do is done by a process and its child, too.
    const fn new(setup: Setup) -> Self {
        let events = match setup {
            Setup::Siblings => 3,
            Setup::Strangers | Setup::Family => 4,
        };
        Self { setup, bug: Bug::None, events }
    }
}

impl stateright::Model for Model {
    type State = State;
    type Action = Event;

    /// Neither process is connected, or both are.
    fn init_states(&self) -> Vec<State> {
        let second = if self.setup == Setup::Strangers { ClientId(1) } else { ClientId(0) };
        let new = World::new([ClientId(0), second], self.setup == Setup::Family, self.bug);
        let mut attached = new.clone();
        (0..PROCESSES).for_each(|index| attached.connects(index));
        attached.pass(1_000);
        let is_asymmetric = self.setup == Setup::Family;
        let state = |world| State { world, events: 0, has_passed: false, is_asymmetric };
        vec![state(new), state(attached)]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        let world = &state.world;
        if state.events >= self.events {
            return;
        }
        // These come in any case when it is calm.
        let is_last = state.events + 1 == self.events;
        if !is_last {
            if !state.has_passed {
                events.extend([300, 2_000, 11_000].map(Event::Pass));
            }
            let is_waiting = !world.manager.pending.is_empty();
            events.push(if is_waiting { Event::Answers } else { Event::Search });
        }
        // As long as the processes are alike, it is the first one that does something.
        let processes = if state.is_asymmetric { PROCESSES } else { 1 };
        for index in (0..processes).filter(|index| world.processes[*index].alive) {
            events.push(Event::Ends(index));
            let process = &world.processes[index];
            if process.connection.is_some() {
                events.push(Event::Detaches(index));
            }
            if !world.runs(index) {
                continue;
            }
            events.push(Event::Connects(index));
            events.extend(world.is_unhooked(index).then_some(Event::UsesMemoryChannel(index)));
            let claims = [Claim::Its, Claim::Nothing, Claim::Missing, Claim::Foreign];
            let others = claims.into_iter().filter(|claim| *claim != process.claim);
            events.extend(others.map(|claim| Event::Claims(index, claim)));
            let has = |number| world.driver.groups.contains_key(&driver::DriverGroup { file: index, number });
            events.extend((!has(2)).then_some(Event::Makes(index)));
            events.extend(has(1).then_some(Event::Destroys(index)));
            events.extend((!process.cheats && !is_last).then_some(Event::Cheats(index)));
        }
    }

    fn next_state(&self, before: &State, event: Event) -> Option<State> {
        let mut state = before.clone();
        state.events += 1;
        state.has_passed = matches!(event, Event::Pass(_));
        state.is_asymmetric |= event.process().is_some();
        let world = &mut state.world;
        match event {
            Event::Pass(ms) => world.pass(ms),
            Event::Answers => world.answer(),
            Event::Search => world.begin_search(),
            Event::Connects(index) => world.connects(index),
            Event::Detaches(index) => world.detaches(index),
            Event::UsesMemoryChannel(index) => world.uses_memory_channel(index),
            Event::Claims(index, claim) => world.changes_claim(index, claim),
            Event::Makes(index) => world.changes_groups(index, true),
            Event::Destroys(index) => world.changes_groups(index, false),
            Event::Cheats(index) => world.processes[index].cheats = true,
            Event::Ends(index) => world.ends(index),
        }
        world.manage();
        world.observe();
        if state.events + 2 == self.events {
            world.look_at_next_stops();
        }
        if state.events == self.events {
            world.look_ahead();
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

fn check(setup: Setup) {
    let checker = Model::new(setup).checker().spawn_bfs().join();
    let discoveries = checker.discoveries().into_iter();
    let violated = discoveries.filter(|(name, _)| !properties::IS_REACHED.contains(name));
    // A state is too long to be read: the events suffice.
    let violated: Vec<String> =
        violated.map(|(name, path)| format!("{name}: {:?}", path.into_actions())).collect();
    assert!(violated.is_empty(), "what does not hold, and after which events:\n{}", violated.join("\n"));
    checker.assert_properties();
}

#[test]
fn properties_hold_for_two_processes_of_two_clients() {
    check(Setup::Strangers);
}

#[test]
fn properties_hold_for_two_processes_of_one_client() {
    check(Setup::Siblings);
}

#[test]
fn properties_hold_for_a_process_and_its_child() {
    check(Setup::Family);
}
