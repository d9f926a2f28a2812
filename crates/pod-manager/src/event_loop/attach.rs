//! ATTACH: a connection becomes a channel of a process.

use super::EventLoop;
use crate::announcement::Payload;
use crate::connections::{ATTACHED_CONNECTIONS, Attach, Outcome, PeerClient, Role};
use crate::party::Party;
use crate::poller::Source;
use crate::processes::{Endpoint, Event, Process};
use crate::reason::Reason;
use nix::sys::epoll::EpollFlags;
use sluice_comm::attach::ATTACH_VERSION;
use sluice_comm::page::PAGE_VERSION;
use sluice_comm::{AttachStatus, Channel, Request, ResponseBody};
use sluice_core::{ConnectionId, ProcessId};
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

    /// Makes a connection the channel of a process of its peer's client, or has it wait until its pod is a client.
    fn attach_or_wait(&mut self, connection: ConnectionId, attach: Attach) -> Outcome {
        let Self { clients, processes, .. } = &*self;
        let found = match self.connections.client_of(connection, &attach.name, clients, processes) {
            Err(Reason::UnknownPod { uid, .. }) if !clients.was_removed(&uid) => {
                return self.connections.hold(connection, attach, uid, &mut self.io);
            }
            found => found?,
        };
        let Attach { request, channel, used_bytes, payload, .. } = attach;
        let Payload { claimed_pid, page_version, announcement } = payload;
        let client = found.client;
        let id = self.process_of(connection, found)?;
        if channel == Channel::Token
            && let Some(process) = self.processes.get_mut(id)
        {
            let (flags, endpoint) = (self.page_flags, &mut process.endpoint);
            endpoint.provide_pages(id, page_version, flags, &self.io).map_err(Reason::Pages)?;
            self.show_slo(client);
        }
        self.apply(Event::ChannelOpened(id, channel, connection));
        self.connections.set_role(connection, Role::Attached(id, channel));
        // After a restart or a silence of the manager a process declares again what it holds, over the channel for memory only: the other one
        // is made by another thread.
        if channel == Channel::Memory {
            self.connections.prefer(connection, &self.io);
            self.clients.memory.redeclare(id, used_bytes);
            self.residency.provide(id, used_bytes, &self.clients, &mut self.processes, &mut self.io);
        }
        debug!(client = self.clients.name(client), claimed_pid, ?channel, used_bytes, "attached");
        // The hook has its answer before the manager opens the descriptors of its groups, so its program does not wait for the driver.
        self.answer_attach(connection, id, channel, request)?;
        if channel == Channel::Token {
            self.apply(Event::Attached(id, announcement));
        }
        Ok(())
    }

    /// The process at the other end: the one that its other connection belongs to, or a new one.
    fn process_of(&mut self, connection: ConnectionId, found: PeerClient) -> Result<ProcessId, Reason> {
        let PeerClient { client, container } = found;
        let its =
            self.connections.get_mut(connection).and_then(|its| Some((its.peer.take()?, its.label.clone())));
        let Some((peer, label)) = its else {
            return Err(Reason::NotAllowed("nothing is known of the peer".into()));
        };
        let key = peer.started.map(|started| (peer.credentials.pid, started));
        let known = key.and_then(|key| self.processes.find(key));
        match known.and_then(|id| Some((id, self.processes.client_of(id)?))) {
            Some((id, of)) if of == client => return Ok(id),
            // A process whose client was removed may attach again as another client's: its pod has a new name.
            Some((id, of)) if self.clients.is_removed(of) => self.forget_process(id, "attaches again"),
            Some((_, of)) => {
                let (first, second) = (self.clients.name(of), self.clients.name(client));
                let why = format!("the process belongs to client {first:?} and claims {second:?}");
                return Err(Reason::NotAllowed(why));
            }
            None => {}
        }
        let Self { clients, processes, io, .. } = self;
        self.connections.check_client(client, ATTACHED_CONNECTIONS, clients, processes)?;
        if let Some(dropped) = io.may_log("attached", Party::Client(client)) {
            info!(client = clients.name(client), peer = %label, dropped, "process attached");
        }
        let pid = Some(peer.credentials.pid).filter(|pid| *pid > 0);
        let namespace_pids = pid.map_or_else(Vec::new, |pid| self.connections.peers.namespace_pids(pid));
        let endpoint = Endpoint { namespace_pids, ..Endpoint::new(label, container, peer.pidfd) };
        Ok(self.add_process(Process::new(client, key, pid, endpoint)))
    }

    /// Takes a process into the table.
    pub(super) fn add_process(&mut self, process: Process) -> ProcessId {
        let id = self.processes.add(process);
        self.process_added(id);
        id
    }

    /// A process is in the table: its end is watched for, and it has a memory account.
    pub(super) fn process_added(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get(id) else { return };
        if let Some(pidfd) = &process.endpoint.pidfd {
            match self.io.poller.add(pidfd, Source::ProcessEnd(id), EpollFlags::EPOLLIN) {
                Ok(()) => self.departed.returned(id, process.key, &self.io),
                Err(error) => {
                    let peer = &process.endpoint.label;
                    warn!(%peer, %error, "cannot watch for the end of a process: only its sockets will report it");
                }
            }
        }
        self.clients.memory.open(id, process.client);
    }

    /// Answers an ATTACH; the pages and the wake-up eventfd go with the token channel's answer, host memory with the
    /// memory channel's.
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
        if channel == Channel::Memory {
            let host_memory = endpoint.and_then(|endpoint| endpoint.host_memory.as_ref());
            fds.extend(host_memory.and_then(|memory| memory.fd()));
        }
        self.connections.answer_with_fds(connection, request, body, &fds)
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
            match self.attach_or_wait(id, attach) {
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
}

pub(super) const fn attach_answer(status: AttachStatus, page_version: u32) -> ResponseBody {
    ResponseBody::Attach { status, page_version }
}
