//! Every order of events that a few processes can produce within some milliseconds, checked one by one: clients with one
//! and two processes, one of them speaking Gemini's protocol, some of them steered, asking, returning, dying, overrunning
//! their grants.

#![allow(clippy::unwrap_used, reason = "a test")]

use sluice_core::ledger::{Action, Ask, Class, ClientSpec, PeerKind, Policy, TokenLedger};
use sluice_core::quota::QuotaPolicy;
use sluice_core::{ClientId, ProcessId, Share};
use stateright::{Checker, Model, Property};

const MS: u64 = 1_000_000;

/// Client of each process: two of the first client, one of the second, one of the third.
const CLIENTS: [u64; 4] = [0, 0, 1, 2];

/// Kinds of the processes.
type Kinds = [PeerKind; CLIENTS.len()];

/// The second client's cannot return.
const BY_TIMER: Kinds = [PeerKind::Returns, PeerKind::Returns, PeerKind::ByTimer, PeerKind::Returns];

/// All of the first and the third client are stopped when their time is up, and one of the second returns.
const STEERED: Kinds = [PeerKind::Steered, PeerKind::Steered, PeerKind::Returns, PeerKind::Steered];

/// The first client has one of each kind.
const MIXED: Kinds = [PeerKind::Steered, PeerKind::Returns, PeerKind::Steered, PeerKind::Returns];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum View {
    Idle,
    Waits,
    Runs,
    /// It is to be stopped.
    Stops,
    Dead,
}

/// The ledger, and what the processes believe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    ledger: TokenLedger,
    kinds: Kinds,
    views: [View; CLIENTS.len()],
    now: u64,
    deaths: u8,
    /// Who has done something in this millisecond: what follows at once is no different from what follows later.
    acted: [bool; CLIENTS.len()],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    Asks(usize),
    Returns(usize),
    Dies(usize),
    AMillisecondPasses,
}

struct Protocol {
    last_ms: u64,
    kinds: Kinds,
}

impl State {
    fn new(kinds: Kinds) -> Self {
        let quota = QuotaPolicy { base_ns: 2 * MS, min_ns: MS, cap_ns: 2 * MS, limit_period_ns: 4 * MS };
        let policy = Policy {
            window_ns: 8 * MS,
            quota,
            return_timeout_ns: MS,
            linger_ns: MS / 2,
            timer_linger_ns: MS / 2,
            idle_credit_ns: MS,
            limit_depth_ns: MS,
            renew_ahead_ns: MS,
            renew_total_ns: 4 * MS,
            turn_ns: 2 * MS,
            min_turn_ns: MS,
            ..Policy::default()
        };
        let mut ledger = TokenLedger::new(policy);
        // The third client is limited, so that somebody may wait although nobody holds.
        for (client, (request, limit)) in
            (0..).zip([(500_000, 1_000_000), (0, 1_000_000), (250_000, 500_000)])
        {
            let share = |ppm| Share::from_ppm(ppm).unwrap();
            let spec = ClientSpec {
                request: share(request),
                limit: share(limit),
                class: Class::BestEffort,
                weight: 1,
            };
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
                Action::Grant { process, .. } => self.see(process, View::Runs),
                Action::Revoke { process, .. } => self.see(process, View::Idle),
                Action::Stop { process } => self.see(process, View::Stops),
                Action::Prolong { .. } | Action::Contended { .. } | Action::Ended { .. } => {}
            }
        }
    }

    fn see(&mut self, process: ProcessId, view: View) {
        let index = usize::try_from(process.0).unwrap();
        // A process that has asked again while its grant ends by timer goes on waiting.
        if !(view == View::Idle && self.views[index] == View::Waits) {
            self.views[index] = view;
        }
    }

    fn runs(&self, process: usize) -> bool {
        matches!(self.views[process], View::Runs | View::Stops)
    }

    /// Whether all who wait are served if nothing happens but time, and those who hold come to their end.
    fn all_are_served_in_the_end(&self) -> bool {
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
                    // Who is steered has nothing more to do by then, as those who return do not ask again here.
                    Action::Stop { process } | Action::Prolong { process, .. } => {
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
        vec![State::new(self.kinds)]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        for (process, view) in state.views.iter().enumerate().filter(|(process, _)| !state.acted[*process]) {
            match view {
                View::Idle => events.push(Event::Asks(process)),
                View::Runs | View::Stops if state.kinds[process] != PeerKind::ByTimer => {
                    events.push(Event::Returns(process))
                }
                // A peer that cannot return asks again, early or late.
                View::Runs | View::Stops => events.push(Event::Asks(process)),
                View::Waits | View::Dead => {}
            }
            if *view != View::Dead && state.deaths < 1 {
                events.push(Event::Dies(process));
            }
        }
        events.push(Event::AMillisecondPasses);
    }

    fn next_state(&self, before: &State, event: Event) -> Option<State> {
        let mut state = before.clone();
        let id = |process: usize| ProcessId(process as u64);
        match event {
            Event::Asks(process) | Event::Returns(process) | Event::Dies(process) => {
                state.acted[process] = true
            }
            Event::AMillisecondPasses => state.acted = [false; CLIENTS.len()],
        }
        match event {
            Event::Asks(process) => {
                state.views[process] = View::Waits;
                state.ledger.request(id(process), state.now, Ask { burst_ns: MS, overuse_ns: MS }).unwrap();
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
            Event::AMillisecondPasses => state.now += MS,
        }
        state.advance();
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.now <= self.last_ms * MS
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one best-effort client holds a grant", |_, state: &State| {
                let runs = |client| (0..).zip(CLIENTS).any(|(p, c): (usize, _)| c == client && state.runs(p));
                state.ledger.holders().count() <= 1 && (0..3).filter(|client| runs(*client)).count() <= 1
            }),
            Property::always("who believes to wait is known to wait", |_, state: &State| {
                let waiting: Vec<ProcessId> = state.ledger.waiting().collect();
                (0..)
                    .zip(state.views)
                    .all(|(p, view)| waiting.contains(&ProcessId(p)) == (view == View::Waits))
            }),
            Property::always("who believes to run is known to run", |_, state: &State| {
                (0..).zip(state.views).all(|(p, view)| {
                    state.ledger.holds(ProcessId(p)) == matches!(view, View::Runs | View::Stops)
                })
            }),
            Property::always("everybody who waits is served in the end", |_, state: &State| {
                state.all_are_served_in_the_end()
            }),
            Property::sometimes("two processes share a grant", |_, state: &State| {
                state.runs(0) && state.runs(1)
            }),
            Property::sometimes("a client waits for its limit while nobody holds", |_, state: &State| {
                state.views[3] == View::Waits && state.ledger.holders().next().is_none()
            }),
            Property::sometimes("a grant is overrun", |_, state: &State| {
                state.ledger.holders().any(|(_, deadline)| state.now > deadline)
            }),
        ]
    }
}

#[test]
fn the_token_protocol_keeps_its_promises_in_every_order_of_events() {
    check(BY_TIMER);
}

#[test]
fn it_does_so_with_processes_that_somebody_else_asks_and_returns_for() {
    check(STEERED);
}

#[test]
fn it_does_so_when_both_kinds_are_under_one_grant() {
    check(MIXED);
}

fn check(kinds: Kinds) {
    let checker = Protocol { last_ms: 3, kinds }.checker().spawn_dfs().join();
    checker.assert_properties();
}
