//! The simulated GPU: it has one client at a time, and a change of the client takes time.

use crate::client::Client;
use crate::policies::{Demand, Policy, build};
use crate::policy_name::PolicyName;
use crate::report::Report;
use crate::scenario::Scenario;

/// Simulates one policy.
#[must_use]
pub fn simulate(scenario: &Scenario, policy: PolicyName) -> Report {
    let mut simulation = Simulation::new(scenario, policy);
    simulation.run();
    for (number, client) in simulation.clients.into_iter().enumerate() {
        let unfinished = client.unfinished();
        simulation.report.finish(number, client.finished, unfinished);
    }
    simulation.report
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    policy: Box<dyn Policy>,
    clients: Vec<Client<'a>>,
    demands: Vec<Demand>,
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
    report: Report,
}

impl<'a> Simulation<'a> {
    fn new(scenario: &'a Scenario, policy: PolicyName) -> Self {
        let workloads = scenario.workloads.iter().enumerate();
        let clients: Vec<Client<'a>> =
            workloads.map(|(number, workload)| Client::new(workload, scenario.seed, number)).collect();
        Self {
            scenario,
            policy: build(policy, scenario),
            demands: vec![Demand::default(); clients.len()],
            report: Report::new(scenario, policy),
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

    fn run(&mut self) {
        let end = self.scenario.span_ns;
        let mut stalls = self.scenario.stalls.iter().peekable();
        let mut stalled: Option<u64> = None;
        while self.now < end {
            for (client, demand) in self.clients.iter_mut().zip(&mut self.demands) {
                self.report.events += client.update(self.now);
                *demand = client.demand;
            }
            if let Some(stall) = stalls.peek() {
                if self.now >= stall.to_ns {
                    self.policy.resume(stalled.take().unwrap_or(stall.from_ns), self.now);
                    stalls.next();
                } else if self.now >= stall.from_ns {
                    stalled.get_or_insert(self.now);
                }
            }
            if stalled.is_none() {
                let decision = self.policy.decide(self.now, &self.demands);
                (self.chosen, self.review_at) = (decision.client, decision.review_at);
                self.is_held = decision.is_held;
            } else {
                self.review_at = u64::MAX;
            }
            let runs = self.load();
            let stall = stalls
                .peek()
                .map_or(end, |stall| if stalled.is_some() { stall.to_ns } else { stall.from_ns });
            let own = self.clients.iter().map(Client::next_event).min().unwrap_or(u64::MAX);
            let next = own.min(self.review_at).min(stall).max(self.now + 1).min(end);
            self.pass(runs, next);
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

    /// Time passes up to `next`, or to the end of the change or burst before it.
    fn pass(&mut self, runs: Option<usize>, next: u64) {
        let from = self.now;
        self.report.events += 1;
        if from < self.loading_until {
            self.now = next.min(self.loading_until);
            self.idle_since = None;
            self.report.switching_ns += self.now - from;
        } else if let Some(client) = runs {
            let left_ns = self.clients[client].left_ns();
            self.now = next.min(from.saturating_add(left_ns));
            self.idle_since = None;
            self.report.ran(client, from, self.now);
            self.policy.ran(client, from, self.now);
            self.clients[client].ran(self.now - from, self.now);
        } else {
            self.now = next;
            match self.is_held {
                true => self.idle_since = None,
                false => _ = self.idle_since.get_or_insert(from),
            }
            let waits = self.demands.iter().any(|demand| demand.ready);
            self.report.idle_ns += self.now - from;
            self.report.idle_while_work_waits_ns += if waits { self.now - from } else { 0 };
        }
    }
}
