//! ATTACH: a connection becomes a channel of a process.

use super::EventLoop;
use crate::channel_groups::Announcement;
use crate::clients::Process;
use crate::connections::{Attach, ConnectionId, Outcome, PeerClient, Reason, Role};
use crate::peer::Peer;
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
        let attach = self.read_attach(request, version, channel, used_bytes, fds);
        let attached = attach.and_then(|attach| self.attach_or_wait(id, attach));
        attached.inspect_err(|reason| self.answer_refusal(id, request.id, reason))
    }

    /// Checks what does not depend on the sender of an ATTACH.
    fn read_attach(
        &self,
        request: &Request,
        version: u32,
        channel: Channel,
        used_bytes: u64,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Attach, Reason> {
        if version != ATTACH_VERSION {
            return Err(Reason::WrongVersion { found: version, expected: ATTACH_VERSION });
        }
        if used_bytes > MAX_DECLARED_BYTES {
            return Err(Reason::BadPayload(format!("{used_bytes} bytes in use")));
        }
        let announcement = Announcement::read(fds, &self.io.closer)?;
        Ok(Attach { request: request.id, name: request.name, channel, used_bytes, announcement })
    }

    fn attach_or_wait(&mut self, id: ConnectionId, attach: Attach) -> Outcome {
        match self.connections.client_of(id, &attach.name, &self.clients, &self.processes) {
            Ok(found) => self.attach_as(id, attach, found),
            Err(Reason::UnknownPod { uid, .. }) if self.clients.was_removed(&uid) => {
                Err(Reason::UnknownPod { uid, waited_ms: 0 })
            }
            Err(Reason::UnknownPod { uid, .. }) => self.connections.hold(id, attach, uid, &self.io),
            Err(reason) => Err(reason),
        }
    }

    /// Attaches the connections whose pods are clients by now, and reads them again.
    pub(super) fn attach_pending(&mut self) {
        let known = self.connections.pending.take_known(|uid| self.clients.has_pod(uid));
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
                Ok(()) => self.receive(id),
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
            Reason::WrongVersion { .. } => AttachStatus::WrongVersion,
            Reason::BadPayload(_) => AttachStatus::BadPayload,
            _ => AttachStatus::NotAllowed,
        };
        // The connection is closed in any case, and the reason for that says more than a failure to answer.
        let _ =
            self.connections.answer(id, request, ResponseBody::Attach { status, page_version: PAGE_VERSION });
    }

    pub(super) fn refuse_second_attach(&mut self, id: ConnectionId, request: i32) -> Outcome {
        let status = AttachStatus::NotAllowed;
        let body = ResponseBody::Attach { status, page_version: PAGE_VERSION };
        self.connections.answer(id, request, body)?;
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
        if channel == Channel::Token {
            let flags = self.processes.page_flags;
            if let Some(process) = self.processes.get_mut(id) {
                let provided = process.provide_pages(id, announcement.page_version, flags, &self.io);
                provided.map_err(Reason::Pages)?;
            }
        }
        self.take_channel(connection, id, channel);
        // After a restart of the manager a process declares again what it holds. While its memory channel is open the manager knows
        // better, because a reservation may be under way there.
        let process = self.processes.get(id);
        if channel == Channel::Memory || process.is_some_and(|process| process.memory.is_none()) {
            self.clients.memory.redeclare(id, used_bytes);
        }
        let claimed_pid = announcement.claimed_pid;
        debug!(client = self.clients.name(client), claimed_pid, ?channel, used_bytes, "attached");
        self.answer_attach(connection, id, channel, request)?;
        if channel == Channel::Token {
            self.open_token_channel(id, client, announcement)?;
        }
        Ok(())
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
        // A process whose client was removed may attach again as another client's: its pod has a new name.
        let removed = |id: &ProcessId| {
            self.processes.client_of(*id).is_some_and(|client| self.clients.is_removed(client))
        };
        if let Some(id) = known.filter(removed) {
            self.forget_process(id, "attaches again");
            known = None;
        }
        if let Some((id, process)) = known.and_then(|id| Some((id, self.processes.get(id)?))) {
            return if process.client == client {
                Ok(id)
            } else {
                let (first, second) = (self.clients.name(process.client), self.clients.name(client));
                Err(Reason::NotAllowed(format!(
                    "the process belongs to client {first:?} and claims {second:?}"
                )))
            };
        }
        let label = self.connections.label(connection);
        info!(client = self.clients.name(client), peer = %label, "process attached");
        let process = Process {
            pid: Some(peer.credentials.pid).filter(|pid| *pid > 0),
            key,
            pidfd: peer.pidfd,
            ..Process::new(client, label, container)
        };
        let id = self.processes.add(process, &self.io);
        self.clients.memory.open(id, client);
        Ok(id)
    }

    /// Makes a connection the channel of a process. A connection that was the channel before is dropped: the process has opened the
    /// channel anew (after exec, for instance), and the end of the old connection will be reported.
    fn take_channel(&mut self, connection: ConnectionId, id: ProcessId, channel: Channel) {
        let Some(process) = self.processes.get_mut(id) else { return };
        let slot = match channel {
            Channel::Token => {
                // From here on its hook announces its groups. Those that it announces stay as they are; its new page does not show
                // that yet.
                process.unhooked = false;
                &mut process.token
            }
            Channel::Memory => &mut process.memory,
        };
        let before = slot.replace(connection);
        if before.is_some() && channel == Channel::Token {
            process.close_token_channel();
            self.release_groups(id);
            let effects = self.channel_groups.forget_stuck(id);
            self.carry_out(effects);
            self.grants.ledger.process_gone(id, self.io.now());
        }
        self.connections.set_role(connection, Role::Attached(id, channel));
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
        let process = self.processes.get(id);
        let pages = process.and_then(|process| process.pages.as_ref());
        let page_version = pages.map_or(PAGE_VERSION, |pages| pages.version);
        let body = ResponseBody::Attach { status: AttachStatus::Ok, page_version };
        let mut fds: Vec<BorrowedFd<'_>> = Vec::with_capacity(3);
        if let Some(pages) = pages.filter(|_| channel == Channel::Token) {
            fds.extend([pages.grant_fd.as_fd(), pages.report_fd.as_fd()]);
            fds.extend(process.and_then(|process| process.wakeups.eventfd.as_ref()).map(AsFd::as_fd));
        }
        self.connections.answer_with(connection, request, body, &fds)
    }

    fn open_token_channel(&mut self, id: ProcessId, client: ClientId, announcement: Announcement) -> Outcome {
        let added = self.grants.ledger.add_process(id, client, ReturnKind::Returns);
        added.map_err(|_| Reason::ClientRemoved)?;
        let is_critical = self.clients.is_critical(client);
        self.announce(id, announcement);
        if is_critical {
            // Its launch gate is open before it asks.
            let asked = self.grants.ledger.request(id, self.io.now(), GrantRequest::default());
            asked.map_err(|_| Reason::ClientRemoved)?;
        }
        Ok(())
    }
}
