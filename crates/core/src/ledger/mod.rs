//! The token ledger: which set of clients may use the GPU, until when, and what they are charged.
//!
//! Events (`request`, `returned`, `process_gone`, changes of clients) only record. [`TokenLedger::advance`] decides and
//! returns actions for the caller. Call it after every batch of events and at [`TokenLedger::next_deadline`]. Time is
//! nanoseconds of one monotonic clock that the caller passes. A time before the latest one counts as the latest.
//!
//! * Waiting clients are granted by virtual time: GPU time divided by weight, where the weight is the share to which a
//!   client is entitled. Levels, requests and unrequested time are all in the weight.
//! * At most `capacity` clients hold a grant with a deadline at once, and one more whose last grant was short. Latency-critical clients hold unlimited grants
//!   beside them from their first request on. They wait only while they are delayed: beyond their limit, or beyond their
//!   request while another client lags.
//! * The processes of a client share its grant. Processes that wait when it begins join it; a process that requests one
//!   later joins for the remaining time if enough is left. The grant ends when all of them have returned it.
//! * For a *hardware-scheduled* process, the channel-group scheduler requests and returns grants, and disables the
//!   process when its quantum ends. At the deadline of a grant that only such processes hold, the ledger chooses the
//!   next client. The same client continues; for another one the processes are to be disabled. They are charged the
//!   time for which their client was enabled and no latency-critical client ran.
//! * A client whose work runs on past its deadline, so that it is ahead by more than the lag bound, owes this time and gets
//!   no grant until it has repaid it at the rate of its weight.
//! * A client with [processes on several GPUs](crate::gangs) is granted in its slot, before all others. By tokens, a grant of it that was
//!   not returned at the end of the slot does not count in the capacity.
//! * A grant is not revoked at its deadline, because GPU work under it still runs. It ends when it is returned, or
//!   `return_timeout_ns` later, or (peers that cannot return it) by timer. Then it is charged, in GPU time.

mod action;
mod advance;
mod beside;
mod choice;
mod client;
mod critical;
mod debt;
mod delays;
mod gang_slots;
mod grant;
mod grant_reason;
mod hardware_scheduled;
mod hold_and_wait;
mod lag;
mod members;
mod policy;
mod ready_queue;
mod suspension;
#[cfg(test)]
mod tests;
mod unreturned;
mod virtual_time;

pub use action::{Action, Deadline, GrantEnd, GrantRequest, Refused, ReturnKind, Returned, Usage};
pub use grant_reason::GrantReason;
pub use policy::{ClientSpec, Policy};
pub use sluice_units::Class;

use crate::gangs::Slots;
use crate::ids::{ClientId, ProcessId};
use crate::share::Share;
use client::Client;
use critical::CriticalClients;
use grant::Grant;
use ready_queue::ReadyQueue;
use std::collections::{BTreeMap, BTreeSet};
use unreturned::Unreturned;
use virtual_time::{ActiveDemand, VirtualNs};

/// A process that waits for a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    since: u64,
    burst_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    client: ClientId,
    kind: ReturnKind,
    /// It waits for a grant with a deadline.
    waiting: Option<Waiting>,
    /// The longest burst in its last request.
    burst_ns: u64,
    /// It holds an unlimited grant.
    unlimited: bool,
    /// It has requested an unlimited grant by itself and waits for it.
    requested: bool,
    /// The last grant that the ledger took back before the process returned it: the ledger can still charge what the process used since.
    unreturned: Option<Unreturned>,
}

/// The ledger of one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenLedger {
    policy: Policy,
    clients: BTreeMap<ClientId, Client>,
    processes: BTreeMap<ProcessId, Process>,
    /// Processes that wait for a grant with a deadline.
    waiting: BTreeSet<ProcessId>,
    /// Clients that wait, in the order in which they are granted.
    queue: ReadyQueue,
    /// What the active clients request.
    demand: ActiveDemand,
    /// Clients that became idle, with the time from which they no longer count in the demand.
    leaving: BTreeSet<(u64, ClientId)>,
    /// Clients that owe GPU time.
    indebted: BTreeSet<ClientId>,
    /// Virtual time of the GPU: that of the client granted last.
    virtual_now: VirtualNs,
    /// How many clients are still to be checked for being too far ahead, and the one that was checked last.
    unchecked_leads: usize,
    last_checked_lead: ClientId,
    /// Clients that returned a grant at its deadline, and until when the ledger waits for their next requests.
    lingering: Vec<(ClientId, u64)>,
    critical: CriticalClients,
    grants: Vec<Grant>,
    /// Time divided by the number of running grants: GPU time that each of them had at its disposal.
    shared: u64,
    now: u64,
    epoch: u64,
    actions: Vec<Action>,
    /// Parts of last time slices that latency-critical bursts did not use, and that are not charged yet.
    unused_slices_ns: u64,
    /// See [`TokenLedger::set_default_slices`].
    default_slices: bool,
    /// See [`TokenLedger::set_slots`].
    slots: Slots,
    /// See [`TokenLedger::membership`].
    membership: u64,
    /// Requests of processes whose clients are suspended, with the longest burst of each.
    withheld: BTreeMap<ProcessId, u64>,
}

impl TokenLedger {
    /// An empty ledger.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            clients: BTreeMap::new(),
            processes: BTreeMap::new(),
            waiting: BTreeSet::new(),
            queue: ReadyQueue::default(),
            demand: ActiveDemand::default(),
            leaving: BTreeSet::new(),
            indebted: BTreeSet::new(),
            virtual_now: 0,
            unchecked_leads: 0,
            last_checked_lead: ClientId(0),
            lingering: Vec::new(),
            critical: CriticalClients::default(),
            grants: Vec::new(),
            shared: 0,
            now: 0,
            epoch: 0,
            actions: Vec::new(),
            unused_slices_ns: 0,
            default_slices: false,
            slots: Slots::default(),
            membership: 0,
            withheld: BTreeMap::new(),
        }
    }

    /// A process requests a grant. If it holds one, the request returns it, unless the process is a peer that cannot
    /// return grants and the remaining time suffices for its burst.
    ///
    /// # Errors
    /// When the process is unknown.
    pub fn request(&mut self, process: ProcessId, now: u64, ask: GrantRequest) -> Result<(), Refused> {
        let now = self.at(now);
        let entry = self.processes.get_mut(&process).ok_or(Refused::UnknownProcess(process))?;
        let client_id = entry.client;
        let hardware_scheduled = entry.kind == ReturnKind::HardwareScheduled;
        if hardware_scheduled && self.grants.iter().any(|g| g.members.iter().any(|m| m.process == process)) {
            return Ok(());
        }
        entry.burst_ns = ask.burst_ns;
        let client = self.clients.get(&client_id).ok_or(Refused::UnknownClient(client_id))?;
        let is_suspended = client.suspended;
        if is_suspended {
            self.withheld.insert(process, ask.burst_ns);
        }
        if client.is_critical() {
            if is_suspended {
                return Ok(());
            }
            let first = !std::mem::replace(&mut entry.requested, true);
            if first && self.critical.is_delayed(client_id) {
                self.critical.no_longer_waits(process);
            }
            self.critical.waits(process, now);
            return Ok(());
        }
        let by_timer = entry.kind == ReturnKind::ByTimer;
        if !is_suspended {
            entry.waiting.get_or_insert(Waiting { since: now, burst_ns: 0 }).burst_ns = ask.burst_ns;
            self.waiting.insert(process);
            self.becomes_active(client_id, now);
        }
        self.charge_unreturned(process, ask.overuse_ns);
        let enough = |grant: &Grant| by_timer && now.saturating_add(ask.burst_ns) <= grant.deadline;
        if let Some(grant) = self.grants.iter().position(|g| g.client == client_id)
            && !enough(&self.grants[grant])
            && self.grants[grant].leave(process, now, None)
        {
            self.finish_if_empty(grant, GrantEnd::Returned);
        }
        self.update_place(client_id, now);
        Ok(())
    }

    /// A process returns its grant: its GPU work has drained after `used_ns` of GPU time. `overuse_ns` is the part
    /// after the deadline. It is contained in `used_ns`; the larger of the two counts.
    ///
    /// # Errors
    /// When the process is unknown.
    pub fn returned(
        &mut self,
        process: ProcessId,
        now: u64,
        used_ns: u64,
        overuse_ns: u64,
    ) -> Result<Returned, Refused> {
        let now = self.at(now);
        let client_id = self.processes.get(&process).ok_or(Refused::UnknownProcess(process))?.client;
        self.charge_unreturned(process, overuse_ns);
        self.update_place(client_id, now);
        let Some(index) = self.grants.iter().position(|g| g.client == client_id) else {
            return Ok(Returned::NothingHeld);
        };
        if !self.grants[index].leave(process, now, Some(used_ns.max(overuse_ns))) {
            return Ok(Returned::NothingHeld);
        }
        let at_deadline = now >= self.grants[index].deadline;
        if self.finish_if_empty(index, GrantEnd::Returned) && at_deadline {
            self.linger(client_id, now.saturating_add(self.policy.linger_ns));
        }
        Ok(Returned::Accepted)
    }

    /// Takes back the grant and the request of a process at `now`. It is charged for the time held.
    pub fn withdraw(&mut self, process: ProcessId, now: u64) {
        let now = self.at(now);
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let client = entry.client;
        entry.waiting = None;
        self.waiting.remove(&process);
        self.withheld.remove(&process);
        if let Some(index) = self.grants.iter().position(|g| g.client == client)
            && self.grants[index].leave(process, now, None)
        {
            self.finish_if_empty(index, GrantEnd::Withdrawn);
        }
        self.mark_idle_if_quiet(client, now);
        self.update_place(client, now);
    }

    /// Clients that hold a grant with a deadline, with the deadlines.
    pub fn holders(&self) -> impl Iterator<Item = (ClientId, u64)> + '_ {
        self.grants.iter().map(|grant| (grant.client, grant.deadline))
    }

    /// How many clients and processes it knows.
    #[must_use]
    pub fn size(&self) -> usize {
        self.clients.len() + self.processes.len()
    }

    /// Whether a client has a limit below the whole GPU.
    #[must_use]
    pub fn is_limited(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.spec.limit != Share::ONE)
    }

    /// The token-scheduled processes that hold grants with deadlines, and these deadlines.
    pub fn members(&self) -> impl Iterator<Item = (ProcessId, u64)> + '_ {
        self.grants.iter().flat_map(|grant| {
            let returning = grant.members.iter().filter(|member| member.kind == ReturnKind::Returns);
            returning.map(|member| (member.process, grant.deadline))
        })
    }

    /// The waiting processes of the client that is granted next if nothing else changes until then. A holder that requests again may come
    /// before it.
    pub fn next_in_line(&self) -> impl Iterator<Item = ProcessId> + '_ {
        let at = self.grants.iter().map(|grant| grant.deadline).min().unwrap_or(0).max(self.now);
        let next = self.first_at(at, None).and_then(|key| self.clients.get(&key.client));
        next.into_iter().flat_map(|client| client.processes.iter().copied()).filter(|id| {
            let process = self.processes.get(id);
            process.is_some_and(|process| {
                process.waiting.is_some() && process.kind != ReturnKind::HardwareScheduled
            })
        })
    }

    /// Processes that wait for a grant with a deadline.
    pub fn waiting(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.waiting.iter().copied()
    }

    /// Whether a process holds an unlimited grant, or a grant that it has not returned.
    #[must_use]
    pub fn holds(&self, process: ProcessId) -> bool {
        let member = |grant: &Grant| grant.members.iter().any(|m| m.process == process);
        self.processes.get(&process).is_some_and(|p| p.unlimited) || self.grants.iter().any(member)
    }

    fn at(&mut self, now: u64) -> u64 {
        self.count_waiting(now);
        let elapsed = now.saturating_sub(self.now);
        let part_ns = elapsed / (self.grants.len().max(1) as u64);
        self.shared = self.shared.saturating_add(part_ns);
        self.grants.iter_mut().for_each(|grant| grant.count_executed(part_ns));
        self.now = self.now.max(now);
        self.now
    }
}
