//! Model check of token ledger and channel-group scheduler together, through the adapter that the manager has between
//! them: every order of controls, time and one or two other events, among them stops of the manager, frozen and killed
//! processes, changes of class, reloads and failed controls.

mod bugs;
mod futures;
mod process;
mod world;

use bugs::Bug;
use sluice_core::ledger::Class;
use stateright::{Checker, Model as _, Property};
use world::{PROCESSES, S_START, TICK, World};

/// The processes of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setup {
    /// Three hardware-scheduled processes.
    Hardware,
    /// The second one is token-scheduled.
    Mixed,
    /// All are token-scheduled.
    Token,
    /// The third one is latency-critical, the others are hardware-scheduled.
    Critical,
    /// The third one is latency-critical and host-bound, the others are hardware-scheduled.
    HostBound,
    /// Three hardware-scheduled processes. The work of the first one waits.
    Waiting,
    /// The same, and the second one is token-scheduled.
    WaitingBesideToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    /// 10 ms pass.
    Tick,
    ControlEnds,
    ControlFails,
    /// A process begins or ends its work.
    Work(usize),
    ManagerStops,
    Freezes(usize),
    Dies(usize),
    /// The work of a process begins to wait, or what it waits for has come.
    ChangesWait(usize),
    /// A process reports that it is host-bound, or no longer.
    TurnsHostBound(usize),
    /// A process becomes latency-critical, or best-effort if it was.
    ChangesClass(usize),
    Reload,
}

/// A state of the world, and how many events have disturbed it so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    world: World,
    events: u8,
}

struct Model {
    setup: Setup,
    bug: Bug,
    ticks: u64,
    events: u8,
}

impl Model {
    /// Bounds that keep each check below two seconds.
    fn new(setup: Setup) -> Self {
        let (ticks, events) = match setup {
            Setup::Hardware | Setup::Critical | Setup::HostBound => (4, 1),
            Setup::Waiting | Setup::WaitingBesideToken => (3, 1),
            Setup::Mixed => (5, 1),
            Setup::Token => (5, 2),
        };
        Self { setup, bug: Bug::None, ticks, events }
    }

    fn has_waits(&self) -> bool {
        matches!(self.setup, Setup::Waiting | Setup::WaitingBesideToken)
    }

    fn is_last(&self, state: &State) -> bool {
        state.world.now >= S_START + self.ticks * TICK
    }
}

impl stateright::Model for Model {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        use Class::{BestEffort, LatencyCritical};
        let is_critical = matches!(self.setup, Setup::Critical | Setup::HostBound);
        let third = if is_critical { LatencyCritical } else { BestEffort };
        let hardware = match self.setup {
            Setup::Hardware | Setup::Critical | Setup::HostBound | Setup::Waiting => [true; PROCESSES],
            Setup::Mixed | Setup::WaitingBesideToken => [true, false, true],
            Setup::Token => [false; PROCESSES],
        };
        let mut world = World::new([BestEffort, BestEffort, third], hardware, self.bug);
        world.processes[2].host_bound = self.setup == Setup::HostBound;
        if self.has_waits() {
            world.change_wait(0);
            world.manage();
        }
        vec![State { world, events: 0 }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        let world = &state.world;
        if world.flight.is_some() && world.stopped == 0 {
            events.push(Event::ControlEnds);
        }
        if !world.flight_is_late || world.stopped > 0 {
            events.push(Event::Tick);
        }
        if state.events >= self.events || world.stopped > 0 {
            return;
        }
        if world.flight.is_some() {
            events.push(Event::ControlFails);
        }
        events.extend([Event::ManagerStops, Event::Reload]);
        for index in (0..PROCESSES).filter(|index| world.processes[*index].alive) {
            events.extend([Event::Work(index), Event::Freezes(index)]);
            events.extend([Event::Dies(index), Event::ChangesClass(index)]);
            if self.has_waits() && world.processes[index].work {
                events.push(Event::ChangesWait(index));
            }
            if world.processes[index].class == Class::LatencyCritical {
                events.push(Event::TurnsHostBound(index));
            }
        }
    }

    fn next_state(&self, before: &State, event: Event) -> Option<State> {
        let mut state = before.clone();
        state.events += u8::from(!matches!(event, Event::Tick | Event::ControlEnds));
        let world = &mut state.world;
        match event {
            Event::Tick => drop(world.tick()),
            Event::ControlEnds => world.end_control(false),
            Event::ControlFails => world.end_control(true),
            Event::Work(index) => world.set_work(index, !world.processes[index].work),
            Event::ManagerStops => world.stopped = 3,
            Event::Freezes(index) => world.processes[index].frozen = 3,
            Event::Dies(index) => world.die(index),
            Event::ChangesClass(index) => world.change_class(index),
            Event::ChangesWait(index) => world.change_wait(index),
            Event::Reload => world.reload(),
            Event::TurnsHostBound(index) => {
                world.processes[index].host_bound = !world.processes[index].host_bound;
            }
        }
        world.manage();
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.world.now <= S_START + self.ticks * TICK
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

mod properties {
    use super::process::Process;
    use super::world::client;
    use super::{Model, PROCESSES, Property, State};
    use sluice_core::ledger::Class;

    pub(super) const SAFE_SLICES: &str = "at most one enabled group has a tiny slice";
    pub(super) const ONE_CLIENT: &str =
        "nothing is granted twice, and one client runs beside latency-critical ones";
    pub(super) const CRITICAL_RUNS: &str =
        "a latency-critical process waits at most for the control in flight";
    pub(super) const SERVED: &str = "every client that has work runs within a bound";
    pub(super) const BOUNDED_LAG: &str = "the lag is bounded some time after any disturbance";
    pub(super) const USED: &str = "others have the GPU while the work of a process waits";
    pub(super) const CRASH_SURVIVED: &str = "all processes are started after a crash";

    pub(super) fn all() -> Vec<Property<Model>> {
        vec![
            Property::always(SAFE_SLICES, |_, state: &State| state.world.slices_are_safe()),
            Property::always(ONE_CLIENT, |_, state: &State| one_client(state)),
            Property::always(CRITICAL_RUNS, |_, state: &State| critical_runs(state)),
            Property::always(SERVED, |_, state: &State| state.world.every_client_is_served()),
            Property::always(USED, |_, state: &State| state.world.gpu_is_used_while_work_waits()),
            Property::always(BOUNDED_LAG, |model: &Model, state: &State| {
                !model.is_last(state) || state.world.lag_is_bounded()
            }),
            Property::always(CRASH_SURVIVED, |_, state: &State| state.world.crash_is_survived()),
            Property::sometimes("a client is disabled while another one runs", |_, state: &State| {
                (0..PROCESSES).any(|index| !state.world.is_enabled(index) || !state.world.may_run(index))
            }),
        ]
    }

    /// While the manager runs and no control is in flight, at most one client may run that is not latency-critical. Beside
    /// a latency-critical process a group may run on until the hand-off window opens.
    fn one_client(state: &State) -> bool {
        let world = &state.world;
        let runs = |index: &usize| {
            let process = &world.processes[*index];
            let counts = process.alive && process.class != Class::LatencyCritical;
            // The groups of a client whose work waits between short bursts are enabled beside the holder's.
            let alternates = world.ledger.has_short_bursts(client(*index));
            counts && !alternates && world.wants_gpu(*index) && world.may_run(*index)
        };
        let critical = |process: &Process| process.alive && process.class == Class::LatencyCritical;
        let waits_for_window = world.processes.iter().any(critical);
        let settled = world.flight.is_none() && world.stopped == 0 && !waits_for_window;
        !world.granted_twice && (!settled || (0..PROCESSES).filter(runs).count() <= 1)
    }

    /// While the manager runs and no control is in flight, every latency-critical process with work may run.
    fn critical_runs(state: &State) -> bool {
        let world = &state.world;
        let critical = |index: &usize| world.processes[*index].class == Class::LatencyCritical;
        let settled = world.flight.is_none() && world.stopped == 0;
        let mut waiting = (0..PROCESSES).filter(critical).filter(|index| world.is_ready(*index));
        !settled || waiting.all(|index| world.may_run(index))
    }
}

fn check(setup: Setup) {
    let checker = Model::new(setup).checker().spawn_bfs().join();
    checker.assert_properties();
}

#[test]
fn properties_hold_for_hardware_scheduled_clients() {
    check(Setup::Hardware);
}

#[test]
fn properties_hold_for_token_scheduled_clients() {
    check(Setup::Token);
}

#[test]
fn properties_hold_for_clients_of_both_kinds() {
    check(Setup::Mixed);
}

#[test]
fn properties_hold_beside_a_latency_critical_client() {
    check(Setup::Critical);
}

#[test]
fn properties_hold_beside_a_latency_critical_client_that_is_host_bound() {
    check(Setup::HostBound);
}

#[test]
fn properties_hold_beside_a_process_whose_work_waits() {
    check(Setup::Waiting);
}

#[test]
fn properties_hold_for_clients_of_both_kinds_beside_a_process_whose_work_waits() {
    check(Setup::WaitingBesideToken);
}
