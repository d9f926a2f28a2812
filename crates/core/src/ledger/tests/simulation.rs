//! Simulated clients of a given behaviour, and the GPU time that they get.

use super::*;

/// How a client behaves.
#[derive(Clone, Copy, Debug)]
pub(super) enum Habit {
    /// Uses every grant to its deadline and this much longer, then requests again at once.
    Busy { overuse_ns: u64 },
    /// Uses this much, returns early, pauses, requests again.
    Pausing { use_ns: u64, pause_ns: u64 },
    /// Holds every grant to its deadline, but uses only one part in `part` of it.
    Hoarding { one_in: u64 },
}

#[derive(Clone, Copy, Debug)]
enum Doing {
    Asks(u64),
    Waits(u64),
    Runs { since: u64, until: u64 },
    Away,
}

/// GPU time that one client got.
#[derive(Clone, Debug, Default)]
pub(super) struct Had {
    /// GPU time used: (from, to, used).
    pub(super) runs: Vec<(u64, u64, u64)>,
    pub(super) longest_wait: u64,
}

impl Had {
    pub(super) fn used_between(&self, from: u64, to: u64) -> u64 {
        self.runs.iter().filter(|(start, end, _)| *start >= from && *end <= to).map(|(_, _, used)| used).sum()
    }

    pub(super) fn share_between(&self, from: u64, to: u64) -> f64 {
        self.used_between(from, to) as f64 / (to - from) as f64
    }

    /// The longest time between the end of a grant and the beginning of the next.
    pub(super) fn longest_stall(&self) -> u64 {
        self.runs.windows(2).map(|pair| pair[1].0 - pair[0].1).max().unwrap_or(0)
    }
}

/// A simulated GPU under the ledger.
pub(super) struct Simulation {
    pub(super) ledger: TokenLedger,
    habits: Vec<Option<Habit>>,
    doing: Vec<Doing>,
    /// GPU time since the grant of each client began: clients that run at once share the GPU equally.
    used: Vec<u64>,
    pub(super) had: Vec<Had>,
    pub(super) now: u64,
}

impl Simulation {
    pub(super) fn new(policy: Policy, clients: &[(ClientSpec, Option<Habit>)]) -> Self {
        let specs: Vec<ClientSpec> = clients.iter().map(|(spec, _)| *spec).collect();
        let doing = clients.iter().map(|(_, habit)| habit.map_or(Doing::Away, |_| Doing::Asks(0))).collect();
        Self {
            ledger: ledger_of(policy, &specs),
            habits: clients.iter().map(|(_, habit)| *habit).collect(),
            doing,
            used: vec![0; clients.len()],
            had: vec![Had::default(); clients.len()],
            now: 0,
        }
    }

    /// Changes a client's behaviour: a new one applies at once, none applies after the present grant.
    pub(super) fn habit(&mut self, client: usize, habit: Option<Habit>) {
        if self.habits[client].is_none() && habit.is_some() {
            self.doing[client] = Doing::Asks(self.now);
        }
        self.habits[client] = habit;
    }

    /// The ledger's owner does nothing until `to`. Then it takes back all grants as of now, and the clients request again.
    pub(super) fn owner_stops_until(&mut self, to: u64) {
        for client in 0..self.doing.len() {
            self.ledger.withdraw(ProcessId(client as u64), self.now);
            self.doing[client] = Doing::Asks(to);
        }
        self.now = to;
    }

    /// Runs until `end`.
    pub(super) fn run_until(&mut self, end: u64) {
        while let Some(next) = self.next_event().filter(|next| *next <= end) {
            self.pass(self.now.max(next));
            for client in 0..self.doing.len() {
                self.step(client);
            }
            let actions = self.ledger.advance(self.now);
            self.apply(&actions);
        }
        self.pass(end);
    }

    /// The clients run until `to`.
    fn pass(&mut self, to: u64) {
        let runs = |doing: &Doing| matches!(doing, Doing::Runs { .. });
        let running = self.doing.iter().filter(|doing| runs(doing)).count().max(1) as u64;
        for (used, _) in self.used.iter_mut().zip(&self.doing).filter(|(_, doing)| runs(doing)) {
            *used += (to - self.now) / running;
        }
        self.now = to;
    }

    fn next_event(&self) -> Option<u64> {
        let theirs = self.doing.iter().filter_map(|doing| match doing {
            Doing::Asks(at) => Some(*at),
            Doing::Runs { until, .. } => Some(*until),
            Doing::Waits(_) | Doing::Away => None,
        });
        theirs.chain(self.ledger.next_deadline()).min()
    }

    fn step(&mut self, client: usize) {
        let process = ProcessId(client as u64);
        match self.doing[client] {
            Doing::Asks(at) if at <= self.now => {
                ask(&mut self.ledger, process.0, self.now);
                self.doing[client] = Doing::Waits(self.now);
            }
            Doing::Runs { since, until } if until <= self.now => {
                let all = self.used[client];
                let (used, pause) = match self.habits[client] {
                    Some(Habit::Hoarding { one_in }) => (all / one_in, Some(0)),
                    Some(Habit::Pausing { pause_ns, .. }) => (all, Some(pause_ns)),
                    Some(Habit::Busy { .. }) => (all, Some(0)),
                    None => (all, None),
                };
                self.had[client].runs.push((since, self.now, used));
                self.ledger.returned(process, self.now, used, 0).unwrap();
                self.doing[client] = pause.map_or(Doing::Away, |pause| Doing::Asks(self.now + pause));
                // A client without a pause requests again at the same time.
                self.step(client);
            }
            _ => {}
        }
    }

    fn apply(&mut self, actions: &[Action]) {
        for (process, deadline) in granted(actions) {
            let client = usize::try_from(process).unwrap();
            let Deadline::At(deadline) = deadline else { continue };
            if let Doing::Waits(since) = self.doing[client] {
                self.had[client].longest_wait = self.had[client].longest_wait.max(self.now - since);
            }
            let until = match self.habits[client] {
                Some(Habit::Busy { overuse_ns }) => deadline + overuse_ns,
                Some(Habit::Pausing { use_ns, .. }) => deadline.min(self.now + use_ns),
                Some(Habit::Hoarding { .. }) | None => deadline,
            };
            (self.doing[client], self.used[client]) = (Doing::Runs { since: self.now, until }, 0);
        }
        assert!(self.ledger.holders().count() <= 2, "more than one best-effort grant beside the holder's");
    }
}
