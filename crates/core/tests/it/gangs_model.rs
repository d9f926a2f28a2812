//! Model check of gangs by grants: three gangs in a circle, of which each two share a GPU, and a client of each GPU alone. A rank may launch a
//! collective before its peer does, die, or be stopped, at any time in a cycle. From every state that follows, all others go on.

use sluice_core::gangs::{CYCLE_BY_GRANTS_NS, CYCLE_NS, GangTable, Slots, assign};
use sluice_core::ledger::{
    Action, Class, ClientSpec, Deadline, GrantRequest, Policy, ReturnKind, TokenLedger,
};
use sluice_core::{ClientId, ProcessId, Share};
use stateright::{Checker, Model, Property};

const MS: u64 = 1_000_000;
const TICK_NS: u64 = 20 * MS;
/// Ticks in which something happens: a cycle.
const TICKS: u64 = CYCLE_BY_GRANTS_NS / TICK_NS;
const GPUS: usize = 3;
const GANGS: usize = 3;
/// The GPUs of each gang.
const PLACES: [[usize; 2]; GANGS] = [[0, 1], [1, 2], [0, 2]];
const REQUESTS: [f64; GANGS] = [0.3, 0.35, 0.3];
/// The client of one GPU.
const LOCAL: usize = GANGS;
/// Less than the return timeout of 2 s, which would end every wait.
const PATIENCE_NS: u64 = 9 * CYCLE_NS;

/// A process of a client on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Rank {
    /// It may launch until then.
    deadline: Option<u64>,
    /// Collectives.
    launched: u64,
    /// It has died, or is stopped for ever.
    is_gone: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Gpu {
    ledger: TokenLedger,
    /// Those of the gangs, of which one is not on this GPU, and that of the local client.
    ranks: [Rank; GANGS + 1],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    gpus: [Gpu; GPUS],
    now: u64,
    /// Something has happened in this tick.
    has_happened: bool,
    /// Ranks that have launched before their peers, and ranks that are gone.
    ahead: u8,
    gone: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    /// A rank launches a collective, and its peer does not.
    LaunchesAlone {
        gang: usize,
        gpu: usize,
    },
    Dies {
        gang: usize,
        gpu: usize,
    },
    IsStopped {
        gang: usize,
        gpu: usize,
    },
    Tick,
}

fn id(number: usize) -> u64 {
    u64::try_from(number).unwrap()
}

impl Gpu {
    fn new(number: usize) -> Self {
        let mut ledger = TokenLedger::new(Policy::default());
        let here = |gang: &usize| PLACES[*gang].contains(&number);
        let gangs: Vec<usize> = (0..GANGS).filter(here).collect();
        let rest = 1.0 - gangs.iter().map(|gang| REQUESTS[*gang]).sum::<f64>();
        let clients = gangs.iter().map(|gang| (*gang, REQUESTS[*gang])).chain([(LOCAL, rest)]);
        let mut gpu = Self { ledger: ledger.clone(), ranks: [Rank::default(); GANGS + 1] };
        for (client, request) in clients {
            let request = Share::from_fraction(request).unwrap();
            let spec = ClientSpec { request, limit: Share::ONE, class: Class::BestEffort };
            ledger.set_client(ClientId(id(client)), spec, 0);
            ledger.add_process(ProcessId(id(client)), ClientId(id(client)), ReturnKind::Returns).unwrap();
            ledger.request(ProcessId(id(client)), 0, GrantRequest::default()).unwrap();
        }
        gpu.ledger = ledger;
        gpu
    }

    fn table(&self, number: usize) -> GangTable {
        let name = |client: ClientId| match usize::try_from(client.0).unwrap() {
            LOCAL => format!("local-{number}"),
            gang => gang.to_string(),
        };
        let shares = self.ledger.entitled_shares().into_iter();
        let shares = shares.filter_map(|(client, share)| Some((name(client), share?))).collect();
        GangTable { shares, by_grants: true, ..GangTable::default() }
    }

    fn request(&mut self, rank: usize, now: u64) {
        if !self.ranks[rank].is_gone {
            self.ledger.request(ProcessId(id(rank)), now, GrantRequest::default()).unwrap();
        }
    }

    fn decide(&mut self, now: u64) {
        for action in self.ledger.advance(now) {
            match action {
                Action::Grant { process, deadline: Deadline::At(deadline), .. }
                | Action::Extend { process, deadline, .. } => {
                    self.ranks[usize::try_from(process.0).unwrap()].deadline = Some(deadline);
                }
                Action::Revoke { process, .. } => {
                    let rank = usize::try_from(process.0).unwrap();
                    self.ranks[rank].deadline = None;
                    self.request(rank, now);
                }
                _ => {}
            }
        }
    }

    fn may_launch(&self, rank: usize, now: u64) -> bool {
        let rank = &self.ranks[rank];
        !rank.is_gone && rank.deadline.is_some_and(|deadline| now < deadline)
    }

    /// Returns the grant of a rank that is over.
    fn return_if_over(&mut self, rank: usize, now: u64) {
        let is_over = self.ranks[rank].deadline.is_some_and(|deadline| now >= deadline);
        if is_over && !self.ranks[rank].is_gone {
            self.ranks[rank].deadline = None;
            self.ledger.returned(ProcessId(id(rank)), now, TICK_NS, 0).unwrap();
            self.request(rank, now);
        }
    }
}

impl State {
    fn new() -> Self {
        let mut gpus = [0, 1, 2].map(Gpu::new);
        let gangs = assign(&[0, 1, 2].map(|gpu| gpus[gpu].table(gpu)));
        for gpu in &mut gpus {
            let slot = |gang: usize| Some((ClientId(id(gang)), *gangs.slots.get(&gang.to_string())?));
            let slots: Slots = (0..GANGS).filter_map(slot).collect();
            gpu.ledger.set_slots(slots.in_cycles_of(gangs.cycle_ns));
        }
        Self { gpus, now: 0, has_happened: false, ahead: 0, gone: 0 }
    }

    /// Collectives of a gang that have ended.
    fn ended(&self, gang: usize) -> u64 {
        PLACES[gang].map(|gpu| self.gpus[gpu].ranks[gang].launched).into_iter().min().unwrap()
    }

    /// A rank that waits for its peer launches no second collective.
    fn may_launch(&self, gang: usize, gpu: usize) -> bool {
        self.gpus[gpu].may_launch(gang, self.now) && self.gpus[gpu].ranks[gang].launched == self.ended(gang)
    }

    /// All decide, launch what they may, and return what is over.
    fn tick(&mut self) {
        self.now += TICK_NS;
        self.has_happened = false;
        let now = self.now;
        self.gpus.iter_mut().for_each(|gpu| gpu.decide(now));
        for (gang, places) in PLACES.into_iter().enumerate() {
            for gpu in places.into_iter().filter(|gpu| self.may_launch(gang, *gpu)).collect::<Vec<_>>() {
                // A rank whose peer has no grant has nothing to launch yet: the one that launches alone is an event.
                let peer = places.into_iter().find(|other| *other != gpu).unwrap();
                let peer_launches =
                    self.may_launch(gang, peer) || self.gpus[peer].ranks[gang].launched > self.ended(gang);
                if peer_launches {
                    self.gpus[gpu].ranks[gang].launched += 1;
                }
            }
            for gpu in places {
                if self.gpus[gpu].ranks[gang].launched == self.ended(gang) {
                    self.gpus[gpu].return_if_over(gang, now);
                }
            }
        }
        self.gpus.iter_mut().for_each(|gpu| gpu.return_if_over(LOCAL, now));
    }

    /// Whether each gang whose ranks live makes a collective, and each local client has a grant, if nothing happens any more.
    fn all_go_on(&self) -> bool {
        let mut later = self.clone();
        let lives = |gang: &usize| PLACES[*gang].iter().all(|gpu| !self.gpus[*gpu].ranks[*gang].is_gone);
        let (mut gangs, mut local): (Vec<usize>, Vec<usize>) =
            ((0..GANGS).filter(lives).collect(), (0..GPUS).collect());
        while later.now < self.now + PATIENCE_NS {
            later.tick();
            gangs.retain(|gang| later.ended(*gang) == self.ended(*gang));
            local.retain(|gpu| !later.gpus[*gpu].may_launch(LOCAL, later.now));
            if gangs.is_empty() && local.is_empty() {
                return true;
            }
        }
        false
    }
}

struct Circle;

impl Model for Circle {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![State::new()]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        events.push(Event::Tick);
        for gang in (0..GANGS).filter(|_| !state.has_happened) {
            for gpu in PLACES[gang] {
                if state.ahead < 2 && state.may_launch(gang, gpu) {
                    events.push(Event::LaunchesAlone { gang, gpu });
                }
                if state.gone < 1 {
                    events.extend([Event::Dies { gang, gpu }, Event::IsStopped { gang, gpu }]);
                }
            }
        }
    }

    fn next_state(&self, before: &State, event: Event) -> Option<State> {
        let mut state = before.clone();
        state.has_happened = true;
        match event {
            Event::Tick => state.tick(),
            Event::LaunchesAlone { gang, gpu } => {
                state.gpus[gpu].ranks[gang].launched += 1;
                state.ahead += 1;
            }
            Event::Dies { gang, gpu } => {
                state.gpus[gpu].ranks[gang].is_gone = true;
                state.gpus[gpu].ledger.process_gone(ProcessId(id(gang)), before.now);
                state.gone += 1;
            }
            Event::IsStopped { gang, gpu } => {
                state.gpus[gpu].ranks[gang].is_gone = true;
                state.gone += 1;
            }
        }
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.now <= TICKS * TICK_NS
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("all that live go on", |_, state: &State| {
                state.has_happened || state.all_go_on()
            }),
            Property::sometimes(
                "ranks of two gangs wait for their peers after their slots",
                |_, state: &State| {
                    let waits = |gang: &usize| {
                        PLACES[*gang].iter().any(|gpu| {
                            let rank = state.gpus[*gpu].ranks[*gang];
                            let is_over = rank.deadline.is_some_and(|deadline| state.now >= deadline);
                            is_over && rank.launched > state.ended(*gang)
                        })
                    };
                    (0..GANGS).filter(waits).count() == 2
                },
            ),
        ]
    }
}

#[test]
fn gangs_in_a_circle_and_local_clients_go_on_whatever_one_rank_does() {
    Circle.checker().spawn_dfs().join().assert_properties();
}
