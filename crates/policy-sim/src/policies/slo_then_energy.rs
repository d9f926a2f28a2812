//! Pre-empt or wait by the SLO, then by energy (seed 002 §5.2.4): a request waits for the end of the burst that runs if it meets its `slo` all
//! the same. Otherwise the burst is preempted, as under strict priority. To wait always needs less energy: both ways have the same work, and only
//! a preemption saves and restores a context within a burst. The policy knows the GPU time of bursts; on a GPU it would have to predict it.

use super::priority::StrictPriority;
use super::{Decision, Demand, Policy};
use crate::scenario::{Scenario, Service};

struct Client {
    level: usize,
    /// Goal of a request; 0: none, it does not wait.
    slo_ns: u64,
    burst_ns: u64,
    /// How much of its burst it has executed.
    ran_ns: u64,
    /// From the begin of a request on the GPU to its end.
    request_ns: u64,
}

impl Client {
    fn new(level: usize, slo_ns: u64, service: &Service, switch_ns: u64) -> Self {
        let bursts = u64::from(service.bursts);
        let pauses_ns = (bursts - 1) * service.gap_ns + service.host.after_ns;
        let request_ns = switch_ns + bursts * service.burst_ns + pauses_ns;
        Self { level, slo_ns, burst_ns: service.burst_ns, ran_ns: 0, request_ns }
    }
}

pub(super) struct SloThenEnergy {
    clients: Vec<Client>,
    priority: StrictPriority,
    /// The client that executed last.
    running: Option<usize>,
}

impl SloThenEnergy {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let entries = scenario.clients.iter().zip(&scenario.workloads);
        let clients = entries.map(|(entry, workload)| {
            Client::new(entry.class.level(), entry.slo_ns, &workload.service, scenario.gpu.preempt_ns)
        });
        let priority = StrictPriority::new(&scenario.clients, scenario.gpu.slice_ns);
        Self { clients: clients.collect(), priority, running: None }
    }

    /// The client whose burst goes on because all requests of better classes can wait for its end.
    fn goes_on(&self, now: u64, demands: &[Demand]) -> Option<usize> {
        let running = self.running.filter(|client| demands[*client].ready && demands[*client].started)?;
        let ends_at = now + self.clients[running].burst_ns - self.clients[running].ran_ns;
        let better = self.clients.iter().zip(demands);
        let mut better = better
            .filter(|(client, demand)| demand.ready && client.level < self.clients[running].level)
            .peekable();
        better.peek()?;
        let can_wait = |(client, demand): (&Client, &Demand)| {
            ends_at + client.request_ns <= demand.arrived.saturating_add(client.slo_ns)
        };
        better.all(can_wait).then_some(running)
    }
}

impl Policy for SloThenEnergy {
    fn decide(&mut self, now: u64, demands: &[Demand]) -> Decision {
        match self.goes_on(now, demands) {
            Some(running) => Decision::until_event(Some(running)),
            None => self.priority.decide(now, demands),
        }
    }

    fn ran(&mut self, client: usize, from: u64, to: u64) {
        self.running = Some(client);
        let Client { burst_ns, ran_ns, .. } = &mut self.clients[client];
        // At the end of a burst nothing of the next one has run.
        *ran_ns = (*ran_ns + to - from) % (*burst_ns).max(1);
        self.priority.ran(client, from, to);
    }
}
