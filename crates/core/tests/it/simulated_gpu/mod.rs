//! A simulated GPU in stepped time for token-scheduled and hardware-scheduled clients, with an account of GPU time of
//! its own. Ledger and channel-group scheduler are used through their public interfaces only.
//!
//! Tenants that may run divide the GPU equally. Only hardware-scheduled ones, of which the groups have the shortest time
//! slice then, do not run beside a latency-critical one. A change of the running tenants costs a context switch.

mod arrivals;
mod changes;
mod clients;
mod driver;
mod manager;
mod tenant;
mod witness;

pub(crate) use arrivals::Arrivals;
pub(crate) use changes::Change;
pub(crate) use clients::{Claim, TenantSpec, client_spec, entitled, ledger_policy};
pub(crate) use driver::Lock;
pub(crate) use witness::Deviation;

use driver::Driver;
use manager::Manager;
use sluice_core::ClientId;
use sluice_core::gangs::{GangTable, NodeGangs, Slots};
use tenant::{KERNEL_NS, Tenant};
use witness::Witness;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000 * MS;

/// Time in which the GPU runs nothing when another tenant begins to run.
const SWITCH_NS: u64 = 190_000;
/// How long a tenant takes to react to what the manager wrote.
const REACTION_NS: u64 = 20_000;

/// How clients are scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheduling {
    Token,
    Hardware,
}

pub(crate) struct SimulatedGpu {
    pub(crate) now: u64,
    pub(crate) scheduling: Scheduling,
    tenants: Vec<Tenant>,
    manager: Manager,
    driver: Driver,
    pub(crate) witness: Witness,
    /// Changes to come.
    changes: Vec<(u64, Change)>,
    /// Processes started so far.
    processes: u64,
    /// The tenants that ran last, and the end of the switch to them.
    running: Vec<usize>,
    switching_until: u64,
}

impl SimulatedGpu {
    pub(crate) fn new(scheduling: Scheduling, tenants: &[TenantSpec]) -> Self {
        let mut gpu = Self {
            now: 0,
            scheduling,
            tenants: Vec::new(),
            manager: Manager::new(),
            driver: Driver::default(),
            witness: Witness::default(),
            changes: Vec::new(),
            processes: 0,
            running: Vec::new(),
            switching_until: 0,
        };
        tenants.iter().for_each(|spec| gpu.join(*spec));
        gpu
    }

    /// A control on this GPU waits for the controls on all GPUs with this lock, as in one node.
    pub(crate) fn share_driver(&mut self, lock: &Lock) {
        self.driver.share_lock(lock);
    }

    /// The number that the next tenant gets, after those of which the coming is scheduled.
    pub(crate) fn next_tenant(&self) -> usize {
        let joins = self.changes.iter().filter(|(_, change)| matches!(change, Change::Joins(_)));
        self.tenants.len() + joins.count()
    }

    /// GPU time that the ledger reports of a tenant's client, with the running grant.
    pub(crate) fn charged_ns(&self, tenant: usize) -> u64 {
        let usage = self.manager.ledger.usage(self.tenants[tenant].client, self.now).unwrap();
        usage.charged_ns + usage.running_ns
    }

    /// What the manager tells those of other GPUs: the share to which each attached tenant's client is entitled, by the name of its client.
    pub(crate) fn gang_table(&self, names: &[&str]) -> GangTable {
        let mut table = GangTable::default();
        for (client, share) in self.manager.ledger.entitled_shares() {
            let name = names[self.number(client)].to_owned();
            match share {
                Some(share) => drop(table.shares.insert(name, share)),
                None => drop(table.critical.insert(name)),
            }
        }
        table
    }

    /// The manager learns the slots of the gangs.
    pub(crate) fn set_slots(&mut self, names: &[&str], gangs: &NodeGangs) {
        if self.now < self.manager.stopped_until {
            return;
        }
        let clients = self.tenants.iter().map(|tenant| tenant.client);
        let name = |client| names[self.number(client)];
        let of_client = |client| Some((client, *gangs.slots.get(name(client))?));
        let slots: Slots = clients.clone().filter_map(of_client).collect();
        let slots = slots.in_cycles_of(gangs.cycle_ns);
        let critical = clients.filter(|client| gangs.critical.contains(name(*client)));
        self.manager.ledger.set_slots(slots.with_critical(critical.collect()));
    }

    fn number(&self, client: ClientId) -> usize {
        self.tenants.iter().position(|tenant| tenant.client == client).unwrap()
    }

    /// Whether a tenant has a kernel that is longer than usual.
    pub(crate) fn runs_long_kernel(&self) -> bool {
        let is_long =
            |tenant: &Tenant| tenant.process.is_some() && tenant.workload.kernel_left_ns > KERNEL_NS;
        self.tenants.iter().any(is_long)
    }

    /// Arrival and duration of each finished request of a tenant.
    pub(crate) fn finished(&self, tenant: usize) -> &[(u64, u64)] {
        &self.tenants[tenant].workload.finished
    }

    pub(crate) fn run_until(&mut self, end: u64) {
        loop {
            self.make_changes();
            for tenant in &mut self.tenants {
                self.manager.inbox.extend(tenant.step(self.now));
            }
            self.manage();
            if self.now >= end {
                return;
            }
            let running = self.select();
            let next = self.next_event(&running).clamp(self.now + 1, end);
            self.serve(&running, next);
            self.now = next;
            if let Some(outcome) = self.driver.advance(next) {
                self.manager.outcome = Some(outcome);
            }
        }
    }

    /// The tenants that run now.
    fn select(&mut self) -> Vec<usize> {
        let runs = |tenant: &Tenant| {
            let enabled = self.scheduling == Scheduling::Token || self.driver.is_enabled(tenant.group);
            let alive = tenant.process.is_some() && !tenant.frozen;
            alive && tenant.workload.has_work() && enabled && tenant.may_submit(self.now)
        };
        let mut running: Vec<usize> =
            (0..self.tenants.len()).filter(|index| runs(&self.tenants[*index])).collect();
        if running.iter().any(|index| self.tenants[*index].is_critical()) {
            running.retain(|index| !self.tenants[*index].has_shortest_slice());
        }
        if !running.is_empty() && running != self.running {
            self.running.clone_from(&running);
            self.switching_until = self.now + SWITCH_NS;
        }
        running
    }

    fn next_event(&self, running: &[usize]) -> u64 {
        let starts_at = self.now.max(self.switching_until);
        let count = running.len() as u64;
        let left = |index: &usize| self.tenants[*index].workload.left_ns().saturating_mul(count);
        let ends = running.iter().map(|index| starts_at.saturating_add(left(index)));
        let acts = |tenant: &Tenant| {
            let reaction = tenant.reacts(self.now).then_some(self.now + REACTION_NS);
            [tenant.next_event(self.now), reaction].into_iter().flatten().min()
        };
        let switched = (self.switching_until > self.now).then_some(self.switching_until);
        let changes = self.changes.iter().map(|(at, _)| *at);
        // The manager's timers are not finer than its reaction.
        let manager = self.manager.next_event(self.now).max(self.now + REACTION_NS);
        ends.chain(self.tenants.iter().filter_map(acts))
            .chain(changes)
            .chain(switched)
            .chain(self.driver.next_event())
            .min()
            .unwrap_or(u64::MAX)
            .min(manager)
    }

    /// The running tenants divide the GPU equally until `until`.
    fn serve(&mut self, running: &[usize], until: u64) {
        if running.is_empty() {
            return;
        }
        let from = self.now.max(self.switching_until).min(until);
        self.witness.switching_ns += from - self.now;
        // Tenants that run beside each other alternate by time slice. A tenth of the time goes to context switches.
        let lost_ns = if running.len() > 1 { (until - from) / 10 } else { 0 };
        self.witness.switching_ns += lost_ns;
        let each_ns = (until - from - lost_ns) / running.len() as u64;
        for index in running.iter().filter(|_| until > from) {
            let tenant = &mut self.tenants[*index];
            // Measured by events, it contains the slices of the others.
            tenant.used_ns += until - from;
            // The rest of the division by the number of tenants would never run.
            tenant.workload.ran(if each_ns == 0 { 1 } else { each_ns }, until);
            self.witness.ran(*index, from, until, each_ns);
        }
    }
}
