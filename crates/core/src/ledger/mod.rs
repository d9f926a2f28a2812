//! The token ledger: which set of clients may use the GPU, until when, and what they are charged.
//!
//! Events (`request`, `returned`, `process_gone`, changes of clients) only record. [`TokenLedger::advance`] decides and
//! returns actions for the caller. Call it after every batch of events and at [`TokenLedger::next_deadline`]. Time is
//! nanoseconds of one monotonic clock that the caller passes. A time before the latest one counts as the latest.
//!
//! * At most `capacity` best-effort clients hold a grant at once. Latency-critical clients hold unlimited grants beside
//!   them from their first request on, and never wait.
//! * The processes of a client share its grant. Processes that wait when it begins join it; a process that requests one
//!   later joins for the remaining time if enough is left. The grant ends when all of them have returned it.
//! * For a *hardware-scheduled* process, the channel-group scheduler requests and returns grants, and disables the
//!   process when its quantum ends. At the deadline of a grant that only such processes hold, the ledger chooses the
//!   next client. The same client continues; for another one the processes are to be disabled. They are charged the
//!   time for which their client was enabled.
//! * Grants can be [withheld](TokenLedger::set_withheld) while a latency-critical process needs the whole GPU. The
//!   grant of a [gated](TokenLedger::set_gated) process is suspended for that time: the time is not charged and does
//!   not count against its client's request. If the process returns the grant meanwhile, its work was not held back and
//!   all counts.
//! * A grant is not revoked at its deadline, because GPU work under it still runs. It ends when it is returned, or
//!   `return_timeout_ns` later, or (peers that cannot return it) by timer. Then it is charged, in GPU time.

mod action;
mod advance;
mod client;
mod grant;
mod hardware_scheduled;
mod policy;
mod selection;
#[cfg(test)]
mod tests;
mod withheld_grants;

pub use action::{Action, Deadline, GrantEnd, GrantRequest, Refused, ReturnKind, Returned, Usage};
pub use policy::{Class, ClientSpec, Policy};
pub use selection::Candidate;

use crate::ids::{ClientId, ProcessId};
use crate::share::Share;
use client::Client;
use grant::Grant;
use std::collections::BTreeMap;

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
    waiting: Option<Waiting>,
    /// The longest burst in its last request.
    burst_ns: u64,
    /// It holds an unlimited grant.
    unlimited: bool,
    /// Its submitted work is held back while grants are withheld.
    gated: bool,
    /// When its last grant ended by timer: overuse since then can still be charged.
    timer_ended: Option<u64>,
}

/// The ledger of one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenLedger {
    policy: Policy,
    clients: BTreeMap<ClientId, Client>,
    processes: BTreeMap<ProcessId, Process>,
    grants: Vec<Grant>,
    /// Level of the client that was last chosen among those at or above their request.
    level: u64,
    /// Time divided by the number of running grants: GPU time that each of them had at its disposal.
    shared: u64,
    now: u64,
    epoch: u64,
    actions: Vec<Action>,
    /// Since when token-scheduled processes get no grant.
    withheld_since: Option<u64>,
}

impl TokenLedger {
    /// An empty ledger.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            clients: BTreeMap::new(),
            processes: BTreeMap::new(),
            grants: Vec::new(),
            level: 0,
            shared: 0,
            now: 0,
            epoch: 0,
            actions: Vec::new(),
            withheld_since: None,
        }
    }

    /// Adds a client, or changes the specification of an existing one from `now` on. A change from or to
    /// latency-critical revokes the grants of its processes, which then request again.
    pub fn set_client(&mut self, client: ClientId, spec: ClientSpec, now: u64) {
        let now = self.at(now);
        match self.clients.get_mut(&client) {
            None => {
                self.clients.insert(client, Client::new(spec, &self.policy, now));
            }
            Some(known) => {
                let class_changed =
                    known.spec.class.is_latency_critical() != spec.class.is_latency_critical();
                known.set_spec(spec, now);
                if class_changed {
                    self.revoke_all(client, now);
                }
            }
        }
    }

    /// Removes a client and its processes, and revokes their grants.
    pub fn remove_client(&mut self, client: ClientId, now: u64) {
        let now = self.at(now);
        self.revoke_all(client, now);
        self.processes.retain(|_, process| process.client != client);
        self.clients.remove(&client);
    }

    /// Adds a process of a client; adding it twice changes nothing.
    ///
    /// # Errors
    /// When the client is unknown.
    pub fn add_process(
        &mut self,
        process: ProcessId,
        client: ClientId,
        kind: ReturnKind,
    ) -> Result<(), Refused> {
        if !self.clients.contains_key(&client) {
            return Err(Refused::UnknownClient(client));
        }
        self.processes.entry(process).or_insert(Process {
            client,
            kind,
            waiting: None,
            burst_ns: 0,
            unlimited: false,
            gated: false,
            timer_ended: None,
        });
        Ok(())
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
        let late =
            entry.timer_ended.take().map(|ended| (ended, ask.overuse_ns.min(now.saturating_sub(ended))));
        entry.waiting.get_or_insert(Waiting { since: now, burst_ns: 0 }).burst_ns = ask.burst_ns;
        let by_timer = entry.kind == ReturnKind::ByTimer;
        let client = self.clients.get_mut(&client_id).ok_or(Refused::UnknownClient(client_id))?;
        if let Some((ended, overuse)) = late {
            client.charge(ended, ended + overuse, overuse, overuse);
        }
        client.becomes_active(now, &self.policy);
        let enough = |grant: &Grant| by_timer && now.saturating_add(ask.burst_ns) <= grant.deadline;
        if let Some(grant) = self.grants.iter().position(|g| g.client == client_id)
            && !enough(&self.grants[grant])
            && self.grants[grant].leave(process, now, None)
        {
            self.finish_if_empty(grant, GrantEnd::Returned);
        }
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

    /// A process has ended, or its connection has. Its grant is returned at once.
    pub fn process_gone(&mut self, process: ProcessId, now: u64) {
        let now = self.at(now);
        let Some(entry) = self.processes.remove(&process) else { return };
        if let Some(index) = self.grants.iter().position(|g| g.client == entry.client)
            && self.grants[index].leave(process, now, None)
        {
            self.finish_if_empty(index, GrantEnd::ProcessGone);
        }
        self.mark_idle_if_quiet(entry.client, now);
    }

    /// Charges a client with an unlimited grant for `used_ns` of GPU time (at most the span) between `from` and `to`.
    pub fn charge_unlimited(&mut self, client: ClientId, from: u64, to: u64, used_ns: u64) {
        let to = self.at(to);
        if let Some(client) = self.clients.get_mut(&client) {
            let used = used_ns.min(to.saturating_sub(from));
            client.charge(from, to, used, used);
        }
    }

    /// Usage of a client, if it is known.
    #[must_use]
    pub fn usage(&self, client: ClientId, now: u64) -> Option<Usage> {
        let entry = self.clients.get(&client)?;
        let now = now.max(self.now);
        let running =
            self.grants.iter().find(|g| g.client == client).map_or(0, |g| now.saturating_sub(g.start));
        Some(Usage {
            share: entry.share(now, self.policy.window_ns, running),
            charged_ns: entry.charged_ns,
            held_ns: entry.held_ns,
        })
    }

    /// Best-effort clients that hold a grant, with the deadlines.
    pub fn holders(&self) -> impl Iterator<Item = (ClientId, u64)> + '_ {
        self.grants.iter().map(|grant| (grant.client, grant.deadline))
    }

    /// Whether a client has a limit below the whole GPU.
    #[must_use]
    pub fn is_limited(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.spec.limit != Share::ONE)
    }

    /// Processes that wait.
    pub fn waiting(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.processes.iter().filter(|(_, p)| p.waiting.is_some()).map(|(id, _)| *id)
    }

    /// Whether a process holds an unlimited grant, or a grant that it has not returned.
    #[must_use]
    pub fn holds(&self, process: ProcessId) -> bool {
        let member = |grant: &Grant| grant.members.iter().any(|m| m.process == process);
        self.processes.get(&process).is_some_and(|p| p.unlimited) || self.grants.iter().any(member)
    }

    fn at(&mut self, now: u64) -> u64 {
        let elapsed = now.saturating_sub(self.now);
        self.shared = self.shared.saturating_add(elapsed / (self.grants.len().max(1) as u64));
        self.now = self.now.max(now);
        self.now
    }
}
