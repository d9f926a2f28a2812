//! Requests: each frame is handed to the part that it concerns, by the role of its connection.

use super::EventLoop;
use crate::channel_groups::Announcement;
use crate::clients::{MAX_UNANSWERED, Process};
use crate::connections::{ConnectionId, Outcome, PeerClient, Reason, Role, Transport};
use crate::grants::{UNLIMITED_MS, answer_all};
use crate::measured_memory::{Delay, Reservation};
use crate::shared::Shared;
use sluice_comm::attach::ATTACH_VERSION;
use sluice_comm::{Channel, HandOffStep, Request, RequestBody, ResponseBody};
use sluice_core::ProcessId;
use sluice_core::ledger::{GrantRequest, ReturnKind};
use std::os::fd::OwnedFd;
use tracing::{debug, warn};

impl EventLoop {
    /// Handles one request. Descriptors that it does not take stay in `fds`.
    pub(super) fn handle_request(
        &mut self,
        id: ConnectionId,
        request: &Request,
        fds: &mut Vec<OwnedFd>,
    ) -> Outcome {
        let Some(connection) = self.connections.get(id) else { return Ok(()) };
        let (role, transport) = (connection.role, connection.transport);
        if let RequestBody::Attach { version, channel, used_bytes } = request.body {
            return match (role, transport) {
                (_, Transport::Tcp) => Err(Reason::OutOfOrder("ATTACH over TCP")),
                (Role::New, Transport::Unix) => self.attach(id, request, version, channel, used_bytes, fds),
                _ => self.refuse_second_attach(id, request.id),
            };
        }
        if let (RequestBody::MemUpdate { .. }, Role::Attached(_, Channel::Token)) = (request.body, role) {
            // A process releases by the connection by which it reserves.
            return Err(Reason::OutOfOrder("MEM_UPDATE on the token channel"));
        }
        if let (RequestBody::Contexts { version }, Role::Attached(process, _)) = (request.body, role) {
            return self.replace_contexts(id, process, version, fds);
        }
        if !fds.is_empty() {
            return Err(Reason::BadPayload(
                "a descriptor beside a request other than ATTACH and CONTEXTS".into(),
            ));
        }
        match role {
            Role::Attached(process, _) => self.handle_attached(id, process, request),
            // A pending connection is not read.
            Role::Pending => Ok(()),
            Role::New | Role::Legacy(_) => self.handle_legacy(id, request),
        }
    }

    /// A process has other contexts than before.
    fn replace_contexts(
        &mut self,
        connection: ConnectionId,
        id: ProcessId,
        version: u32,
        fds: &mut Vec<OwnedFd>,
    ) -> Outcome {
        if version != ATTACH_VERSION {
            return Err(Reason::WrongVersion(version));
        }
        if self.shared.processes.get(id).is_none_or(|process| process.token != Some(connection)) {
            return Err(Reason::OutOfOrder("CONTEXTS on the memory channel"));
        }
        let announcement = Announcement::read(fds, &self.shared.io.closer)?;
        self.announce(id, announcement);
        Ok(())
    }

    fn handle_attached(&mut self, id: ConnectionId, process: ProcessId, request: &Request) -> Outcome {
        match request.body {
            RequestBody::Yield { .. } if !self.shared.counts_yield(process) => Ok(()),
            // It held the grant before it became hardware-scheduled. What it has run since is known better here.
            RequestBody::Yield { .. } if self.channel_groups.is_hardware_scheduled(process) => Ok(()),
            RequestBody::Yield { used_ms, overuse_ms } => {
                self.shared.io.record_step(HandOffStep::ReturnRead);
                self.shared.return_grant(process, ms_to_ns(used_ms), ms_to_ns(overuse_ms));
                Ok(())
            }
            RequestBody::Hint { lead_us } => {
                self.stream_gates.announce(process, lead_us, self.shared.io.now(), &self.shared);
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

    /// Decides the first reservations whose wait for a reading has ended.
    pub(super) fn decide_first_reservations(&mut self) {
        for Reservation { connection, request, process, bytes } in
            self.measured_memory.take_due_reservations(self.shared.io.now())
        {
            // A process whose connection has closed learns no result. It connects anew, declares what it holds and reserves again.
            let its = self.shared.processes.get(process);
            let Some(its) = its.filter(|its| its.connections().any(|open| open == connection)) else {
                continue;
            };
            let client = Some(its.client);
            let granted = self.shared.clients.update_memory(process, client, bytes, true);
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
                let Shared { clients, processes, .. } = &self.shared;
                let account = processes.client_of(process).and_then(|client| clients.memory.client(client));
                let account = account.unwrap_or_default();
                let (used, limit) = (account.total(), account.limit);
                self.connections.answer(id, request.id, ResponseBody::MemLimit { used, limit })
            }
            RequestBody::MemUpdate { bytes, allocate } => {
                let reservation = Reservation { connection: id, request: request.id, process, bytes };
                let delay = if allocate {
                    self.measured_memory.delay(reservation, &mut self.shared)
                } else {
                    Delay::None
                };
                match delay {
                    Delay::None => {}
                    Delay::Waits => return Ok(()),
                    Delay::TooMany => {
                        let refused = ResponseBody::MemUpdate { granted: false };
                        return self.connections.answer(id, request.id, refused);
                    }
                }
                let client = self.shared.processes.client_of(process);
                let granted = self.shared.clients.update_memory(process, client, bytes, allocate);
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
        let Some(process) = self.shared.processes.get_mut(id) else { return Ok(()) };
        if process.token != Some(connection) {
            return Err(Reason::OutOfOrder("QUOTA on the memory channel"));
        }
        if process.unanswered.len() >= MAX_UNANSWERED {
            return Err(Reason::OutOfOrder("too many QUOTA requests at once"));
        }
        process.unanswered.push(request);
        let on_page =
            process.pages.as_mut().is_some_and(|pages| std::mem::take(&mut pages.requested_on_page));
        if self.channel_groups.is_hardware_scheduled(id) {
            let effects = answer_all(id, UNLIMITED_MS, &mut self.shared.processes);
            self.carry_out(effects);
        } else if let Some(quota_ms) = self.shared.quota_left_ms(id).filter(|_| on_page) {
            // The request was read from the page, and granted.
            let effects = answer_all(id, quota_ms, &mut self.shared.processes);
            self.carry_out(effects);
        } else if let Err(refused) = self.shared.grants.ledger.request(id, self.shared.io.now(), ask) {
            debug!(%refused, "request for a grant");
        }
        Ok(())
    }

    fn handle_legacy(&mut self, id: ConnectionId, request: &Request) -> Outcome {
        let Some(connection) = self.connections.get(id) else { return Ok(()) };
        let (role, transport) = (connection.role, connection.transport);
        use RequestBody::{Contexts, Detach, Hint, OwnProcess, Yield};
        let body = request.body;
        if matches!(body, Yield { .. } | Hint { .. } | Detach | Contexts { .. } | OwnProcess { .. }) {
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
        let found = match self.connections.client_of(id, &request.name, &self.shared) {
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
        let Shared { clients, processes, .. } = &self.shared;
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
            && self.shared.io.may_log("silence", cause).is_some()
        {
            warn!(peer = %connection.label, "peer gets no answer: {reason}");
        }
    }

    /// A connection of the old protocol counts as a process.
    fn add_legacy(&mut self, id: ConnectionId, found: PeerClient) -> Result<ProcessId, Reason> {
        let PeerClient { client, container } = found;
        let Shared { clients, processes, .. } = &self.shared;
        self.connections.check_client(clients.name(client), processes.due_connections_of(client), 1)?;
        let (label, pid, peer) = match self.connections.get_mut(id) {
            Some(connection) => (connection.label.clone(), connection.pid, connection.peer.take()),
            None => (String::new(), None, None),
        };
        let process = Process {
            pid,
            pidfd: peer.and_then(|peer| peer.pidfd),
            token: Some(id),
            ..Process::new(client, label, container)
        };
        let process = self.shared.processes.add(process, &self.shared.io);
        self.connections.set_role(id, Role::Legacy(process));
        self.stream_gates.process_changed(process);
        self.shared.clients.memory.open(process, client);
        let added = self.shared.grants.ledger.add_process(process, client, ReturnKind::ByTimer);
        added.map_err(|_| Reason::ClientRemoved)?;
        Ok(process)
    }
}

/// Milliseconds of the wire in nanoseconds; saturates. The codec has checked that they are finite and not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float to integer conversion saturates, and the codec lets no negative time through"
)]
fn ms_to_ns(ms: f64) -> u64 {
    (ms * 1e6) as u64
}
