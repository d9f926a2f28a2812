//! Model check of the token ledger: every order of events of four processes within some milliseconds. The clients have
//! one or two processes. One process speaks Gemini's protocol, some are hardware-scheduled. They request, return, die
//! and overrun their grants.

use sluice_core::ledger::{Action, Class, ClientSpec, GrantRequest, Policy, ReturnKind, TokenLedger};
use sluice_core::quota::QuotaPolicy;
use sluice_core::{ClientId, ProcessId, Share};
use stateright::{Checker, Model, Property};

const MS: u64 = 1_000_000;

/// Client of each process: two of the first client, one of the second, one of the third.
const CLIENTS: [u64; 4] = [0, 0, 1, 2];

/// Kinds of the processes.
type Kinds = [ReturnKind; CLIENTS.len()];

/// The second client's process cannot return grants.
const BY_TIMER: Kinds = [ReturnKind::Returns, ReturnKind::Returns, ReturnKind::ByTimer, ReturnKind::Returns];

/// The processes of the first and the third client are hardware-scheduled; the second client's returns grants.
const HARDWARE_SCHEDULED: Kinds = [
    ReturnKind::HardwareScheduled,
    ReturnKind::HardwareScheduled,
    ReturnKind::Returns,
    ReturnKind::HardwareScheduled,
];

/// The first client has a process of each kind.
const MIXED: Kinds =
    [ReturnKind::HardwareScheduled, ReturnKind::Returns, ReturnKind::HardwareScheduled, ReturnKind::Returns];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum View {
    Idle,
    Waits,
    Runs,
    /// It is to be disabled.
    Stops,
    Dead,
}

/// The ledger, and the state as each process sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    ledger: TokenLedger,
    kinds: Kinds,
    views: [View; CLIENTS.len()],
    now: u64,
    deaths: u8,
    /// Processes that acted in this millisecond: a further act at the same time would not differ from a later one.
    acted: [bool; CLIENTS.len()],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    Requests(usize),
    Returns(usize),
    Dies(usize),
    Millisecond,
}

struct Protocol {
    last_ms: u64,
    kinds: Kinds,
    /// Clients with short bursts are granted beside the holder.
    beside: bool,
}

impl State {
    fn new(kinds: Kinds, beside: bool) -> Self {
        let quota = QuotaPolicy { base_ns: 2 * MS, min_ns: MS, cap_ns: 2 * MS, limit_period_ns: 4 * MS };
        let policy = Policy {
            lag_ns: 4 * MS,
            quota,
            return_timeout_ns: MS,
            linger_ns: MS / 2,
            timer_linger_ns: MS / 2,
            idle_credit_ns: MS,
            limit_depth_ns: MS,
            extend_ahead_ns: MS,
            longest_extended_ns: 4 * MS,
            short_grant_ns: if beside { MS } else { 0 },
            quantum_ns: 2 * MS,
            min_quantum_ns: MS,
            ..Policy::default()
        };
        let mut ledger = TokenLedger::new(policy);
        // The third client is limited, so that a process may wait although no client holds a grant.
        for (client, (request, limit)) in
            (0..).zip([(500_000, 1_000_000), (0, 1_000_000), (250_000, 500_000)])
        {
            let share = |ppm| Share::from_ppm(ppm).unwrap();
            let spec = ClientSpec { request: share(request), limit: share(limit), class: Class::BestEffort };
            ledger.set_client(ClientId(client), spec, 0);
        }
        for (process, (client, kind)) in (0..).zip(CLIENTS.into_iter().zip(kinds)) {
            ledger.add_process(ProcessId(process), ClientId(client), kind).unwrap();
        }
        Self {
            ledger,
            kinds,
            views: [View::Idle; CLIENTS.len()],
            now: 0,
            deaths: 0,
            acted: [false; CLIENTS.len()],
        }
    }

    fn advance(&mut self) {
        for action in self.ledger.advance(self.now) {
            match action {
                Action::Grant { process, .. } => self.set_view(process, View::Runs),
                Action::Revoke { process, .. } => self.set_view(process, View::Idle),
                Action::Disable { process } => self.set_view(process, View::Stops),
                Action::Extend { .. } | Action::Contended { .. } | Action::Ended { .. } => {}
            }
        }
    }

    fn set_view(&mut self, process: ProcessId, view: View) {
        let index = usize::try_from(process.0).unwrap();
        // A process that has requested again while its grant ends by timer still waits.
        if !(view == View::Idle && self.views[index] == View::Waits) {
            self.views[index] = view;
        }
    }

    fn runs(&self, process: usize) -> bool {
        matches!(self.views[process], View::Runs | View::Stops)
    }

    /// Whether every waiting process gets a grant if only time passes and holders end.
    fn every_process_is_served(&self) -> bool {
        let mut ledger = self.ledger.clone();
        let mut waiting: Vec<ProcessId> = ledger.waiting().collect();
        for _ in 0..32 {
            if waiting.is_empty() {
                return true;
            }
            let Some(next) = ledger.next_deadline() else { return false };
            for action in ledger.advance(next) {
                match action {
                    Action::Grant { process, .. } => waiting.retain(|waits| *waits != process),
                    // A hardware-scheduled process has no more work by then: processes that return do not request again
                    // here.
                    Action::Disable { process } | Action::Extend { process, .. } => {
                        let _ = ledger.returned(process, next, 0, 0);
                    }
                    Action::Revoke { .. } | Action::Contended { .. } | Action::Ended { .. } => {}
                }
            }
        }
        false
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.kinds, self.beside)]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        for (process, view) in state.views.iter().enumerate().filter(|(process, _)| !state.acted[*process]) {
            match view {
                View::Idle => events.push(Event::Requests(process)),
                View::Runs | View::Stops if state.kinds[process] != ReturnKind::ByTimer => {
                    events.push(Event::Returns(process))
                }
                // A peer that cannot return requests again, before or after its deadline.
                View::Runs | View::Stops => events.push(Event::Requests(process)),
                View::Waits | View::Dead => {}
            }
            if *view != View::Dead && state.deaths < 1 {
                events.push(Event::Dies(process));
            }
        }
        events.push(Event::Millisecond);
    }

    fn next_state(&self, before: &State, event: Event) -> Option<State> {
        let mut state = before.clone();
        let id = |process: usize| ProcessId(process as u64);
        match event {
            Event::Requests(process) | Event::Returns(process) | Event::Dies(process) => {
                state.acted[process] = true
            }
            Event::Millisecond => state.acted = [false; CLIENTS.len()],
        }
        match event {
            Event::Requests(process) => {
                state.views[process] = View::Waits;
                state
                    .ledger
                    .request(id(process), state.now, GrantRequest { burst_ns: MS, overuse_ns: MS })
                    .unwrap();
            }
            Event::Returns(process) => {
                state.views[process] = View::Idle;
                state.ledger.returned(id(process), state.now, MS, 0).unwrap();
            }
            Event::Dies(process) => {
                state.views[process] = View::Dead;
                state.deaths += 1;
                state.ledger.process_gone(id(process), state.now);
            }
            Event::Millisecond => state.now += MS,
        }
        state.advance();
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.now <= self.last_ms * MS
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "at most one best-effort client holds a grant, and one beside it",
                |model: &Self, state: &State| {
                    let runs =
                        |client| (0..).zip(CLIENTS).any(|(p, c): (usize, _)| c == client && state.runs(p));
                    let most = 1 + usize::from(model.beside);
                    state.ledger.holders().count() <= most
                        && (0..3).filter(|client| runs(*client)).count() <= most
                },
            ),
            Property::always("a process that waits is waiting in the ledger", |_, state: &State| {
                let waiting: Vec<ProcessId> = state.ledger.waiting().collect();
                (0..)
                    .zip(state.views)
                    .all(|(p, view)| waiting.contains(&ProcessId(p)) == (view == View::Waits))
            }),
            Property::always("a process that runs holds a grant in the ledger", |_, state: &State| {
                (0..).zip(state.views).all(|(p, view)| {
                    state.ledger.holds(ProcessId(p)) == matches!(view, View::Runs | View::Stops)
                })
            }),
            Property::always("every waiting process gets a grant in the end", |_, state: &State| {
                state.every_process_is_served()
            }),
            Property::sometimes("two processes share a grant", |_, state: &State| {
                state.runs(0) && state.runs(1)
            }),
            Property::sometimes(
                "a client waits for its limit while no client holds a grant",
                |_, state: &State| state.views[3] == View::Waits && state.ledger.holders().next().is_none(),
            ),
            Property::sometimes("a grant is overrun", |_, state: &State| {
                state.ledger.holders().any(|(_, deadline)| state.now > deadline)
            }),
        ]
    }
}

#[test]
fn properties_hold_with_a_peer_whose_grants_end_by_timer() {
    check(BY_TIMER);
}

#[test]
fn properties_hold_with_hardware_scheduled_processes() {
    check(HARDWARE_SCHEDULED);
}

#[test]
fn properties_hold_with_both_kinds_under_one_grant() {
    check(MIXED);
}

fn check(kinds: Kinds) {
    for beside in [false, true] {
        let checker = Protocol { last_ms: 3, kinds, beside }.checker().spawn_dfs().join();
        checker.assert_properties();
    }
}
