//! The requests of attached processes other than ATTACH, and those of peers of the old protocol.

use super::EventLoop;
use crate::announcement::Payload;
use crate::connections::{Outcome, PeerClient, Role, Transport};
use crate::grants::{UNLIMITED_MS, answer_all};
use crate::measured_memory::{Delay, Reservation};
use crate::processes::{Endpoint, Event, MAX_UNANSWERED, Pages, Process};
use crate::reason::Reason;
use sluice_comm::attach::ATTACH_VERSION;
use sluice_comm::{HandOffStep, Request, RequestBody, ResponseBody, ms_to_ns};
use sluice_core::ledger::{GrantRequest, ReturnKind};
use sluice_core::processes::Protocol;
use sluice_core::{ConnectionId, ProcessId};
use std::os::fd::OwnedFd;
use tracing::{debug, warn};

impl EventLoop {
    /// A process has other contexts than before.
    pub(super) fn replace_contexts(
        &mut self,
        connection: ConnectionId,
        id: ProcessId,
        version: u32,
        fds: &mut Vec<OwnedFd>,
    ) -> Outcome {
        if version != ATTACH_VERSION {
            return Err(Reason::WrongVersion(version));
        }
        if self.processes.get(id).is_none_or(|process| process.token != Some(connection)) {
            return Err(Reason::OutOfOrder("CONTEXTS on the memory channel"));
        }
        let payload = Payload::read(fds, &self.io.closer).map_err(Reason::BadPayload)?;
        self.apply(Event::Announced(id, payload.announcement));
        Ok(())
    }

    /// A request on a channel of an attached process.
    pub(super) fn handle_attached(
        &mut self,
        id: ConnectionId,
        process: ProcessId,
        request: &Request,
    ) -> Outcome {
        match request.body {
            RequestBody::Yield { .. } if !self.counts_yield(process) => Ok(()),
            // It held the grant before it became hardware-scheduled. What it has run since is known better here.
            RequestBody::Yield { .. } if self.processes.is_hardware_scheduled(process) => Ok(()),
            RequestBody::Yield { used_ms, overuse_ms } => {
                self.io.record_step(HandOffStep::ReturnRead);
                let (used_ns, overuse_ns) = (ms_to_ns(used_ms), ms_to_ns(overuse_ms));
                self.grants.return_grant(process, used_ns, overuse_ns, &self.processes, self.io.now());
                Ok(())
            }
            RequestBody::Detach => {
                self.connections.answer(id, request.id, ResponseBody::Detach)?;
                self.drop_connection(id);
                Ok(())
            }
            RequestBody::OwnProcess { pid } => {
                let own = self.is_own_process(process, pid);
                self.connections.answer(id, request.id, ResponseBody::OwnProcess { own })
            }
            _ => self.handle_common(id, process, request),
        }
    }

    /// Whether `pid` is a process of the client of `asking`, as NVML numbers processes for it: in its own pid namespace, or in the host's.
    fn is_own_process(&mut self, asking: ProcessId, pid: u32) -> bool {
        let processes = &mut self.processes;
        let (Ok(pid), Some(client)) = (i32::try_from(pid), processes.client_of(asking)) else { return false };
        // Those of attached processes were read at the ATTACH. Each is read once: a tenant that asks often causes no system calls.
        for id in processes.ids_of_client(client) {
            if let Some(process) = processes.get_mut(id)
                && let Some(of_host) = process.pid
                && process.endpoint.namespace_pids.is_empty()
            {
                process.endpoint.namespace_pids = self.connections.peers.namespace_pids(of_host);
            }
        }
        let depth = processes.get(asking).map_or(0, |process| process.endpoint.namespace_pids.len());
        let in_namespace = |pids: &[i32]| depth.checked_sub(1).and_then(|at| pids.get(at)).copied();
        processes.of_client(client).any(|(_, process)| {
            process.pid == Some(pid) || in_namespace(&process.endpoint.namespace_pids) == Some(pid)
        })
    }

    /// Counts a YIELD frame. `false` if the return was read from the page.
    fn counts_yield(&mut self, id: ProcessId) -> bool {
        let pages = self.processes.get_mut(id).and_then(|process| process.endpoint.pages.as_mut());
        pages.is_none_or(Pages::count_yield)
    }

    /// Decides the reservations whose wait has ended: for a reading, or until the memory of others has left the GPU.
    pub(super) fn decide_delayed_reservations(&mut self) {
        let now = self.io.now();
        let Self { measured_memory, residency, clients, processes, .. } = self;
        let mut due = residency.take_due_reservations(now);
        for reservation in measured_memory.take_due_reservations(now) {
            due.extend(residency.delay(reservation, clients, processes, now));
        }
        for Reservation { connection, request, process, bytes } in due {
            // A process whose connection has closed learns no result. It connects anew, declares what it holds and reserves again.
            let its = self.processes.get(process);
            let Some(its) = its.filter(|its| its.connections().any(|open| open == connection)) else {
                continue;
            };
            let client = Some(its.client);
            let granted = self.clients.update_memory(process, client, bytes, true);
            let answer = ResponseBody::MemUpdate { granted };
            if let Err(reason) = self.connections.answer(connection, request, answer) {
                self.close(connection, &reason);
            }
        }
    }

    /// The requests of the old protocol, from any peer.
    fn handle_common(&mut self, id: ConnectionId, process: ProcessId, request: &Request) -> Outcome {
        match request.body {
            RequestBody::Quota { overuse_ms, next_burst_ms } => {
                let (burst_ns, overuse_ns) = (ms_to_ns(next_burst_ms), ms_to_ns(overuse_ms));
                self.request_grant(id, process, request.id, GrantRequest { burst_ns, overuse_ns })
            }
            RequestBody::MemLimit => {
                let Self { clients, processes, .. } = &*self;
                let account = processes.client_of(process).and_then(|client| clients.memory.client(client));
                let account = account.unwrap_or_default();
                let (used, limit) = (account.total(), account.limit);
                self.connections.answer(id, request.id, ResponseBody::MemLimit { used, limit })
            }
            RequestBody::MemUpdate { bytes, allocate } => {
                let refused = ResponseBody::MemUpdate { granted: false };
                let Self { residency, clients, processes, io, .. } = &mut *self;
                if allocate && !residency.has_place(process, bytes, clients, processes, io) {
                    self.clients.count_denied(self.processes.client_of(process), bytes);
                    return self.connections.answer(id, request.id, refused);
                }
                let reservation = Reservation { connection: id, request: request.id, process, bytes };
                let delay = if allocate {
                    self.measured_memory.delay(reservation, &mut self.processes, self.io.now())
                } else {
                    Delay::None
                };
                match delay {
                    Delay::None if allocate => {
                        let Self { residency, clients, processes, .. } = self;
                        if residency.delay(reservation, clients, processes, self.io.now()).is_none() {
                            return Ok(());
                        }
                    }
                    Delay::None => {}
                    Delay::Waits => return Ok(()),
                    Delay::TooMany => return self.connections.answer(id, request.id, refused),
                }
                let client = self.processes.client_of(process);
                let granted = self.clients.update_memory(process, client, bytes, allocate);
                self.connections.answer(id, request.id, ResponseBody::MemUpdate { granted })
            }
            _ => Err(Reason::OutOfOrder("a request of the extended protocol before ATTACH")),
        }
    }

    fn request_grant(
        &mut self,
        connection: ConnectionId,
        id: ProcessId,
        request: i32,
        ask: GrantRequest,
    ) -> Outcome {
        let Some(process) = self.processes.get_mut(id) else { return Ok(()) };
        if process.token != Some(connection) {
            return Err(Reason::OutOfOrder("QUOTA on the memory channel"));
        }
        if process.endpoint.unanswered.len() >= MAX_UNANSWERED {
            return Err(Reason::OutOfOrder("too many QUOTA requests at once"));
        }
        process.endpoint.unanswered.push(request);
        let on_page =
            process.endpoint.pages.as_mut().is_some_and(|pages| std::mem::take(&mut pages.requested_on_page));
        if self.processes.is_hardware_scheduled(id) {
            let answers = answer_all(id, UNLIMITED_MS, &mut self.processes);
            self.send(answers);
        } else if let Some(quota_ms) = self.grants.quota_left_ms(id, self.io.now()).filter(|_| on_page) {
            // The request was read from the page, and granted.
            let answers = answer_all(id, quota_ms, &mut self.processes);
            self.send(answers);
        } else if let Err(refused) = self.grants.ledger.request(id, self.io.now(), ask) {
            debug!(%refused, "request for a grant");
        }
        Ok(())
    }

    /// A request of a peer that has not attached.
    pub(super) fn handle_legacy(&mut self, id: ConnectionId, request: &Request) -> Outcome {
        let Some(connection) = self.connections.get(id) else { return Ok(()) };
        let (role, transport) = (connection.role, connection.transport);
        use RequestBody::{Contexts, Detach, OwnProcess, Yield};
        let body = request.body;
        if matches!(body, Yield { .. } | Detach | Contexts { .. } | OwnProcess { .. }) {
            return Err(Reason::OutOfOrder("a request of the extended protocol before ATTACH"));
        }
        // Gemini's peers take a closed connection for an answer and run on, so a peer that is not served gets no answer, as from Gemini. A
        // later request of it is looked at again. Its connection is among the first that are closed for others.
        let refuse = |event_loop: &mut Self, reason: Reason| match transport {
            Transport::Tcp => {
                event_loop.log_no_answer(id, &reason);
                Ok(())
            }
            Transport::Unix => Err(reason),
        };
        let found = match self.connections.client_of(id, &request.name, &self.clients, &self.processes) {
            Ok(found) => found,
            Err(reason) => return refuse(self, reason),
        };
        let Role::Legacy(process) = role else {
            return match self.add_legacy(id, found) {
                Ok(process) => self.handle_common(id, process, request),
                Err(reason @ Reason::TooManyOfClient(_)) => refuse(self, reason),
                Err(reason) => Err(reason),
            };
        };
        let Self { clients, processes, .. } = &*self;
        match processes.client_of(process).filter(|first| *first != found.client) {
            Some(first) => {
                let (first, second) = (clients.name(first).to_owned(), clients.name(found.client).to_owned());
                Err(Reason::NameChanged(first, second))
            }
            None => self.handle_common(id, process, request),
        }
    }

    /// Logs once per connection that it gets no answers: its peer may ask again and again.
    fn log_no_answer(&mut self, id: ConnectionId, reason: &Reason) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let cause = connection.party();
        if !std::mem::replace(&mut connection.silence_logged, true)
            && self.io.may_log("silence", cause).is_some()
        {
            warn!(peer = %connection.label, "peer gets no answer: {reason}");
        }
    }

    /// A connection of the old protocol counts as a process.
    fn add_legacy(&mut self, id: ConnectionId, found: PeerClient) -> Result<ProcessId, Reason> {
        let PeerClient { client, container } = found;
        let Self { clients, processes, .. } = &*self;
        self.connections.check_client(client, 1, clients, processes)?;
        let (label, pid, peer) = match self.connections.get_mut(id) {
            Some(connection) => (connection.label.clone(), connection.pid, connection.peer.take()),
            None => (String::new(), None, None),
        };
        let endpoint = Endpoint::new(label, container, peer.and_then(|peer| peer.pidfd));
        let mut process = Process::new(client, None, pid, endpoint);
        (process.protocol, process.token) = (Protocol::Gemini, Some(id));
        let process = self.add_process(process);
        self.connections.set_role(id, Role::Legacy(process));
        let added = self.grants.ledger.add_process(process, client, ReturnKind::ByTimer);
        added.map_err(|_| Reason::ClientRemoved)?;
        Ok(process)
    }
}
