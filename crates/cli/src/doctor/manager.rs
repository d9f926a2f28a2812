//! The smallest manager: it holds programs back or lets them go for good, and keeps what they announce.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use sluice_comm::attach::{AttachPayload, MAX_LEN};
use sluice_comm::page::{GrantView, PAGE_VERSION, ReportView, STANDING};
use sluice_comm::{
    AttachStatus, Channel, FrameReader, REQUEST_LEN, Request, RequestBody, Response, ResponseBody,
};
use sluice_nvrm::Controls;
use sluice_sys::page::SharedPage;
use sluice_sys::{memfd, socket};

use super::groups::Group;

/// Memory that everybody may have: the doctor limits nothing.
const UNLIMITED: u64 = 1 << 50;

/// The manager. Its threads end with the connections, its listener with the process.
#[derive(Debug, Clone)]
pub(super) struct Manager(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    simulated: bool,
}

#[derive(Debug, Default)]
struct State {
    /// Processes that get no grant for now.
    held: BTreeSet<i32>,
    clients: BTreeMap<i32, Client>,
}

#[derive(Debug, Default)]
struct Client {
    /// What it announced last.
    groups: Vec<Group>,
    pages: Vec<SharedPage>,
    /// Requests for a grant that are not answered, and where.
    asked: Vec<(UnixStream, i32)>,
}

impl Manager {
    /// Listens at `path`.
    pub(super) fn start(path: &Path, simulated: bool) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let shared = Arc::new(Shared { simulated, ..Shared::default() });
        let known = Arc::clone(&shared);
        thread::Builder::new().name("manager".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&known);
                thread::spawn(move || {
                    // Whatever goes wrong with a connection ends it, and shows as a program that does not attach.
                    let _ = serve(&stream, &shared);
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        })?;
        Ok(Self(shared))
    }

    /// The process gets no grant until it is released.
    pub(super) fn hold(&self, pid: i32) {
        self.0.lock().held.insert(pid);
    }

    /// The process gets a grant without end.
    pub(super) fn release(&self, pid: i32) {
        let mut state = self.0.lock();
        state.held.remove(&pid);
        let Some(client) = state.clients.get_mut(&pid) else { return };
        client.pages.iter().step_by(2).for_each(open);
        for (stream, id) in client.asked.drain(..) {
            let _ = answer(&stream, id, ResponseBody::Quota { quota_ms: 1e6 }, &[]);
        }
    }

    /// Whether the process has attached by then.
    pub(super) fn has_attached(&self, pid: i32, until: Instant) -> bool {
        self.0.wait(until, |state| state.clients.contains_key(&pid))
    }

    /// Whether the process asks for a grant and waits for it by then.
    pub(super) fn is_asking(&self, pid: i32, until: Instant) -> bool {
        self.0.wait(until, |state| state.clients.get(&pid).is_some_and(|client| !client.asked.is_empty()))
    }

    /// The channel groups that the process has announced by then.
    pub(super) fn groups(&self, pid: i32, until: Instant) -> Vec<Group> {
        self.0.wait(until, |state| state.clients.get(&pid).is_some_and(|client| !client.groups.is_empty()));
        self.0.lock().clients.get(&pid).map(|client| client.groups.clone()).unwrap_or_default()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, until: Instant, seen: impl Fn(&State) -> bool) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(self.lock(), left, |state| !seen(state));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn change(&self, pid: i32, change: impl FnOnce(&mut Client)) {
        change(self.lock().clients.entry(pid).or_default());
        self.changed.notify_all();
    }
}

/// One connection of a process.
fn serve(stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    let pid = socket::peer_credentials(stream.as_fd())?.pid;
    let mut frames = FrameReader::<REQUEST_LEN>::new();
    let mut came = Vec::new();
    loop {
        let (read, fds) = socket::recv_with_fds(stream.as_fd(), frames.spare())?;
        if read == 0 {
            return Ok(());
        }
        frames.filled(read);
        came.extend(fds);
        let Some(frame) = frames.next() else { continue };
        let request = Request::decode(&frame).map_err(io::Error::other)?;
        let fds = std::mem::take(&mut came);
        let mut sent = Vec::new();
        let body = match request.body {
            RequestBody::Attach { channel, .. } => {
                if channel == Channel::Token {
                    let groups = announced(fds, shared.simulated)?;
                    sent = attach(pid, groups, shared)?;
                }
                ResponseBody::Attach { status: AttachStatus::Ok, page_version: PAGE_VERSION }
            }
            RequestBody::Contexts { .. } => {
                let groups = announced(fds, shared.simulated)?;
                shared.change(pid, |client| client.groups = groups);
                continue;
            }
            RequestBody::Quota { .. } if shared.lock().held.contains(&pid) => {
                let waiting = stream.try_clone()?;
                shared.change(pid, |client| client.asked.push((waiting, request.id)));
                continue;
            }
            RequestBody::Quota { .. } => ResponseBody::Quota { quota_ms: 1e6 },
            RequestBody::MemLimit => ResponseBody::MemLimit { used: 0, limit: UNLIMITED },
            RequestBody::MemUpdate { .. } => ResponseBody::MemUpdate { granted: true },
            RequestBody::Detach => ResponseBody::Detach,
            _ => continue,
        };
        answer(stream, request.id, body, &sent)?;
    }
}

fn answer(stream: &UnixStream, id: i32, body: ResponseBody, fds: &[OwnedFd]) -> io::Result<()> {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    socket::send_with_fds(stream.as_fd(), &Response { id, body }.encode(), &fds)?;
    Ok(())
}

/// What a process says of its groups: the payload, and behind it the descriptors that its contexts name.
fn announced(fds: Vec<OwnedFd>, simulated: bool) -> io::Result<Vec<Group>> {
    let mut fds = fds.into_iter();
    let payload = fds.next().ok_or(io::ErrorKind::InvalidData)?;
    let payload = memfd::read_sealed(payload.as_fd(), MAX_LEN)?;
    let contexts = AttachPayload::decode(&payload).map_err(io::Error::other)?.contexts;
    let ways: Result<Vec<_>, _> = fds.map(|fd| Controls::over(fd, simulated).map(Arc::new)).collect();
    let ways = ways.map_err(io::Error::other)?;
    let groups = contexts.into_iter().map(|handles| {
        let way = usize::try_from(handles.descriptor).ok().and_then(|at| ways.get(at));
        Ok(Group { controls: Arc::clone(way.ok_or(io::ErrorKind::InvalidData)?), handles })
    });
    groups.collect()
}

fn attach(pid: i32, groups: Vec<Group>, shared: &Shared) -> io::Result<Vec<OwnedFd>> {
    let (grant, writable) = SharedPage::create("doctor-grant")?;
    GrantView::new(grant.words()).init();
    if !shared.lock().held.contains(&pid) {
        open(&grant);
    }
    let (report, report_fd) = SharedPage::create("doctor-report")?;
    ReportView::new(report.words()).init();
    let fds = vec![SharedPage::reopen_read_only(&writable)?, report_fd];
    shared.change(pid, |client| {
        client.groups = groups;
        client.pages = vec![grant, report];
    });
    Ok(fds)
}

fn open(grant: &SharedPage) {
    GrantView::new(grant.words()).open(STANDING, STANDING, 1);
}
