//! Model check of the reconciler: every order of wanted settings, results, announcements and releases of three groups.

use super::simulation::is_settled;
use crate::channel_groups::{Control, ControlOp, ControlOutcome, GroupId, Reconciler, Setting};
use stateright::{Checker, Model, Property};

const GROUPS: usize = 3;
/// A wanted setting that the reconciler must refuse: all groups enabled with tiny slices.
const ALL: usize = GROUPS;
const TINY: Setting = Setting { enabled: true, slice_us: 1 };
const STOPPED: Setting = Setting { enabled: false, slice_us: 1 };

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    reconciler: Reconciler,
    /// The settings on the GPU; `None`: the group does not exist.
    gpu: [Option<Setting>; GROUPS],
    /// The group that is to be enabled with a tiny slice; `None`: all are free.
    one: Option<usize>,
    changes: u8,
    failures: u8,
    /// Their process is on probation: they are to be free.
    on_probation: [bool; GROUPS],
    departures: u8,
    again: u8,
    /// The control in flight is for the context that existed before.
    stale: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    /// All are to be free, one is to be the only enabled one, or all are to be enabled with tiny slices.
    Wanted(Option<usize>),
    Begins,
    Succeeds,
    /// The GPU has applied the control despite the failure, or not.
    Fails {
        effective: bool,
    },
    Released(usize),
    /// Announced again, maybe during its release: another context with the same handles.
    Announced(usize),
    Dies(usize),
    /// The delay after a failure has passed.
    Retried,
    /// The probation of a group's process has ended.
    Proven(usize),
}

struct Bounds {
    changes: u8,
    failures: u8,
    departures: u8,
    again: u8,
}

fn id(group: usize) -> GroupId {
    GroupId(group as u64)
}

impl State {
    fn apply(&mut self, Control { group, op }: Control) {
        if std::mem::take(&mut self.stale) {
            return;
        }
        let group = usize::try_from(group.0).unwrap();
        if let Some(setting) = &mut self.gpu[group] {
            match op {
                ControlOp::SetSlice(us) => setting.slice_us = us,
                ControlOp::Disable => setting.enabled = false,
                ControlOp::Enable => setting.enabled = true,
            }
        }
    }

    /// Makes all controls that are left, without a failure.
    fn works(&mut self) {
        self.reconciler.retry(u64::MAX);
        for _ in 0..24 {
            if self.reconciler.in_flight().is_none() && self.reconciler.begin().is_none() {
                break;
            }
            if let Some(control) = self.reconciler.in_flight() {
                self.apply(control);
            }
            self.reconciler.done(ControlOutcome::Done, 0);
        }
    }

    fn apply_wanted(&mut self) {
        for group in 0..GROUPS {
            let setting = match self.one {
                _ if self.on_probation[group] => Setting::FREE,
                None => Setting::FREE,
                Some(one) if one == group || one == ALL => TINY,
                Some(_) => STOPPED,
            };
            self.reconciler.want(id(group), setting);
        }
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let mut reconciler = Reconciler::default();
        (0..GROUPS).for_each(|group| reconciler.add(id(group)));
        let gpu = [Some(Setting::FREE); GROUPS];
        vec![State {
            reconciler,
            gpu,
            one: None,
            changes: 0,
            failures: 0,
            on_probation: [false; GROUPS],
            departures: 0,
            again: 0,
            stale: false,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        if state.changes < self.changes {
            let changes = [None, Some(0), Some(1), Some(2), Some(ALL)].into_iter();
            events.extend(changes.filter(|one| *one != state.one).map(Event::Wanted));
        }
        if state.reconciler.in_flight().is_some() {
            events.push(Event::Succeeds);
            if state.failures < self.failures {
                events.extend([Event::Fails { effective: true }, Event::Fails { effective: false }]);
            }
        } else {
            events.extend([Event::Begins, Event::Retried]);
        }
        let proven =
            |group: &usize| state.on_probation[*group] && state.reconciler.is_proven(id(*group), u64::MAX);
        events.extend((0..GROUPS).filter(proven).map(Event::Proven));
        if state.departures < self.departures {
            events.extend([Event::Released(0), Event::Dies(1)]);
        }
        if state.again < self.again {
            events.push(Event::Announced(0));
        }
    }

    fn next_state(&self, before: &State, event: Event) -> Option<State> {
        let mut state = before.clone();
        match event {
            Event::Wanted(one) => {
                (state.one, state.changes) = (one, state.changes + 1);
                state.apply_wanted();
            }
            Event::Begins => {
                state.reconciler.begin()?;
            }
            Event::Succeeds => {
                let control = state.reconciler.in_flight()?;
                state.apply(control);
                state.reconciler.done(ControlOutcome::Done, 0);
            }
            Event::Fails { effective } => {
                let control = state.reconciler.in_flight()?;
                if effective {
                    state.apply(control);
                }
                state.stale = false;
                state.failures += 1;
                state.reconciler.done(ControlOutcome::Failed, 0);
                let on_probation = &mut state.on_probation[usize::try_from(control.group.0).ok()?];
                if state.reconciler.has_failed(control.group) && !std::mem::replace(on_probation, true) {
                    state.reconciler.set_free(control.group);
                }
            }
            Event::Retried => state.reconciler.retry(u64::MAX),
            Event::Proven(group) => {
                state.on_probation[group] = false;
                state.apply_wanted();
            }
            Event::Released(group) => {
                state.departures += 1;
                state.reconciler.release(id(group));
            }
            Event::Announced(group) => {
                state.again += 1;
                state.stale = state.reconciler.in_flight().is_some_and(|control| control.group == id(group));
                state.gpu[group] = Some(Setting::FREE);
                state.reconciler.add(id(group));
                state.apply_wanted();
            }
            Event::Dies(group) => {
                state.departures += 1;
                state.reconciler.forget(id(group));
                state.gpu[group] = None;
            }
        }
        state.reconciler.take_released();
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one enabled group has a tiny slice", |_, state: &State| {
                let running = state.gpu.iter().flatten();
                running.filter(|setting| setting.enabled && setting.slice_us < 1000).count() <= 1
            }),
            Property::always(
                "when the driver works every group gets its wanted setting",
                |_, state: &State| {
                    let mut state = state.clone();
                    let free =
                        |setting: &Option<Setting>| setting.is_none_or(|setting| setting == Setting::FREE);
                    state.works();
                    // Every group on probation is free: its process is hardware-scheduled again.
                    if state
                        .gpu
                        .iter()
                        .zip(state.on_probation)
                        .any(|(setting, waits)| waits && !free(setting))
                    {
                        return false;
                    }
                    state.on_probation = [false; GROUPS];
                    state.apply_wanted();
                    state.works();
                    is_settled(&state.reconciler)
                        && match state.one {
                            None => state.gpu.iter().all(free),
                            Some(one) if one < GROUPS && state.departures == 0 => {
                                let wanted = |group| if group == one { TINY } else { STOPPED };
                                let mut settings = state.gpu.iter().enumerate();
                                settings.all(|(group, setting)| *setting == Some(wanted(group)))
                            }
                            Some(_) => true,
                        }
                },
            ),
            Property::sometimes(
                "one group is enabled with a tiny slice and the others are disabled",
                |_, state: &State| {
                    state.gpu[0] == Some(TINY)
                        && state.gpu[1..].iter().all(|setting| *setting == Some(STOPPED))
                },
            ),
            Property::sometimes("a group is free again after it was on probation", |_, state: &State| {
                state.failures >= 2 && state.on_probation == [false; GROUPS] && state.gpu[0] == Some(TINY)
            }),
        ]
    }
}

#[test]
fn at_most_one_enabled_group_has_a_tiny_slice_in_every_order_of_events() {
    let model = Bounds { changes: 2, failures: 3, departures: 1, again: 1 };
    let checker = model.checker().spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}
