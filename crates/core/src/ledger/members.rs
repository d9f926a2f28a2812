//! The clients and their processes.

use super::client::Client;
use super::{ClientSpec, GrantEnd, GrantRequest, Process, Refused, ReturnKind, TokenLedger};
use crate::ids::{ClientId, ProcessId};

impl TokenLedger {
    /// Adds a client, or changes the specification of an existing one from `now` on. A change from or to
    /// latency-critical revokes the grants of its processes, which then request again.
    pub fn set_client(&mut self, client: ClientId, spec: ClientSpec, now: u64) {
        let now = self.at(now);
        self.membership += 1;
        let known = self.clients.get(&client).map(|known| known.spec);
        let was_critical = known.is_some_and(|known| known.class.is_latency_critical());
        let kind_changes = known.is_some_and(|_| was_critical != spec.class.is_latency_critical());
        let mut requests = Vec::new();
        if kind_changes {
            self.revoke_all(client, now);
            requests = self.take_requests(client, now);
        }
        let in_demand = self.leave_demand(client);
        let (policy, virtual_now) = (self.policy, self.virtual_now);
        self.clients
            .entry(client)
            .and_modify(|known| known.set_spec(spec, &policy, now))
            .or_insert_with(|| Client { start: virtual_now, ..Client::new(spec, &policy, now) });
        let critical = spec.class.is_latency_critical();
        let has_processes = self.clients.get(&client).is_some_and(|client| !client.processes.is_empty());
        let counts = if critical { has_processes } else { in_demand && !kind_changes };
        if counts {
            self.enter_demand(client);
        }
        if critical {
            self.critical.set(client, &spec, &policy, now);
        } else {
            self.critical.remove(client);
        }
        self.bound_lag(client);
        self.update_place(client, now);
        for (process, burst_ns) in requests {
            // The process and its client exist.
            let _ = self.request(process, now, GrantRequest { burst_ns, overuse_ns: 0 });
        }
    }

    /// Removes a client and its processes, and revokes their grants.
    pub fn remove_client(&mut self, client: ClientId, now: u64) {
        let now = self.at(now);
        self.membership += 1;
        self.revoke_all(client, now);
        self.take_requests(client, now);
        self.leave_demand(client);
        self.critical.remove(client);
        for process in self.clients.remove(&client).map(|client| client.processes).unwrap_or_default() {
            self.processes.remove(&process);
            self.withheld.remove(&process);
        }
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
        let entry = self.clients.get_mut(&client).ok_or(Refused::UnknownClient(client))?;
        if self.processes.contains_key(&process) {
            return Ok(());
        }
        self.membership += 1;
        let joins_demand = entry.is_critical() && entry.processes.is_empty();
        entry.processes.insert(process);
        let new = Process {
            client,
            kind,
            waiting: None,
            burst_ns: 0,
            unlimited: false,
            requested: false,
            unreturned: None,
        };
        self.processes.insert(process, new);
        if joins_demand {
            self.enter_demand(client);
            self.critical.check_at = Some(self.now);
        }
        Ok(())
    }

    /// A process has ended, or its connection has. Its grant is returned at once.
    pub fn process_gone(&mut self, process: ProcessId, now: u64) {
        let now = self.at(now);
        let Some(entry) = self.processes.remove(&process) else { return };
        self.membership += 1;
        self.waiting.remove(&process);
        self.withheld.remove(&process);
        self.critical.no_longer_waits(process);
        if let Some(index) = self.grants.iter().position(|g| g.client == entry.client)
            && self.grants[index].leave(process, now, None)
        {
            self.finish_if_empty(index, GrantEnd::ProcessGone);
        }
        if let Some(client) = self.clients.get_mut(&entry.client) {
            client.processes.remove(&process);
            if client.is_critical() && client.processes.is_empty() {
                self.leave_demand(entry.client);
            }
        }
        self.mark_idle_if_quiet(entry.client, now);
        self.update_place(entry.client, now);
    }
}
