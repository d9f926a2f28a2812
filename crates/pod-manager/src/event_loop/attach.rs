//! ATTACH: a connection becomes a channel of a process.

use super::EventLoop;
use super::own_process::namespace_pids;
use crate::announcement::{Descriptors, Payload};
use crate::connections::{Attach, Outcome, PeerClient, Role};
use crate::party::Party;
use crate::peer::Peer;
use crate::processes::{ATTACHED_CONNECTIONS, Endpoint, Event, Process, due_connections};
use crate::reason::Reason;
use sluice_comm::attach::ATTACH_VERSION;
use sluice_comm::page::PAGE_VERSION;
use sluice_comm::{AttachStatus, Channel, Request, ResponseBody};
use sluice_core::ledger::{GrantRequest, ReturnKind};
use sluice_core::processes::Announcement;
use sluice_core::{ClientId, ConnectionId, ProcessId};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tracing::{debug, info, warn};

/// More memory than any GPU has. A larger declaration is refused.
const MAX_DECLARED_BYTES: u64 = 1 << 44;

impl EventLoop {
    /// Attaches, makes the connection wait for its pod, or answers with the reason for the refusal and has the connection closed.
    pub(super) fn attach(
        &mut self,
        id: ConnectionId,
        request: &Request,
        version: u32,
        channel: Channel,
        used_bytes: u64,
        fds: &mut Vec<OwnedFd>,
    ) -> Outcome {
        let (name, closer) = (request.name, &self.io.closer);
        let attach = if version != ATTACH_VERSION {
            Err(Reason::WrongVersion(version))
        } else if used_bytes > MAX_DECLARED_BYTES {
            Err(Reason::BadPayload(format!("{used_bytes} bytes in use")))
        } else {
            let read = Payload::read(fds, closer).map_err(Reason::BadPayload);
            read.map(|payload| Attach { request: request.id, name, channel, used_bytes, payload })
        };
        let attached = attach.and_then(|attach| self.attach_or_wait(id, attach));
        attached.inspect_err(|reason| self.answer_refusal(id, request.id, reason))
    }

    fn attach_or_wait(&mut self, id: ConnectionId, attach: Attach) -> Outcome {
        match self.connections.client_of(id, &attach.name, &self.clients, &self.processes) {
            Ok(found) => self.attach_as(id, attach, found),
            Err(Reason::UnknownPod { uid, .. }) if !self.clients.was_removed(&uid) => {
                self.connections.hold(id, attach, uid, &mut self.io)
            }
            Err(reason) => Err(reason),
        }
    }

    /// Attaches the connections whose pods are clients by now, and reads them again.
    pub(super) fn attach_pending(&mut self) {
        let known = self.connections.pending.take_known(|uid| self.clients.find_by_pod(uid).is_some());
        for (id, attach) in known {
            if let Err(error) = self.connections.resume(id, &self.io) {
                warn!(peer = %self.connections.label(id), %error, "cannot poll a connection");
                self.drop_connection(id);
                continue;
            }
            let request = attach.request;
            let found = self.connections.client_of(id, &attach.name, &self.clients, &self.processes);
            match found.and_then(|found| self.attach_as(id, attach, found)) {
                // Frames that followed the ATTACH may have been read with it.
                Ok(()) => self.queue(id),
                Err(reason) => self.refuse_attach(id, request, &reason),
            }
        }
    }

    /// Answers with the reason and closes.
    pub(super) fn refuse_attach(&mut self, id: ConnectionId, request: i32, reason: &Reason) {
        self.answer_refusal(id, request, reason);
        self.close(id, reason);
    }

    fn answer_refusal(&mut self, id: ConnectionId, request: i32, reason: &Reason) {
        let status = match reason {
            Reason::UnknownClient(_) | Reason::UnknownPod { .. } | Reason::TooManyPending(_) => {
                AttachStatus::UnknownClient
            }
            Reason::WrongVersion(_) => AttachStatus::WrongVersion,
            Reason::BadPayload(_) => AttachStatus::BadPayload,
            reason if reason.is_lack_of_room() => AttachStatus::NoRoom,
            _ => AttachStatus::NotAllowed,
        };
        // The connection is closed in any case, and the reason for that says more than a failure to answer.
        let _ = self.connections.answer(id, request, attach_answer(status, PAGE_VERSION));
    }

    pub(super) fn refuse_second_attach(&mut self, id: ConnectionId, request: i32) -> Outcome {
        self.connections.answer(id, request, attach_answer(AttachStatus::NotAllowed, PAGE_VERSION))?;
        Err(Reason::NotAllowed("a second ATTACH, or one after requests of the old protocol".into()))
    }

    /// Makes a connection the channel of a process of this client.
    fn attach_as(&mut self, connection: ConnectionId, attach: Attach, found: PeerClient) -> Outcome {
        let Attach { request, channel, used_bytes, payload, .. } = attach;
        let Payload { claimed_pid, page_version, announcement } = payload;
        let client = found.client;
        let peer = self.connections.get_mut(connection).and_then(|connection| connection.peer.take());
        let Some(peer) = peer else {
            return Err(Reason::NotAllowed("nothing is known of the peer".into()));
        };
        let id = self.process_of(connection, peer, found)?;
        if channel == Channel::Token
            && let Some(process) = self.processes.get_mut(id)
        {
            let (flags, endpoint) = (self.page_flags, &mut process.endpoint);
            endpoint.provide_pages(id, page_version, flags, &self.io).map_err(Reason::Pages)?;
        }
        self.apply(Event::ChannelOpened(id, channel, connection));
        self.connections.set_role(connection, Role::Attached(id, channel));
        // After a restart or a silence of the manager a process declares again what it holds, over the channel for memory only: the other one
        // is made by another thread.
        if channel == Channel::Memory {
            self.connections.prefer(connection, &self.io);
            self.clients.memory.redeclare(id, used_bytes);
        }
        debug!(client = self.clients.name(client), claimed_pid, ?channel, used_bytes, "attached");
        self.answer_attach(connection, id, channel, request)?;
        if channel == Channel::Token { self.open_token_channel(id, client, announcement) } else { Ok(()) }
    }

    /// The process at the other end: the one that its other connection belongs to, or a new one.
    fn process_of(
        &mut self,
        connection: ConnectionId,
        peer: Peer,
        found: PeerClient,
    ) -> Result<ProcessId, Reason> {
        let PeerClient { client, container } = found;
        let key = peer.started.map(|started| (peer.credentials.pid, started));
        let mut known = key.and_then(|key| self.processes.find(key));
        let client_of = |id| self.processes.client_of(id);
        // A process whose client was removed may attach again as another client's: its pod has a new name.
        let removed = |id: &ProcessId| client_of(*id).is_some_and(|of| self.clients.is_removed(of));
        if let Some(id) = known.filter(removed) {
            self.forget_process(id, "attaches again");
            known = None;
        }
        let Self { clients, processes, io, .. } = self;
        match known.and_then(|id| Some((id, processes.client_of(id)?))) {
            Some((id, of)) if of == client => return Ok(id),
            Some((_, of)) => {
                let (first, second) = (clients.name(of), clients.name(client));
                let why = format!("the process belongs to client {first:?} and claims {second:?}");
                return Err(Reason::NotAllowed(why));
            }
            None => {}
        }
        let label = self.connections.label(connection);
        let connections = due_connections(processes, client);
        self.connections.check_client(clients.name(client), connections, ATTACHED_CONNECTIONS)?;
        if let Some(dropped) = io.may_log("attached", Party::Client(client)) {
            info!(client = clients.name(client), peer = %label, dropped, "process attached");
        }
        let pid = Some(peer.credentials.pid).filter(|pid| *pid > 0);
        let namespace_pids =
            pid.map_or_else(Vec::new, |pid| namespace_pids(pid, &mut *self.connections.peers));
        let endpoint = Endpoint { namespace_pids, ..Endpoint::new(label, container, peer.pidfd) };
        Ok(self.add_process(Process::new(client, key, pid, endpoint)))
    }

    pub(super) fn add_process(&mut self, process: Process) -> ProcessId {
        let id = self.processes.add(process);
        self.process_added(id);
        id
    }

    /// Answers an ATTACH; the pages and the wake-up eventfd go with the token channel's answer.
    fn answer_attach(
        &mut self,
        connection: ConnectionId,
        id: ProcessId,
        channel: Channel,
        request: i32,
    ) -> Outcome {
        let process = self.processes.get(id);
        let endpoint = process.map(|process| &process.endpoint);
        let pages = endpoint.and_then(|endpoint| endpoint.pages.as_ref());
        let body = attach_answer(AttachStatus::Ok, pages.map_or(PAGE_VERSION, |pages| pages.version));
        let mut fds: Vec<BorrowedFd<'_>> = Vec::with_capacity(3);
        if let Some(pages) = pages.filter(|_| channel == Channel::Token) {
            fds.extend([pages.grant_fd.as_fd(), pages.report_fd.as_fd()]);
            fds.extend(endpoint.and_then(|endpoint| endpoint.wakeups.eventfd.as_ref()).map(AsFd::as_fd));
        }
        self.connections.answer_with_fds(connection, request, body, &fds)
    }

    fn open_token_channel(
        &mut self,
        id: ProcessId,
        client: ClientId,
        announcement: Announcement<Descriptors>,
    ) -> Outcome {
        let added = self.grants.ledger.add_process(id, client, ReturnKind::Returns);
        added.map_err(|_| Reason::ClientRemoved)?;
        let is_critical = self.clients.is_critical(client);
        self.stream_gates.process_changed(id);
        self.apply(Event::Announced(id, announcement));
        if is_critical {
            // Its launch gate is open before it asks.
            let now = self.io.now();
            let asked = self.grants.ledger.request(id, now, GrantRequest::default());
            asked.map_err(|_| Reason::ClientRemoved)?;
        }
        Ok(())
    }
}

pub(super) const fn attach_answer(status: AttachStatus, page_version: u32) -> ResponseBody {
    ResponseBody::Attach { status, page_version }
}
