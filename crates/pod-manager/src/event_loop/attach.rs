//! ATTACH: a connection becomes a channel of a process.

use super::EventLoop;
use super::own_process::namespace_pids;
use crate::channel_groups::Announcement;
use crate::clients::{ATTACHED_CONNECTIONS, Process};
use crate::connections::{Attach, ConnectionId, Outcome, PeerClient, Reason, Role};
use crate::party::Party;
use crate::peer::Peer;
use crate::shared::Shared;
use sluice_comm::attach::ATTACH_VERSION;
use sluice_comm::page::PAGE_VERSION;
use sluice_comm::{AttachStatus, Channel, Request, ResponseBody};
use sluice_core::ledger::{GrantRequest, ReturnKind};
use sluice_core::{ClientId, ProcessId};
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
        let (name, closer) = (request.name, &self.shared.io.closer);
        let attach = if version != ATTACH_VERSION {
            Err(Reason::WrongVersion(version))
        } else if used_bytes > MAX_DECLARED_BYTES {
            Err(Reason::BadPayload(format!("{used_bytes} bytes in use")))
        } else {
            let read = Announcement::read(fds, closer);
            read.map(|announcement| Attach { request: request.id, name, channel, used_bytes, announcement })
        };
        let attached = attach.and_then(|attach| self.attach_or_wait(id, attach));
        attached.inspect_err(|reason| self.answer_refusal(id, request.id, reason))
    }

    fn attach_or_wait(&mut self, id: ConnectionId, attach: Attach) -> Outcome {
        match self.connections.client_of(id, &attach.name, &self.shared) {
            Ok(found) => self.attach_as(id, attach, found),
            Err(Reason::UnknownPod { uid, .. }) if !self.shared.clients.was_removed(&uid) => {
                self.connections.hold(id, attach, uid, &mut self.shared.io)
            }
            Err(reason) => Err(reason),
        }
    }

    /// Attaches the connections whose pods are clients by now, and reads them again.
    pub(super) fn attach_pending(&mut self) {
        let known = self.connections.pending.take_known(|uid| self.shared.clients.find_by_pod(uid).is_some());
        for (id, attach) in known {
            if let Err(error) = self.connections.resume(id, &self.shared.io) {
                warn!(peer = %self.connections.label(id), %error, "cannot poll a connection");
                self.drop_connection(id);
                continue;
            }
            let request = attach.request;
            let found = self.connections.client_of(id, &attach.name, &self.shared);
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
        let Attach { request, channel, used_bytes, announcement, .. } = attach;
        let client = found.client;
        let peer = self.connections.get_mut(connection).and_then(|connection| connection.peer.take());
        let Some(peer) = peer else {
            return Err(Reason::NotAllowed("nothing is known of the peer".into()));
        };
        let id = self.process_of(connection, peer, found)?;
        let Shared { processes, io, .. } = &mut self.shared;
        let flags = processes.page_flags;
        if channel == Channel::Token
            && let Some(process) = processes.get_mut(id)
        {
            process.provide_pages(id, announcement.page_version, flags, io).map_err(Reason::Pages)?;
        }
        self.take_channel(connection, id, channel);
        let clients = &mut self.shared.clients;
        // After a restart or a silence of the manager a process declares again what it holds, over the channel for memory only: the other one
        // is made by another thread.
        if channel == Channel::Memory {
            clients.memory.redeclare(id, used_bytes);
        }
        let claimed_pid = announcement.claimed_pid;
        debug!(client = clients.name(client), claimed_pid, ?channel, used_bytes, "attached");
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
        let mut known = key.and_then(|key| self.shared.processes.find(key));
        let client_of = |id| self.shared.processes.client_of(id);
        // A process whose client was removed may attach again as another client's: its pod has a new name.
        let removed = |id: &ProcessId| client_of(*id).is_some_and(|of| self.shared.clients.is_removed(of));
        if let Some(id) = known.filter(removed) {
            self.forget_process(id, "attaches again");
            known = None;
        }
        let Shared { clients, processes, io, .. } = &mut self.shared;
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
        let connections = processes.due_connections_of(client);
        self.connections.check_client(clients.name(client), connections, ATTACHED_CONNECTIONS)?;
        if let Some(dropped) = io.may_log("attached", Party::Client(client)) {
            info!(client = clients.name(client), peer = %label, dropped, "process attached");
        }
        let pid = Some(peer.credentials.pid).filter(|pid| *pid > 0);
        let process = Process {
            pid,
            namespace_pids: pid
                .map_or_else(Vec::new, |pid| namespace_pids(pid, &mut *self.connections.peers)),
            key,
            pidfd: peer.pidfd,
            ..Process::new(client, label, container)
        };
        let id = processes.add(process, io);
        clients.memory.open(id, client);
        Ok(id)
    }

    /// Makes a connection the channel of a process. A connection that was the channel before is dropped: the process has opened the
    /// channel anew (after exec, for instance), and the end of the old connection will be reported.
    fn take_channel(&mut self, connection: ConnectionId, id: ProcessId, channel: Channel) {
        let Some(process) = self.shared.processes.get_mut(id) else { return };
        if channel == Channel::Token {
            // From here on its hook announces its groups. Those that it announces stay as they are; its new page does not show that yet.
            // The groups of a process that was scheduled from outside after it had attached before stay under control until it has announced
            // them. Otherwise it could attach and detach without end.
            let has_attached = process.key.is_some_and(|key| self.unhooked.has_attached_before(key));
            process.misannounced |= process.unhooked && has_attached;
            process.unhooked = process.misannounced;
        }
        let before = process.channel_mut(channel).replace(connection);
        if channel == Channel::Token {
            if self.keeps_groups(id) {
                self.channel_groups.keep_groups(id, self.shared.io.now());
            } else if before.is_some() {
                self.channel_groups.release(id, &mut self.shared);
            }
            if before.is_some() {
                self.end_token_channel(id);
            }
        }
        self.connections.set_role(connection, Role::Attached(id, channel));
        if channel == Channel::Memory {
            self.connections.prefer(connection, &self.shared.io);
        }
        if let Some(before) = before {
            self.drop_connection(before);
        }
    }

    /// Answers an ATTACH; the pages and the wake-up eventfd go with the token channel's answer.
    fn answer_attach(
        &mut self,
        connection: ConnectionId,
        id: ProcessId,
        channel: Channel,
        request: i32,
    ) -> Outcome {
        let process = self.shared.processes.get(id);
        let pages = process.and_then(|process| process.pages.as_ref());
        let body = attach_answer(AttachStatus::Ok, pages.map_or(PAGE_VERSION, |pages| pages.version));
        let mut fds: Vec<BorrowedFd<'_>> = Vec::with_capacity(3);
        if let Some(pages) = pages.filter(|_| channel == Channel::Token) {
            fds.extend([pages.grant_fd.as_fd(), pages.report_fd.as_fd()]);
            fds.extend(process.and_then(|process| process.wakeups.eventfd.as_ref()).map(AsFd::as_fd));
        }
        self.connections.answer_with_fds(connection, request, body, &fds)
    }

    fn open_token_channel(&mut self, id: ProcessId, client: ClientId, announcement: Announcement) -> Outcome {
        let added = self.shared.grants.ledger.add_process(id, client, ReturnKind::Returns);
        added.map_err(|_| Reason::ClientRemoved)?;
        let is_critical = self.shared.clients.is_critical(client);
        self.stream_gates.process_changed(id);
        self.announce(id, announcement);
        if is_critical {
            // Its launch gate is open before it asks.
            let now = self.shared.io.now();
            let asked = self.shared.grants.ledger.request(id, now, GrantRequest::default());
            asked.map_err(|_| Reason::ClientRemoved)?;
        }
        Ok(())
    }
}

pub(super) const fn attach_answer(status: AttachStatus, page_version: u32) -> ResponseBody {
    ResponseBody::Attach { status, page_version }
}
