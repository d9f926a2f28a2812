//! The simulated GPUs of a node, each with a policy of its own, and the gangs whose ranks wait for each other on them.

use crate::policies::build;
use crate::policy_name::PolicyName;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::simulation::Simulation;
use std::collections::BTreeMap;

/// Simulates one policy.
#[must_use]
pub fn simulate(scenario: &Scenario, policy: PolicyName) -> Report {
    let gpus: Vec<Vec<usize>> = (0..scenario.gpus()).map(|gpu| scenario.clients_of(gpu)).collect();
    let parts: Vec<Scenario> = (0..gpus.len()).map(|gpu| scenario.of_gpu(gpu)).collect();
    let policies = build(policy, &parts);
    let with_policies = parts.iter().zip(&gpus).zip(policies);
    let mut node = Node {
        gpus: with_policies
            .map(|((part, numbers), own)| Simulation::new(part, numbers, (policy, own)))
            .collect(),
        gangs: Gang::all(scenario, &gpus),
        now: 0,
    };
    node.run(scenario.span_ns);
    let mut report = Report::new(scenario, policy);
    let mut clients = BTreeMap::new();
    for (simulation, numbers) in node.gpus.into_iter().zip(&gpus) {
        report.add_gpu(simulation.report, numbers);
        // All ranks of a gang finish their steps at the same time.
        clients.extend(numbers.iter().zip(simulation.clients));
    }
    for (number, client) in clients {
        let unfinished = client.unfinished();
        report.finish(*number, client.finished, unfinished);
    }
    report
}

/// A gang: its ranks spin at the end of each step until they have run together for the time of the collective.
struct Gang {
    /// GPU and number of the client there, of each rank.
    ranks: Vec<(usize, usize)>,
    exchange_ns: u64,
    /// What is left of the collective.
    left_ns: u64,
}

impl Gang {
    fn all(scenario: &Scenario, gpus: &[Vec<usize>]) -> Vec<Self> {
        let gangs = scenario.workloads.iter().enumerate().filter(|(_, workload)| workload.is_gang());
        let place = |client: usize, gpu: usize| gpus[gpu].iter().position(|other| *other == client);
        gangs
            .map(|(client, workload)| Self {
                ranks: workload.gpus.iter().filter_map(|gpu| Some((*gpu, place(client, *gpu)?))).collect(),
                exchange_ns: workload.exchange_ns,
                left_ns: workload.exchange_ns,
            })
            .collect()
    }
}

struct Node<'a> {
    gpus: Vec<Simulation<'a>>,
    gangs: Vec<Gang>,
    now: u64,
}

impl Node<'_> {
    fn run(&mut self, end: u64) {
        let mut runs = vec![None; self.gpus.len()];
        while self.now < end {
            for (gpu, runs) in self.gpus.iter_mut().zip(&mut runs) {
                *runs = gpu.decide();
            }
            let gpus = &self.gpus;
            let is_together = |gang: &Gang| {
                let mut ranks = gang.ranks.iter();
                ranks.all(|(gpu, rank)| {
                    runs[*gpu] == Some(*rank) && gpus[*gpu].clients[*rank].is_at_collective()
                })
            };
            let together: Vec<usize> =
                (0..self.gangs.len()).filter(|gang| is_together(&self.gangs[*gang])).collect();
            let ends = together.iter().map(|gang| self.now + self.gangs[*gang].left_ns);
            let own = gpus.iter().zip(&runs).map(|(gpu, runs)| gpu.next_event(*runs));
            let next = own.chain(ends).min().unwrap_or(end);
            for (gpu, runs) in self.gpus.iter_mut().zip(&runs) {
                gpu.pass(*runs, next);
            }
            for number in together {
                let gang = &mut self.gangs[number];
                gang.left_ns -= next - self.now;
                if gang.left_ns == 0 {
                    gang.left_ns = gang.exchange_ns;
                    for (gpu, rank) in &gang.ranks {
                        self.gpus[*gpu].clients[*rank].end_collective(next);
                    }
                }
            }
            self.now = next;
        }
    }
}
