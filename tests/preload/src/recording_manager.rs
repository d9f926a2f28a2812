//! A manager that gives every client an unlimited grant and records the announcements, so that a test can control channel groups.

use sluice_comm::attach::{AttachPayload, ContextHandles, MAX_LEN};
use sluice_comm::page::{GrantView, PAGE_VERSION, ReportView, UNLIMITED};
use sluice_comm::{
    AttachStatus, Channel, FrameReader, REQUEST_LEN, Request, RequestBody, RequestKind, Response,
    ResponseBody,
};
use sluice_nvrm::{ControlError, Controls};
use sluice_sys::page::SharedPage;
use sluice_sys::{futex, memfd, socket};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use crate::waiting::eventually;

/// Versions of announcements that the manager accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Understands {
    /// Contexts with descriptors, at ATTACH and later.
    Contexts,
    /// The same, before there was a heartbeat: the second version of payload and pages.
    SecondVersion,
    /// The first version of the payload only; any other announcement ends the connection.
    FirstVersion,
}

/// How something was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Beside the ATTACH of a token connection.
    Attach,
    /// By CONTEXTS.
    Contexts,
}

/// One announcement.
#[derive(Debug)]
pub struct Announced {
    /// How it came.
    pub how: How,
    /// Version word of the payload.
    pub version: u8,
    /// Announced contexts.
    pub contexts: Vec<ContextHandles>,
    /// Control descriptors of the announcement.
    pub controls: Vec<Mutex<Controls>>,
}

/// The manager. Dropping it leaves its threads to the end of the test process; [`RecordingManager::hang_up`] does not.
#[derive(Debug)]
pub struct RecordingManager {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    announced: Vec<Arc<Announced>>,
    /// Token connections that have ended.
    ended: usize,
    connections: Vec<UnixStream>,
    refused: usize,
    pages: Vec<SharedPage>,
    /// Values in the pages of all clients: whether they are latency-critical, and the number of contenders.
    latency_critical: bool,
    contenders: u64,
    /// Memory of others moves, as all clients are told.
    memory_moves: bool,
    /// A request of this kind is read and never answered.
    hangs_at: Option<RequestKind>,
    /// Requests for grants that were not answered.
    unanswered: usize,
    /// The work of clients with an earlier deadline, for all clients.
    urgent: u64,
}

impl RecordingManager {
    /// Listens at `path`; a manager that listened there is replaced.
    ///
    /// # Panics
    /// When the socket cannot be created.
    pub fn start(path: &Path, understands: Understands) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || {
                    let mut is_token = false;
                    let _ = serve(&stream, understands, &state, &mut is_token);
                    let _ = stream.shutdown(Shutdown::Both);
                    lock(&state).ended += usize::from(is_token);
                });
            }
        });
        Self { path: path.to_owned(), state }
    }

    /// Sets for all present and future clients whether they are latency-critical, and the number of contenders.
    pub fn set_contenders(&self, latency_critical: bool, contenders: u64) {
        let mut state = lock(&self.state);
        (state.latency_critical, state.contenders) = (latency_critical, contenders);
        // Grant pages and report pages alternately.
        state.pages.iter().step_by(2).for_each(|grant| state.write_page(grant));
    }

    /// Tells all present clients whether memory of others moves.
    pub fn set_memory_moves(&self, moves: bool) {
        let mut state = lock(&self.state);
        state.memory_moves = moves;
        state.pages.iter().step_by(2).for_each(|grant| state.write_page(grant));
    }

    /// Reads requests of this kind and never answers them, as a manager that is stopped at this point. If these are requests for grants, no
    /// client has an unlimited one.
    pub fn hang_at(&self, kind: RequestKind) {
        lock(&self.state).hangs_at = Some(kind);
    }

    /// Takes back the grants of all clients, and gives none again.
    pub fn revoke(&self) {
        let mut state = lock(&self.state);
        state.hangs_at = Some(RequestKind::Quota);
        state.pages.iter().step_by(2).for_each(|grant| GrantView::new(grant.words()).close());
    }

    /// Requests for grants that were read and not answered.
    pub fn unanswered(&self) -> usize {
        lock(&self.state).unanswered
    }

    /// Shows all present and future clients the work of clients with an earlier deadline.
    pub fn set_urgent(&self, urgent: u64) {
        let mut state = lock(&self.state);
        state.urgent = urgent;
        state.pages.iter().step_by(2).for_each(|grant| state.write_page(grant));
    }

    /// Whether the last attached client reports that a launch is postponed, and for how long launches were, in nanoseconds.
    pub fn postponed(&self) -> (bool, u64) {
        let state = lock(&self.state);
        let report = state.pages.last().map(|report| ReportView::new(report.words()));
        report.map_or((false, 0), |report| (report.is_postponed(), report.postponed_ns()))
    }

    /// What `read` finds in the report page of the last attached client; 0 without one.
    pub fn reported(&self, read: impl FnOnce(ReportView<'_>) -> u64) -> u64 {
        lock(&self.state).pages.last().map_or(0, |report| read(ReportView::new(report.words())))
    }

    /// The usual duration of a request that the last attached client reports, in nanoseconds.
    pub fn service_ns(&self) -> u64 {
        self.reported(|report| report.service_ns())
    }

    /// GPU time of hold kernels that the last attached client reports, in nanoseconds.
    pub fn hold_ns(&self) -> u64 {
        self.reported(|report| report.hold_ns())
    }

    /// GPU time that the last attached client reports, in nanoseconds.
    pub fn busy_ns(&self) -> u64 {
        self.reported(|report| report.busy_ns())
    }

    /// Whether the last attached client reports that it has work.
    pub fn is_busy(&self) -> bool {
        lock(&self.state).pages.last().is_some_and(|report| ReportView::new(report.words()).activity().0)
    }

    /// Writes the heartbeat of all clients once. It is the last one: afterwards the manager is silent.
    pub fn beat_once(&self) {
        let now = sluice_sys::clock::monotonic_ns();
        let state = lock(&self.state);
        state.pages.iter().step_by(2).for_each(|grant| GrantView::new(grant.words()).set_heartbeat(now));
    }

    /// Waits for announcement `number`, counted from 0.
    ///
    /// # Panics
    /// When it never comes.
    #[track_caller]
    pub fn announcement(&self, number: usize) -> Arc<Announced> {
        eventually(&format!("announcement {number}"), || lock(&self.state).announced.get(number).cloned())
    }

    /// Announcements so far.
    pub fn announcements(&self) -> usize {
        lock(&self.state).announced.len()
    }

    /// Token connections that have ended so far.
    pub fn ended(&self) -> usize {
        lock(&self.state).ended
    }

    /// Attachments of token connections that were refused so far.
    pub fn refused(&self) -> usize {
        lock(&self.state).refused
    }

    /// Removes the socket: connections stay, and no further ones can be made.
    pub fn accept_no_more(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    /// Ends as a killed manager does: every connection ends, and the socket is gone. The caller keeps the recorded announcements with
    /// their descriptors.
    pub fn hang_up(&self) {
        self.accept_no_more();
        for connection in std::mem::take(&mut lock(&self.state).connections) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl State {
    /// Records the announcement of a new client, and returns its pages with an unlimited grant. Both happen under one lock: a test that
    /// sees the announcement and then changes a word changes it on these pages too.
    fn attach(&mut self, announced: Announced, page_version: u32) -> io::Result<Vec<OwnedFd>> {
        let (grant, writable) = SharedPage::create("grant")?;
        GrantView::new(grant.words()).init_as(page_version);
        self.write_page(&grant);
        if self.hangs_at != Some(RequestKind::Quota) {
            GrantView::new(grant.words()).open(UNLIMITED, UNLIMITED, 1);
        }
        let (report, report_fd) = SharedPage::create("report")?;
        ReportView::new(report.words()).init_as(page_version);
        let fds = vec![SharedPage::reopen_read_only(&writable)?, report_fd];
        self.pages.extend([grant, report]);
        self.announced.push(Arc::new(announced));
        Ok(fds)
    }

    fn write_page(&self, grant: &SharedPage) {
        let page = GrantView::new(grant.words());
        page.set_latency_critical(self.latency_critical);
        page.set_contenders(self.contenders);
        page.set_memory_moves(self.memory_moves);
        page.set_takes_gpu(self.latency_critical && self.contenders > 0);
        if page.set_urgent(self.urgent) {
            futex::wake_low(page.urgent_futex(), u32::MAX);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn serve(
    stream: &UnixStream,
    understands: Understands,
    state: &Mutex<State>,
    is_token: &mut bool,
) -> io::Result<()> {
    lock(state).connections.push(stream.try_clone()?);
    let mut frames = FrameReader::<REQUEST_LEN>::new();
    let mut fds = Vec::new();
    let page_version = if understands == Understands::SecondVersion { 2 } else { PAGE_VERSION };
    loop {
        let (read, came) = socket::recv_with_fds(stream.as_fd(), frames.spare())?;
        if read == 0 {
            return Ok(());
        }
        frames.filled(read);
        fds.extend(came);
        let Some(frame) = frames.next() else { continue };
        let request = Request::decode(&frame).map_err(io::Error::other)?;
        let fds = std::mem::take(&mut fds);
        let kind = request.body.kind();
        if lock(state).hangs_at == Some(kind) {
            lock(state).unanswered += usize::from(kind == RequestKind::Quota);
            continue;
        }
        let mut pages = Vec::new();
        let mut status = AttachStatus::Ok;
        let body = match request.body {
            RequestBody::Attach { channel, .. } => {
                match read_announcement(How::Attach, fds, understands)? {
                    None => {
                        status = AttachStatus::BadPayload;
                        lock(state).refused += usize::from(channel == Channel::Token);
                    }
                    Some(announced) if channel == Channel::Token => {
                        *is_token = true;
                        pages = lock(state).attach(announced, page_version)?;
                    }
                    Some(_) => {}
                }
                ResponseBody::Attach { status, page_version }
            }
            RequestBody::Contexts { .. } => {
                let announced = read_announcement(How::Contexts, fds, understands)?;
                lock(state).announced.push(Arc::new(announced.ok_or(io::ErrorKind::InvalidData)?));
                continue;
            }
            RequestBody::Quota { .. } => ResponseBody::Quota { quota_ms: 1e6 },
            RequestBody::MemLimit => ResponseBody::MemLimit { used: 0, limit: 1 << 50 },
            RequestBody::MemUpdate { .. } => ResponseBody::MemUpdate { granted: true },
            RequestBody::Detach => ResponseBody::Detach,
            _ => continue,
        };
        let answer = Response { id: request.id, body }.encode();
        let pages: Vec<_> = pages.iter().map(AsFd::as_fd).collect();
        socket::send_with_fds(stream.as_fd(), &answer, &pages)?;
        if status != AttachStatus::Ok {
            return Ok(());
        }
    }
}

/// Reads the announcement of a request; `None` if this manager does not accept its version.
fn read_announcement(how: How, fds: Vec<OwnedFd>, understands: Understands) -> io::Result<Option<Announced>> {
    let mut fds = fds.into_iter();
    let payload = fds.next().ok_or(io::ErrorKind::InvalidData)?;
    let bytes = memfd::read_sealed(payload.as_fd(), MAX_LEN)?;
    let version = bytes.get(4).copied().unwrap_or(0);
    if understands == Understands::FirstVersion && (version != 1 || how == How::Contexts) {
        return Ok(None);
    }
    if understands == Understands::SecondVersion && version > 2 {
        return Ok(None);
    }
    let contexts = AttachPayload::decode(&bytes).map_err(io::Error::other)?.contexts;
    let controls = fds
        .map(|fd| Controls::from_descriptor(fd, true).map(Mutex::new))
        .collect::<Result<_, _>>()
        .map_err(io::Error::other)?;
    Ok(Some(Announced { how, version, contexts, controls }))
}

impl Announced {
    /// Disables the channels of every context.
    ///
    /// # Panics
    /// When the driver refuses.
    #[track_caller]
    pub fn stop(&self) {
        self.each(|control, context| control.disable(context.client, context.subdevice, &context.channels));
    }

    /// Enables the channels of every context.
    ///
    /// # Panics
    /// When the driver refuses.
    #[track_caller]
    pub fn start(&self) {
        self.each(|control, context| control.enable(context.client, context.subdevice, &context.channels));
    }

    /// Sets the slice of every context.
    ///
    /// # Panics
    /// When the driver refuses.
    #[track_caller]
    pub fn set_slice(&self, us: u64) {
        self.each(|control, context| control.set_timeslice(context.client, context.channel_group, us));
    }

    /// The slices of the contexts.
    ///
    /// # Panics
    /// When the driver refuses.
    #[track_caller]
    pub fn slices(&self) -> Vec<u64> {
        self.each(|control, context| control.timeslice(context.client, context.channel_group))
    }

    #[track_caller]
    fn each<T>(&self, ask: impl Fn(&Controls, &ContextHandles) -> Result<T, ControlError>) -> Vec<T> {
        let answers = self.contexts.iter().map(|context| {
            let control = self.controls[context.descriptor as usize].lock();
            let control = control.unwrap_or_else(|poisoned| poisoned.into_inner());
            ask(&control, context).unwrap_or_else(|error| panic!("a control of {context:?}: {error}"))
        });
        answers.collect()
    }

    /// The groups' handles.
    pub fn groups(&self) -> Vec<u32> {
        self.contexts.iter().map(|context| context.channel_group).collect()
    }
}
