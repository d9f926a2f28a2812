//! One connection: 80-byte requests out, 40-byte answers in.
//!
//! The child of a fork can close it without a lock.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering::*};
use std::time::Duration;

use sluice_comm::attach::ATTACH_VERSION;
use sluice_comm::page::{OLDEST_PAGE_VERSION, PAGE_VERSION};
use sluice_comm::{
    AttachStatus, Channel, FrameReader, HOOK_TIMEOUT, RESPONSE_LEN, Request, RequestBody, RequestKind,
    Response, ResponseBody, SILENCE_NS, UNREAD_REQUEST_ID,
};
use sluice_hook_core::platform::LinkError;
use sluice_sys::clock::monotonic_ns;
use sluice_sys::socket::{connect_within, recv_with_fds, send_with_fds};

use super::address::Address;
use super::answer_limit::AnswerLimit;
use super::answer_wait::{Asleep, Wait, wait_for_answer};
use super::identity::{ClientIdentity, Payload};
use crate::descriptor::Descriptor;
use crate::leaked::Leaked;
use crate::log::above_standard;
use crate::manager_presence::ManagerPresence;
use crate::polling::has_ended_within;

/// How long connecting to a TCP manager may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of successive answers to abandoned requests, which are skipped.
const MAX_STALE_ANSWERS: usize = 16;

/// A connection, or none.
#[derive(Debug)]
pub(super) struct Socket {
    fd: Descriptor,
    /// The presence of the manager at the other end; none as long as no token connection to it is known.
    presence: Leaked<ManagerPresence>,
    next_id: AtomicI32,
}

impl Socket {
    pub(super) const fn closed() -> Self {
        Self { fd: Descriptor::none(), presence: Leaked::none(), next_id: AtomicI32::new(0) }
    }

    /// How long the manager's heartbeat counts; `None` if there is none to read.
    pub(super) fn presence_left_ns(&self) -> Option<u64> {
        self.presence.get()?.left_ns()
    }

    pub(super) fn set_presence(&self, presence: &'static ManagerPresence) {
        self.presence.share(presence);
    }

    /// Connects; an existing connection is closed.
    ///
    /// # Errors
    /// [`LinkError::Silent`] if the manager accepts no connections: a manager that is stopped has a full queue of them.
    pub(super) fn connect(&self, address: &Address) -> Result<(), LinkError> {
        self.close();
        let stream: OwnedFd = match address {
            Address::Unix(path) => connect_within(path, Duration::from_nanos(SILENCE_NS)),
            Address::Tcp(ip, port) => connect_tcp(ip, *port),
        }
        .map_err(connect_error)?;
        let ours = above_standard(stream.as_fd()).ok_or(LinkError::Gone)?;
        self.fd.set(ours);
        Ok(())
    }

    /// Attaches to a pod-manager; returns the descriptors that it sent, grant page first. While the pod is not known yet, waits for as long
    /// as the manager reports that.
    pub(super) fn attach(
        &self,
        identity: &ClientIdentity,
        channel: Channel,
        used_bytes: u64,
        payload: &Payload,
    ) -> Result<Vec<OwnedFd>, LinkError> {
        let body = RequestBody::Attach { version: ATTACH_VERSION, channel, used_bytes };
        let begun_ns = monotonic_ns();
        // A manager without room has answered and closed the connection before it is asked.
        let id = self.send_payload(identity, body, payload).or_else(|error| match error {
            LinkError::Gone if self.has_ended() => Ok(UNREAD_REQUEST_ID),
            other => Err(other),
        })?;
        loop {
            let (answer, pages) = self.answer(id, RequestKind::Attach, payload.answer_limit)?;
            let ResponseBody::Attach { status, page_version } = answer else { return Err(LinkError::Gone) };
            match status {
                AttachStatus::Pending if elapsed_since(begun_ns) < HOOK_TIMEOUT => {}
                AttachStatus::Ok if (OLDEST_PAGE_VERSION..=PAGE_VERSION).contains(&page_version) => {
                    return Ok(pages);
                }
                AttachStatus::Ok | AttachStatus::Pending => return Err(LinkError::Gone),
                AttachStatus::NoRoom => return Err(LinkError::NoRoom),
                refused => return Err(LinkError::NotAdmitted { status: refused as i32 }),
            }
        }
    }

    /// Sends a request with a payload and its descriptors; returns its number.
    pub(super) fn send_payload(
        &self,
        identity: &ClientIdentity,
        body: RequestBody,
        payload: &Payload,
    ) -> Result<i32, LinkError> {
        let bytes = sluice_sys::payload::pack("sluice-attach", &payload.bytes).map_err(link_error)?;
        let fds: Vec<_> = std::iter::once(&bytes).chain(&payload.fds).map(AsFd::as_fd).collect();
        let (id, frame) = self.request(identity, body)?;
        self.with(|fd| {
            let sent = send_with_fds(fd, &frame, &fds).map_err(link_error)?;
            self.send_rest(fd, &frame, sent)
        })?;
        Ok(id)
    }

    /// Numbers and encodes a request.
    pub(super) fn request(
        &self,
        identity: &ClientIdentity,
        body: RequestBody,
    ) -> Result<(i32, [u8; 80]), LinkError> {
        let id = self.next_id.fetch_add(1, Relaxed);
        let frame = Request { name: identity.name, id, body }.encode().map_err(|_| LinkError::Gone)?;
        Ok((id, frame))
    }

    pub(super) fn send(&self, frames: &[u8]) -> Result<(), LinkError> {
        self.with(|fd| self.send_rest(fd, frames, 0))
    }

    /// Waits for the answer to a request, within the limit and only while the manager runs.
    pub(super) fn answer(
        &self,
        id: i32,
        kind: RequestKind,
        limit: AnswerLimit,
    ) -> Result<(ResponseBody, Vec<OwnedFd>), LinkError> {
        // Such a wait ends with an answer only.
        self.answer_or_arrival(id, kind, limit, &Asleep)?.ok_or(LinkError::Gone)
    }

    /// As [`Self::answer`], for a thread that may poll. `None` if what it waits for has come in another way: the answer is skipped later.
    pub(super) fn answer_or_arrival(
        &self,
        id: i32,
        kind: RequestKind,
        limit: AnswerLimit,
        wait: &impl Wait,
    ) -> Result<Option<(ResponseBody, Vec<OwnedFd>)>, LinkError> {
        let begun_ns = monotonic_ns();
        for _ in 0..MAX_STALE_ANSWERS {
            let presence_left_ns = || self.presence_left_ns();
            let frame = self
                .with(|fd| read_frame(fd, || wait_for_answer(fd, presence_left_ns, begun_ns, limit, wait)))?;
            let Some((frame, fds)) = frame else { return Ok(None) };
            let Response { id: of, body } = Response::decode(&frame, kind).map_err(|_| LinkError::Gone)?;
            if of == id || of == UNREAD_REQUEST_ID {
                return Ok(Some((body, fds)));
            }
        }
        Err(LinkError::Gone)
    }

    /// Sends one request and waits for its answer.
    pub(super) fn round_trip(
        &self,
        identity: &ClientIdentity,
        body: RequestBody,
        limit: AnswerLimit,
    ) -> Result<ResponseBody, LinkError> {
        let kind = Request { name: identity.name, id: 0, body }.body.kind();
        let (id, frame) = self.request(identity, body)?;
        let answer = self.send(&frame).and_then(|()| self.answer(id, kind, limit));
        // After a failure in the middle of an exchange, later bytes on this connection have no defined meaning.
        answer.map(|(body, _)| body).inspect_err(|_| self.close())
    }

    /// Whether the peer still has the connection open, without waiting.
    pub(super) fn is_alive(&self) -> bool {
        let Some(fd) = self.fd.checked() else { return false };
        let mut byte = 0u8;
        // SAFETY: one byte is writable. If the program closes the descriptor at this moment, this fails or peeks at a byte.
        let seen = unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT) };
        match seen {
            0 => false,
            1.. => true,
            _ => matches!(
                io::Error::last_os_error().kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ),
        }
    }

    /// Whether the peer has closed the connection, although it may have left answers to read.
    pub(super) fn has_ended(&self) -> bool {
        self.fd.checked().is_none_or(|fd| has_ended_within(fd, 0))
    }

    /// A copy of the descriptor, for a thread that waits for the end of the connection.
    pub(super) fn duplicate(&self) -> Option<OwnedFd> {
        self.with(|fd| above_standard(fd).ok_or(LinkError::Gone)).ok()
    }

    /// Shuts the connection down for all copies of the descriptor. The descriptor itself stays open until [`Self::close`].
    pub(super) fn shut_down(&self) {
        self.fd.shut_down();
    }

    /// Closes the connection, if there is one. Allowed in the child of a fork.
    pub(super) fn close(&self) {
        self.fd.close();
    }

    fn with<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> Result<T, LinkError>) -> Result<T, LinkError> {
        // If the program closed the descriptor, its number may belong to a file of the program, which must not be written to.
        let Some(fd) = self.fd.checked() else { return Err(LinkError::Gone) };
        // SAFETY: the descriptor is open: inside the hook only the owner of the connection closes it, and does so between calls.
        call(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    fn send_rest(&self, fd: BorrowedFd<'_>, frames: &[u8], mut sent: usize) -> Result<(), LinkError> {
        while let Some(rest) = frames.get(sent..).filter(|rest| !rest.is_empty()) {
            match send_with_fds(fd, rest, &[]) {
                Ok(more) => sent += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(link_error(error)),
            }
        }
        Ok(())
    }
}

/// An answer and the descriptors that came with it.
type Frame = ([u8; RESPONSE_LEN], Vec<OwnedFd>);

/// Reads a whole answer, and calls `wait` before each part. `None` if that returns `false` before the first part.
fn read_frame(
    fd: BorrowedFd<'_>,
    wait: impl Fn() -> Result<bool, LinkError>,
) -> Result<Option<Frame>, LinkError> {
    let mut reader = FrameReader::<RESPONSE_LEN>::new();
    let mut received = Vec::new();
    loop {
        if !wait()? {
            if reader.is_mid_frame() {
                continue;
            }
            return Ok(None);
        }
        match recv_with_fds(fd, reader.spare()) {
            Ok((0, _)) => return Err(LinkError::Gone),
            Ok((read, fds)) => {
                reader.filled(read);
                received.extend(fds);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(link_error(error)),
        }
        if let Some(frame) = reader.next() {
            return Ok(Some((frame, received)));
        }
    }
}

/// Whether the manager could not read the payload of an ATTACH. It has closed the connection then.
pub(super) fn is_unreadable<T>(attached: &Result<T, LinkError>) -> bool {
    matches!(attached, Err(LinkError::NotAdmitted { status }) if *status == AttachStatus::BadPayload as i32)
}

fn elapsed_since(begun_ns: u64) -> Duration {
    Duration::from_nanos(monotonic_ns().saturating_sub(begun_ns))
}

fn connect_tcp(ip: &str, port: u16) -> io::Result<OwnedFd> {
    let ip: Ipv4Addr = ip.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let stream = TcpStream::connect_timeout(&SocketAddrV4::new(ip, port).into(), CONNECT_TIMEOUT)?;
    stream.set_nodelay(true)?;
    Ok(stream.into())
}

fn connect_error(error: io::Error) -> LinkError {
    if error.kind() == io::ErrorKind::WouldBlock { LinkError::Silent } else { link_error(error) }
}

/// Without the connection the manager is gone, for whatever reason.
pub(super) fn link_error(_: io::Error) -> LinkError {
    LinkError::Gone
}

#[cfg(test)]
mod tests;
