//! A process of a client as the manager sees it: two connections, and the pages mapped for real.

use super::peers::FakeProcess;
use sluice_comm::attach::{ATTACH_VERSION, AttachPayload, ContextHandles};
use sluice_comm::page::{GrantView, PAGE_VERSION, ReportView};
use sluice_comm::{
    AttachStatus, Channel, Name, REQUEST_LEN, RESPONSE_LEN, Request, RequestBody, RequestKind, Response,
    ResponseBody, UNREAD_REQUEST_ID,
};
use sluice_sys::memfd;
use sluice_sys::page::{Access, SharedPage};
use sluice_sys::socket::{recv_with_fds, send_with_fds};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Nothing in these tests takes longer unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One connection that speaks frames.
pub struct Line {
    pub stream: UnixStream,
    pub name: Name,
    id: i32,
}

impl Line {
    pub fn open(socket: &Path, process: &FakeProcess, client: &str) -> io::Result<Self> {
        let stream = process.connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, name: Name::new(client).unwrap(), id: 0 })
    }

    /// Sends a request and says its id.
    pub fn send(&mut self, body: RequestBody) -> i32 {
        self.id += 1;
        let frame = Request { name: self.name, id: self.id, body }.encode().unwrap();
        self.stream.write_all(&frame).unwrap();
        self.id
    }

    pub fn receive(&mut self, kind: RequestKind) -> io::Result<Response> {
        let mut frame = [0; RESPONSE_LEN];
        self.stream.read_exact(&mut frame)?;
        Ok(Response::decode(&frame, kind).unwrap())
    }

    pub fn ask(&mut self, body: RequestBody) -> ResponseBody {
        let id = self.send(body);
        let response = self.receive(body.kind()).unwrap();
        assert_eq!(response.id, id);
        response.body
    }

    /// Sends an ATTACH with these descriptors.
    pub fn send_attach(&mut self, version: u32, channel: Channel, used_bytes: u64, fds: &[BorrowedFd<'_>]) {
        self.id += 1;
        let body = RequestBody::Attach { version, channel, used_bytes };
        let frame = Request { name: self.name, id: self.id, body }.encode().unwrap();
        assert_eq!(send_with_fds(self.stream.as_fd(), &frame, fds).unwrap(), REQUEST_LEN);
    }

    /// Attaches in order; what came back, and the descriptors.
    pub fn attach(&mut self, channel: Channel, used_bytes: u64) -> io::Result<(AttachStatus, Vec<OwnedFd>)> {
        self.attach_with(channel, used_bytes, &[], &[])
    }

    /// Attaches with these contexts and control descriptors.
    pub fn attach_with(
        &mut self,
        channel: Channel,
        used_bytes: u64,
        contexts: &[ContextHandles],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<(AttachStatus, Vec<OwnedFd>)> {
        let payload = payload_of(contexts);
        let fds = [&[payload.as_fd()], descriptors].concat();
        self.send_attach(ATTACH_VERSION, channel, used_bytes, &fds);
        self.attach_answer()
    }

    /// Announces other contexts.
    pub fn announce(&mut self, contexts: &[ContextHandles], descriptors: &[BorrowedFd<'_>]) {
        self.id += 1;
        let body = RequestBody::Contexts { version: ATTACH_VERSION };
        let frame = Request { name: self.name, id: self.id, body }.encode().unwrap();
        let payload = payload_of(contexts);
        let fds = [&[payload.as_fd()], descriptors].concat();
        assert_eq!(send_with_fds(self.stream.as_fd(), &frame, &fds).unwrap(), REQUEST_LEN);
    }

    /// The final answer to an ATTACH: until then the manager reports that it is pending.
    pub fn attach_answer(&mut self) -> io::Result<(AttachStatus, Vec<OwnedFd>)> {
        loop {
            let answer = self.next_attach_answer()?;
            if answer.0 != AttachStatus::Pending {
                return Ok(answer);
            }
        }
    }

    /// How often the manager has reported that an ATTACH is pending, since the last call (does not wait). Nothing else may have come.
    pub fn pending_answers(&mut self) -> usize {
        self.stream.set_nonblocking(true).unwrap();
        let answers = std::iter::from_fn(|| self.next_attach_answer().ok());
        let count = answers.inspect(|(status, _)| assert_eq!(*status, AttachStatus::Pending)).count();
        self.stream.set_nonblocking(false).unwrap();
        count
    }

    fn next_attach_answer(&mut self) -> io::Result<(AttachStatus, Vec<OwnedFd>)> {
        let mut frame = [0; RESPONSE_LEN];
        let (count, fds) = recv_with_fds(self.stream.as_fd(), &mut frame)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        assert_eq!(count, RESPONSE_LEN);
        match Response::decode(&frame, RequestKind::Attach).unwrap().body {
            ResponseBody::Attach { status, page_version } => {
                assert_eq!(page_version, PAGE_VERSION);
                Ok((status, fds))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Whether the manager answers that it has no room, and closes the connection; waits for it.
    pub fn finds_no_room(&mut self) -> bool {
        let answer = self.receive(RequestKind::Attach).unwrap();
        assert_eq!(answer.id, UNREAD_REQUEST_ID);
        let status = AttachStatus::NoRoom;
        answer.body == ResponseBody::Attach { status, page_version: PAGE_VERSION } && self.is_closed()
    }

    /// Whether the manager has closed the connection without an answer; waits for it.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => true,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => true,
            other => panic!("not closed: {other:?}"),
        }
    }

    /// How many answers have come (does not wait); they are taken.
    pub fn answers(&mut self) -> usize {
        self.stream.set_nonblocking(true).unwrap();
        let mut frame = [0; RESPONSE_LEN];
        let count = std::iter::from_fn(|| self.stream.read_exact(&mut frame).ok()).count();
        self.stream.set_nonblocking(false).unwrap();
        count
    }

    /// Whether nothing has come (does not wait).
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let nothing =
            matches!(self.stream.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.stream.set_nonblocking(false).unwrap();
        nothing
    }
}

pub fn payload() -> OwnedFd {
    payload_of(&[])
}

fn payload_of(contexts: &[ContextHandles]) -> OwnedFd {
    let contexts = contexts.to_vec();
    let payload = AttachPayload { pid: 1, device_ordinal: 0, device_uuid: [1; 16], contexts };
    memfd::sealed("attach", &payload.encode()).unwrap()
}

/// An attached process.
pub struct Hook {
    pub token: Line,
    pub memory: Line,
    pub grant_fd: OwnedFd,
    pub report_fd: OwnedFd,
    pub eventfd: OwnedFd,
    grant: SharedPage,
    report: SharedPage,
    pub process: FakeProcess,
}

impl Hook {
    pub fn attach(socket: &Path, process: &FakeProcess, client: &str, used_bytes: u64) -> io::Result<Self> {
        Self::attach_with(socket, process, client, used_bytes, (&[], &[]))
    }

    /// Attaches with these contexts and control descriptors.
    pub fn attach_with(
        socket: &Path,
        process: &FakeProcess,
        client: &str,
        used_bytes: u64,
        (contexts, descriptors): (&[ContextHandles], &[BorrowedFd<'_>]),
    ) -> io::Result<Self> {
        let mut token = Line::open(socket, process, client)?;
        let (status, mut fds) = token.attach_with(Channel::Token, used_bytes, contexts, descriptors)?;
        assert_eq!(status, AttachStatus::Ok);
        assert_eq!(fds.len(), 3);
        let mut next = || fds.pop().unwrap();
        let (eventfd, report_fd, grant_fd) = (next(), next(), next());
        let mut memory = Line::open(socket, process, client)?;
        let (status, fds) = memory.attach(Channel::Memory, used_bytes)?;
        // The client of one that gets host memory has overcommitment.
        assert!(status == AttachStatus::Ok && fds.len() <= 1, "{status:?} with {} descriptors", fds.len());
        let grant = SharedPage::map(grant_fd.as_fd(), Access::ReadOnly)?;
        let report = SharedPage::map(report_fd.as_fd(), Access::ReadWrite)?;
        GrantView::new(grant.words()).check().unwrap();
        ReportView::new(report.words()).check().unwrap();
        Ok(Self { token, memory, grant_fd, report_fd, eventfd, grant, report, process: process.clone() })
    }

    /// Goes from idle to busy or back at `now`; rings if it is asked to.
    pub fn becomes(&self, busy: bool, now: u64) {
        self.report().set_activity(busy, now);
        if busy && self.page().wakeup_requested() {
            nix::unistd::write(&self.eventfd, &1_u64.to_ne_bytes()).unwrap();
        }
    }

    pub fn page(&self) -> GrantView<'_> {
        GrantView::new(self.grant.words())
    }

    pub fn report(&self) -> ReportView<'_> {
        ReportView::new(self.report.words())
    }

    /// Writes any value into a word of the report page.
    pub fn write_report(&self, word: usize, value: u64) {
        self.report.words()[word].store(value, Ordering::Release);
    }

    /// Opens its token channel anew: the old connection ends, the pages stay.
    pub fn attach_token_again(&mut self, socket: &Path, client: &str) {
        let mut token = Line::open(socket, &self.process, client).unwrap();
        assert_eq!(token.attach(Channel::Token, 0).unwrap().0, AttachStatus::Ok);
        self.token = token;
    }

    /// Asks for the token; the answer comes later.
    pub fn want(&mut self) {
        self.want_burst(0.0);
    }

    pub fn want_burst(&mut self, next_burst_ms: f64) {
        self.token.send(RequestBody::Quota { overuse_ms: 0.0, next_burst_ms });
    }

    /// Waits for the token; milliseconds granted.
    pub fn granted(&mut self) -> f64 {
        match self.token.receive(RequestKind::Quota).unwrap().body {
            ResponseBody::Quota { quota_ms } => quota_ms,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the token.
    pub fn give_back(&mut self, used_ms: f64) {
        self.token.send(RequestBody::Yield { used_ms, overuse_ms: 0.0 });
    }

    pub fn reserve(&mut self, bytes: u64) -> bool {
        self.update(bytes, true)
    }

    pub fn release(&mut self, bytes: u64) -> bool {
        self.update(bytes, false)
    }

    fn update(&mut self, bytes: u64, allocate: bool) -> bool {
        self.memory.send(RequestBody::MemUpdate { bytes, allocate });
        self.granted_memory()
    }

    /// The answer to a reservation or a release.
    pub fn granted_memory(&mut self) -> bool {
        match self.memory.receive(RequestKind::MemUpdate).unwrap().body {
            ResponseBody::MemUpdate { granted } => granted,
            other => panic!("{other:?}"),
        }
    }

    /// Used and allowed bytes of the client.
    pub fn account(&mut self) -> (u64, u64) {
        match self.memory.ask(RequestBody::MemLimit) {
            ResponseBody::MemLimit { used, limit } => (used, limit),
            other => panic!("{other:?}"),
        }
    }
}
