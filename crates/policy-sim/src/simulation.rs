//! One simulated GPU: it has one client at a time, and a change of the client takes time.

use crate::client::Client;
use crate::policies::{Demand, Policy};
use crate::policy_name::PolicyName;
use crate::report::Report;
use crate::scenario::Scenario;

pub(crate) struct Simulation<'a> {
    scenario: &'a Scenario,
    policy: Box<dyn Policy>,
    pub(crate) clients: Vec<Client<'a>>,
    demands: Vec<Demand>,
    /// The number of its next stall, and since when the policy is not asked.
    next_stall: usize,
    stalled: Option<u64>,
    now: u64,
    /// The client whose context the GPU has.
    loaded: Option<usize>,
    /// Until when the GPU changes to that context.
    loading_until: u64,
    /// Since when the GPU executes nothing and changes no context.
    idle_since: Option<u64>,
    chosen: Option<usize>,
    /// A hold kernel of that client runs.
    is_held: bool,
    review_at: u64,
    pub(crate) report: Report,
}

impl<'a> Simulation<'a> {
    /// A GPU with what it has of a scenario. `numbers`: those of its clients in the whole scenario.
    pub(crate) fn new(
        scenario: &'a Scenario,
        numbers: &[usize],
        (name, policy): (PolicyName, Box<dyn Policy>),
    ) -> Self {
        let workloads = numbers.iter().zip(&scenario.workloads);
        let clients: Vec<Client<'a>> =
            workloads.map(|(number, workload)| Client::new(workload, scenario.seed, *number)).collect();
        Self {
            scenario,
            policy,
            demands: vec![Demand::default(); clients.len()],
            next_stall: 0,
            stalled: None,
            report: Report::new(scenario, name),
            clients,
            now: 0,
            loaded: None,
            loading_until: 0,
            idle_since: None,
            chosen: None,
            is_held: false,
            review_at: u64::MAX,
        }
    }

    /// What has happened up to `now` is noted, and the policy decides. Returns the client that executes from now on.
    pub(crate) fn decide(&mut self) -> Option<usize> {
        for (client, demand) in self.clients.iter_mut().zip(&mut self.demands) {
            self.report.events += client.update(self.now);
            *demand = client.demand;
        }
        if let Some(stall) = self.scenario.stalls.get(self.next_stall) {
            if self.now >= stall.to_ns {
                self.policy.resume(self.stalled.take().unwrap_or(stall.from_ns), self.now);
                self.next_stall += 1;
            } else if self.now >= stall.from_ns {
                self.stalled.get_or_insert(self.now);
            }
        }
        if self.stalled.is_none() {
            let decision = self.policy.decide(self.now, &self.demands);
            (self.chosen, self.review_at) = (decision.client, decision.review_at);
            self.is_held = decision.is_held;
        } else {
            self.review_at = u64::MAX;
        }
        self.load()
    }

    /// The time up to which nothing changes while that client executes.
    pub(crate) fn next_event(&self, runs: Option<usize>) -> u64 {
        let stall = self
            .scenario
            .stalls
            .get(self.next_stall)
            .map_or(u64::MAX, |stall| if self.stalled.is_some() { stall.to_ns } else { stall.from_ns });
        let own = self.clients.iter().map(Client::next_event).min().unwrap_or(u64::MAX);
        let next = own.min(self.review_at).min(stall).max(self.now + 1).min(self.scenario.span_ns);
        if self.now < self.loading_until {
            next.min(self.loading_until)
        } else {
            let left_ns = runs.map_or(u64::MAX, |client| self.clients[client].left_ns());
            next.min(self.now.saturating_add(left_ns))
        }
    }

    /// Begins to change to the chosen client's context. Returns the client that executes from now on.
    fn load(&mut self) -> Option<usize> {
        // A change that has begun is completed.
        if self.now < self.loading_until {
            return None;
        }
        let chosen = self.chosen?;
        if self.loaded != Some(chosen) {
            let gpu = &self.scenario.gpu;
            let cost = match self.loaded {
                None => gpu.load_ns,
                Some(loaded) if self.demands[loaded].ready => {
                    self.report.preemptions += u64::from(self.demands[loaded].started);
                    gpu.preempt_ns
                }
                Some(_) => {
                    let idle_ns = self.idle_since.map_or(0, |since| self.now - since);
                    gpu.switch_ns.saturating_sub(idle_ns).max(gpu.load_ns.min(gpu.switch_ns))
                }
            };
            self.loaded = Some(chosen);
            self.loading_until = self.now + cost;
            self.report.switches += 1;
        }
        (self.now >= self.loading_until && self.demands[chosen].ready).then_some(chosen)
    }

    /// Time passes up to `to`, at most up to the next event.
    pub(crate) fn pass(&mut self, runs: Option<usize>, to: u64) {
        let from = std::mem::replace(&mut self.now, to);
        self.report.events += 1;
        if from < self.loading_until {
            self.idle_since = None;
            self.report.switching_ns += to - from;
        } else if let Some(client) = runs {
            self.idle_since = None;
            self.report.ran(client, from, to);
            self.policy.ran(client, from, to);
            self.clients[client].ran(to - from, to);
        } else {
            match self.is_held {
                true => self.idle_since = None,
                false => _ = self.idle_since.get_or_insert(from),
            }
            let waits = self.demands.iter().any(|demand| demand.ready);
            self.report.idle_ns += to - from;
            self.report.idle_while_work_waits_ns += if waits { to - from } else { 0 };
        }
    }
}
