//! ATTACH: a connection becomes a channel of a process.

use super::DataPlane;
use super::announcement::Announcement;
use super::frames::{Found, Outcome};
use crate::connection::{Connection, Role};
use crate::peer::Peer;
use crate::process::{Pages, Process};
use crate::reason::Reason;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use sluice_comm::attach::ATTACH_VERSION;
use sluice_comm::page::PAGE_VERSION;
use sluice_comm::{AttachStatus, Channel, Name, Request, Response, ResponseBody};
use sluice_core::ledger::{Ask, Class, PeerKind};
use sluice_core::{ClientId, ProcessId};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tracing::{debug, info};

/// More memory than any GPU has: whoever declares that is out of its mind.
const MOST_DECLARED_BYTES: u64 = 1 << 44;

/// An ATTACH that is right so far: what is left to find out is whose process it is.
pub(super) struct Attaching {
    /// The request's id.
    pub(super) request: i32,
    name: Name,
    channel: Channel,
    used_bytes: u64,
    announcement: Option<Announcement>,
}

impl DataPlane {
    /// Attaches, holds the connection, or answers why not and has it closed.
    pub(super) fn attach(
        &mut self,
        number: u64,
        request: &Request,
        version: u32,
        channel: Channel,
        used_bytes: u64,
        fds: &mut Vec<OwnedFd>,
    ) -> Outcome {
        let attaching = self.check(request, version, channel, used_bytes, fds);
        let attached = attaching.and_then(|mut attaching| match self.admit(number, &mut attaching) {
            Err(Reason::UnknownPod { uid, .. }) => self.hold(number, attaching, uid),
            done => done,
        });
        attached.inspect_err(|reason| self.answer_refusal(number, request.id, reason))
    }

    /// Everything about an ATTACH that does not depend on who sent it.
    fn check(
        &self,
        request: &Request,
        version: u32,
        channel: Channel,
        used_bytes: u64,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Attaching, Reason> {
        if version != ATTACH_VERSION {
            return Err(Reason::WrongVersion { found: version, expected: ATTACH_VERSION });
        }
        if used_bytes > MOST_DECLARED_BYTES {
            return Err(Reason::BadPayload(format!("{used_bytes} bytes in use")));
        }
        let announcement = Some(Announcement::read(fds, &self.closer)?);
        Ok(Attaching { request: request.id, name: request.name, channel, used_bytes, announcement })
    }

    /// Answers why not and closes.
    pub(super) fn refuse_attach(&mut self, number: u64, request: i32, reason: &Reason) {
        self.answer_refusal(number, request, reason);
        self.close(number, reason);
    }

    fn answer_refusal(&mut self, number: u64, request: i32, reason: &Reason) {
        let status = match reason {
            Reason::UnknownClient(_) | Reason::UnknownPod { .. } | Reason::TooManyHeld(_) => {
                AttachStatus::UnknownClient
            }
            Reason::WrongVersion { .. } => AttachStatus::WrongVersion,
            Reason::BadPayload(_) => AttachStatus::BadPayload,
            _ => AttachStatus::NotAllowed,
        };
        // The reason for closing is worth more than the answer's.
        let _ = self.answer(number, request, ResponseBody::Attach { status, page_version: PAGE_VERSION });
    }

    pub(super) fn attach_twice(&mut self, number: u64, id: i32) -> Outcome {
        let status = AttachStatus::NotAllowed;
        self.answer(number, id, ResponseBody::Attach { status, page_version: PAGE_VERSION })?;
        Err(Reason::NotAllowed("a second ATTACH, or one after requests of the old protocol".into()))
    }

    /// Makes a connection the channel of a process, if there is such a client.
    pub(super) fn admit(&mut self, number: u64, attaching: &mut Attaching) -> Outcome {
        let &mut Attaching { request, channel, used_bytes, ref announcement, .. } = attaching;
        let (claimed_pid, version) =
            announcement.as_ref().map_or((0, PAGE_VERSION), |a| (a.claimed_pid, a.page_version));
        let found = self.who(number, &attaching.name)?;
        let client = found.client;
        let connection = self.connections.get_mut(&number);
        let Some(peer) = connection.and_then(|connection| connection.peer.take()) else {
            return Err(Reason::NotAllowed("nothing is known of the peer".into()));
        };
        let id = self.process_of(number, peer, found)?;
        if channel == Channel::Token {
            self.lay_out_pages(id, version)?;
        }
        self.take_channel(number, id, channel);
        // What a process holds is told again after a manager's restart. While its memory channel is open the manager
        // knows better, because a reservation may be under way there.
        let process = self.processes.get(&id);
        if channel == Channel::Memory || process.is_some_and(|process| process.memory.is_none()) {
            self.memory.redeclare(id, used_bytes);
        }
        debug!(client = self.clients.name(client), claimed_pid, ?channel, used_bytes, "attached");
        self.welcome(number, id, channel, request)?;
        if channel == Channel::Token {
            self.open_token_channel(id, client, attaching.announcement.take())?;
        }
        Ok(())
    }

    /// The process at the other end: the one that its other connection belongs to, or a new one.
    fn process_of(&mut self, number: u64, peer: Peer, found: Found) -> Result<ProcessId, Reason> {
        let Found { client, container } = found;
        let key = peer.started.map(|started| (peer.credentials.pid, started));
        self.forget_if_left_out(key);
        let known = key.and_then(|key| self.by_peer.get(&key).copied());
        if let Some((id, process)) = known.and_then(|id| Some((id, self.processes.get(&id)?))) {
            return if process.client == client {
                Ok(id)
            } else {
                let (first, second) = (self.clients.name(process.client), self.clients.name(client));
                Err(Reason::NotAllowed(format!(
                    "the process belongs to client {first:?} and claims {second:?}"
                )))
            };
        }
        let id = ProcessId(self.next_number(true));
        let label = self.connections.get(&number).map(Connection::to_string).unwrap_or_default();
        info!(client = self.clients.name(client), peer = %label, "process attached");
        self.memory.open(id, client);
        let process = Process {
            pid: Some(peer.credentials.pid).filter(|pid| *pid > 0),
            key,
            pidfd: peer.pidfd,
            ..Process::new(client, label, container)
        };
        self.keep_process(id, process);
        Ok(id)
    }

    /// A process whose client was removed may come back as another client's: its pod was named again.
    fn forget_if_left_out(&mut self, key: Option<(i32, u64)>) {
        let known = key.and_then(|key| self.by_peer.get(&key).copied());
        let client = known.and_then(|id| self.processes.get(&id)).map(|process| process.client);
        let left_out = client.and_then(|client| self.clients.get(client)).is_some_and(|c| c.left_out);
        if let Some(id) = known.filter(|_| left_out) {
            self.forget_process(id, "comes back");
        }
    }

    /// Makes a connection the channel of a process. One that was there before is dropped: the process has opened the
    /// channel anew (after exec, for instance), and the end of the old connection is on its way.
    fn take_channel(&mut self, number: u64, id: ProcessId, channel: Channel) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if channel == Channel::Token && std::mem::take(&mut process.adopted) {
            // From here on it speaks for itself. Groups that it announces go on as they are; its page is yet to say so.
            process.steered = false;
        }
        let slot = match channel {
            Channel::Token => &mut process.token,
            Channel::Memory => &mut process.memory,
        };
        let before = slot.replace(number);
        if before.is_some() && channel == Channel::Token {
            process.close_token_channel();
            self.unsteer(id);
            self.forget_stuck_groups(id);
            self.tokens.process_gone(id, self.clock.now_ns());
        }
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.role = Role::Attached(id, channel);
        }
        if let Some(before) = before {
            self.drop_connection(before);
        }
    }

    /// Answers an ATTACH; the pages go with the token channel's answer.
    fn welcome(&mut self, number: u64, id: ProcessId, channel: Channel, request: i32) -> Outcome {
        let process = self.processes.get(&id);
        let pages = process.and_then(|process| process.pages.as_ref());
        let page_version = pages.map_or(PAGE_VERSION, |pages| pages.version);
        let body = ResponseBody::Attach { status: AttachStatus::Ok, page_version };
        let response = Response { id: request, body };
        let Some(connection) = self.connections.get(&number) else { return Ok(()) };
        let mut fds: Vec<BorrowedFd<'_>> = Vec::with_capacity(3);
        if let Some(pages) = pages.filter(|_| channel == Channel::Token) {
            fds.extend([pages.grant_fd.as_fd(), pages.report_fd.as_fd()]);
            fds.extend(process.and_then(|process| process.doorbell.as_ref()).map(AsFd::as_fd));
        }
        connection.send(&response, &fds)
    }

    /// Pages that the process's hook understands, and a doorbell if it knows what that is for.
    fn lay_out_pages(&mut self, id: ProcessId, version: u32) -> Outcome {
        let now = self.clock.now_ns();
        let Some(process) = self.processes.get(&id) else { return Ok(()) };
        if process.pages.as_ref().is_some_and(|pages| pages.version == version) {
            return Ok(());
        }
        let pages = Pages::create(version, self.flags, now).map_err(Reason::Pages)?;
        silence(&self.epoll, process);
        let doorbell = (version == PAGE_VERSION).then(|| self.hang_doorbell(id)).flatten();
        if let Some(process) = self.processes.get_mut(&id) {
            process.pages = Some(pages);
            process.doorbell = doorbell;
            // The new page does not ask for it.
            process.armed = None;
        }
        Ok(())
    }

    /// A doorbell for a process, which is listened to; without one it is looked at from time to time.
    fn hang_doorbell(&self, id: ProcessId) -> Option<OwnedFd> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let doorbell = OwnedFd::from(EventFd::from_value_and_flags(0, flags).ok()?);
        // Each write is an edge, whether what was written before was read or not.
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, super::DOORBELL | id.0);
        self.epoll.add(&doorbell, event).ok()?;
        Some(doorbell)
    }

    fn open_token_channel(
        &mut self,
        id: ProcessId,
        client: ClientId,
        announcement: Option<Announcement>,
    ) -> Outcome {
        self.tokens.add_process(id, client, PeerKind::Returns).map_err(|_| Reason::ClientRemoved)?;
        let is_critical =
            self.clients.get(client).is_some_and(|c| c.definition.spec.class == Class::LatencyCritical);
        if let Some(announcement) = announcement {
            self.announce(id, announcement);
        }
        if is_critical {
            // Its gate is open before it asks.
            let asked = self.tokens.request(id, self.clock.now_ns(), Ask::default());
            asked.map_err(|_| Reason::ClientRemoved)?;
        }
        Ok(())
    }
}

/// A process's doorbell is not listened to any more. To close it would not do: whoever has a copy would go on being heard.
pub(super) fn silence(epoll: &Epoll, process: &Process) {
    if let Some(doorbell) = &process.doorbell {
        let _ = epoll.delete(doorbell);
    }
}
