//! Random calls of a ledger: clients whose processes request, run, return late or never, end and come back; reloads; latency-critical work.

use super::super::*;
use super::checker::Checker;
use super::random::Random;
use crate::gangs::{CYCLE_NS, Slot, Slots};

/// What the clients of an episode meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The assumptions of the exact bounds.
    Plain,
    /// The same, and no client is latency-critical.
    Alone,
    /// Clients with short bursts are granted beside the holder.
    Beside,
    /// Two clients hold grants at once.
    Two,
    /// Gangs with slots.
    Gangs,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [Self::Plain, Self::Alone, Self::Beside, Self::Two, Self::Gangs];

    fn policy(self) -> Policy {
        let mut policy = Policy::default();
        if matches!(self, Self::Plain | Self::Alone | Self::Two | Self::Gangs) {
            policy.short_grant_ns = 0;
        }
        if self == Self::Two {
            policy.capacity = 2;
        }
        policy
    }
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Idle,
    Waits,
    Holds {
        since: u64,
        deadline: u64,
    },
    /// Its grant was revoked, and its work runs on. When it ends, the process reports what it used after its deadline.
    Overruns {
        deadline: u64,
    },
    /// It holds or waits for an unlimited grant.
    Critical,
}

struct Process {
    client: u64,
    kind: ReturnKind,
    doing: Doing,
    /// Its work ends then.
    until: u64,
}

pub(super) struct World {
    kind: Kind,
    random: Random,
    checker: Checker,
    processes: Vec<Process>,
    next_client: u64,
    clients: Vec<u64>,
    /// Until when the latency-critical client was charged.
    charged_to: u64,
    now: u64,
}

impl World {
    pub(super) fn new(kind: Kind, seed: u64) -> Self {
        let plain = matches!(kind, Kind::Plain | Kind::Alone);
        let mut world = Self {
            kind,
            random: Random::new(seed),
            checker: Checker::new(TokenLedger::new(kind.policy()), plain),
            processes: Vec::new(),
            next_client: 0,
            clients: Vec::new(),
            charged_to: 0,
            now: 0,
        };
        for _ in 0..2 + world.random.below(4) {
            world.add_client();
        }
        world
    }

    /// Makes at least this many calls, and returns how many they were.
    pub(super) fn run(&mut self, calls: u64) -> u64 {
        while self.checker.calls < calls {
            self.pass_time();
            self.act();
            self.advance();
        }
        self.checker.calls
    }

    /// Time goes on to the next deadline of the ledger, to the end of some work, or a moment.
    fn pass_time(&mut self) {
        let moment = self.now + self.random.time(40 * MS);
        let runs = |process: &&Process| matches!(process.doing, Doing::Holds { .. } | Doing::Overruns { .. });
        let ends = self.processes.iter().filter(runs).map(|process| process.until);
        let next = ends.chain([moment]).min().unwrap_or(moment).max(self.now);
        // The manager decides at each deadline.
        let mut decisions = 0;
        while let Some(at) = self.checker.ledger.next_deadline().filter(|at| *at < next) {
            self.now = self.now.max(at);
            self.advance();
            decisions += 1;
            assert!(
                decisions < 1_000,
                "the ledger decides without end until {next}: {:?}",
                self.checker.ledger
            );
        }
        self.now = next;
    }

    fn act(&mut self) {
        match self.random.below(200) {
            0 => self.reload(),
            1 if self.clients.len() > 2 => self.remove_client(),
            2 if self.clients.len() < 6 => self.add_client(),
            3 if self.kind == Kind::Gangs => self.set_slots(),
            4..=30 => self.charge_critical(),
            _ => self.act_of_process(),
        }
    }

    fn spec(&mut self) -> ClientSpec {
        // Requests of at most six clients add up to at most 1.
        let request = [0, 10_000, 50_000, 100_000, 160_000][self.random.index(5)];
        let limit = if self.random.one_in(3) {
            request.max(20_000) + u32::try_from(self.random.below(800_000)).unwrap()
        } else {
            1_000_000
        };
        let critical = self.kind != Kind::Alone && self.random.one_in(6);
        let best_effort = [Class::High, Class::Normal, Class::BestEffort, Class::BestEffort];
        let class = if critical { Class::LatencyCritical } else { best_effort[self.random.index(4)] };
        ClientSpec {
            request: Share::from_ppm(request).unwrap(),
            limit: Share::from_ppm(limit).unwrap(),
            class,
        }
    }

    fn add_client(&mut self) {
        let id = self.next_client;
        self.next_client += 1;
        let spec = self.spec();
        let now = self.now;
        self.checker.set_client(ClientId(id), spec, now);
        self.clients.push(id);
        for _ in 0..1 + self.random.below(2) {
            self.add_process(id);
        }
    }

    fn add_process(&mut self, client: u64) {
        let kind = match self.random.below(8) {
            0 if self.kind != Kind::Alone => ReturnKind::ByTimer,
            1 | 2 => ReturnKind::HardwareScheduled,
            _ => ReturnKind::Returns,
        };
        let id = ProcessId(self.processes.len() as u64);
        self.checker.call(|ledger| ledger.add_process(id, ClientId(client), kind).unwrap());
        self.processes.push(Process { client, kind, doing: Doing::Idle, until: 0 });
    }

    /// A client's specification changes.
    fn reload(&mut self) {
        let id = self.clients[self.random.index(self.clients.len())];
        let (spec, now) = (self.spec(), self.now);
        self.checker.set_client(ClientId(id), spec, now);
        self.update();
    }

    fn remove_client(&mut self) {
        let index = self.random.index(self.clients.len());
        let id = self.clients.remove(index);
        let now = self.now;
        self.checker.call(|ledger| ledger.remove_client(ClientId(id), now));
        self.update();
    }

    fn set_slots(&mut self) {
        let end = 10 + self.random.below(90);
        let slot = |start: u64, end: u64| Slot { start_ns: start * MS, end_ns: end * MS };
        let pair = [(self.clients[0], slot(0, end)), (self.clients[1], slot(end, 190))];
        const { assert!(190 * MS < CYCLE_NS) };
        let ledger = &self.checker.ledger;
        let gangs = pair.into_iter().map(|(id, slot)| (ClientId(id), slot));
        let gangs =
            gangs.filter(|(id, _)| ledger.clients.get(id).is_some_and(|client| !client.is_critical()));
        let slots: Slots = gangs.collect();
        self.checker.call(|ledger| ledger.set_slots(slots));
    }

    /// Latency-critical clients report what they used.
    fn charge_critical(&mut self) {
        let (from, now) = (self.charged_to, self.now);
        self.charged_to = now;
        let clients: Vec<ClientId> = self.checker.ledger.critical.entries.keys().copied().collect();
        for client in clients {
            let used = if self.random.one_in(2) { self.random.below(now - from + 1) } else { 0 };
            self.checker.call(|ledger| ledger.charge_unlimited(client, from, now, used));
            let bursts = self.random.below(3);
            self.checker.call(|ledger| ledger.count_bursts(bursts, used));
        }
    }

    fn act_of_process(&mut self) {
        if self.processes.is_empty() {
            return;
        }
        let index = self.random.index(self.processes.len());
        let (id, now) = (ProcessId(index as u64), self.now);
        let is_over = now >= self.processes[index].until;
        match self.processes[index].doing {
            _ if !self.checker.ledger.processes.contains_key(&id) => {}
            _ if self.random.one_in(150) => self.end_process(index),
            Doing::Idle => self.request(index, 0),
            Doing::Holds { since, .. } if is_over => {
                // A process may report less than it used, or copies only.
                let used =
                    if self.random.one_in(4) { self.random.below(now - since + 1) } else { now - since };
                self.processes[index].doing = Doing::Idle;
                self.checker.call(|ledger| ledger.returned(id, now, used, 0).unwrap());
                // Mostly it requests again at once.
                if !self.random.one_in(3) {
                    self.request(index, 0);
                }
            }
            Doing::Overruns { deadline } if is_over => self.request(index, now.saturating_sub(deadline)),
            Doing::Holds { .. } | Doing::Overruns { .. } | Doing::Waits | Doing::Critical => {}
        }
    }

    fn request(&mut self, index: usize, overuse_ns: u64) {
        let burst_ns = if self.random.one_in(2) { 0 } else { self.random.time(200 * MS) };
        let (id, now) = (ProcessId(index as u64), self.now);
        self.processes[index].doing = Doing::Waits;
        self.checker.call(|ledger| ledger.request(id, now, GrantRequest { burst_ns, overuse_ns }).unwrap());
    }

    /// A process ends, and another one of its client comes.
    fn end_process(&mut self, index: usize) {
        let (id, now, client) = (ProcessId(index as u64), self.now, self.processes[index].client);
        if self.random.one_in(2) {
            self.checker.call(|ledger| ledger.withdraw(id, now));
            self.processes[index].doing = Doing::Idle;
        } else {
            self.checker.call(|ledger| ledger.process_gone(id, now));
            self.add_process(client);
        }
    }

    fn advance(&mut self) {
        let actions = self.checker.advance(self.now);
        for action in actions {
            match action {
                Action::Grant { process, deadline: Deadline::At(deadline), .. } => {
                    self.run_process(process, deadline)
                }
                Action::Grant { process, .. } => self.processes[index(process)].doing = Doing::Critical,
                Action::Extend { process, deadline, .. } => {
                    let process = &mut self.processes[index(process)];
                    if let Doing::Holds { deadline: before, .. } = &mut process.doing {
                        process.until += deadline.saturating_sub(*before);
                        *before = deadline;
                    }
                }
                Action::Disable { process } => {
                    let (now, after) = (self.now, self.random.time(2 * MS));
                    self.processes[index(process)].until = now + after;
                }
                Action::Revoke { process, reason: GrantEnd::NotReturned | GrantEnd::Expired } => {
                    let process = &mut self.processes[index(process)];
                    if let Doing::Holds { deadline, .. } = process.doing {
                        process.doing = Doing::Overruns { deadline };
                    }
                }
                Action::Revoke { .. } | Action::Contended { .. } | Action::Ended { .. } => {}
            }
        }
        self.update();
    }

    /// A process runs until its deadline, returns earlier, or runs on.
    fn run_process(&mut self, process: ProcessId, deadline: u64) {
        let (now, random) = (self.now, &mut self.random);
        let until = match random.below(10) {
            0..=3 => deadline + random.time(MS),
            4..=6 => now + random.time(deadline - now + 1),
            7 => deadline + random.time(400 * MS),
            8 => deadline + random.time(4 * S),
            _ => now,
        };
        let process = &mut self.processes[index(process)];
        let until = if process.kind == ReturnKind::HardwareScheduled { deadline.max(until) } else { until };
        (process.doing, process.until) = (Doing::Holds { since: now, deadline }, until);
    }

    /// Processes whose grants and requests the ledger took back request again.
    fn update(&mut self) {
        for index in 0..self.processes.len() {
            let id = ProcessId(index as u64);
            let ledger = &self.checker.ledger;
            let known = ledger.processes.get(&id);
            let waits =
                known.is_some_and(|known| known.waiting.is_some() || known.requested || known.unlimited);
            let keeps = match self.processes[index].doing {
                Doing::Holds { .. } => ledger.holds(id),
                Doing::Waits | Doing::Critical => waits || ledger.holds(id),
                Doing::Idle | Doing::Overruns { .. } => true,
            };
            if !keeps {
                self.processes[index].doing = Doing::Idle;
            }
        }
    }
}

fn index(process: ProcessId) -> usize {
    usize::try_from(process.0).unwrap()
}
