//! A minimal manager: it withholds grants or gives unlimited ones, and keeps the announced channel groups.

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
use sluice_comm::page::{GrantView, PAGE_VERSION, ReportView, UNLIMITED};
use sluice_comm::{
    AttachStatus, Channel, FrameReader, REQUEST_LEN, Request, RequestBody, Response, ResponseBody,
};
use sluice_nvrm::Controls;
use sluice_sys::page::SharedPage;
use sluice_sys::{memfd, socket};

use super::groups::Group;

/// A grant that lasts longer than the doctor.
const ENDLESS: ResponseBody = ResponseBody::Quota { quota_ms: 1e6 };
/// Memory limit of every program: the doctor limits nothing.
const NO_MEMORY_LIMIT: u64 = 1 << 50;

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
    /// Processes that get a grant. All others wait, because a process may attach before the doctor knows its pid.
    released: BTreeSet<i32>,
    clients: BTreeMap<i32, Client>,
}

#[derive(Debug, Default)]
struct Client {
    /// Channel groups of its last announcement.
    groups: Vec<Group>,
    pages: Vec<SharedPage>,
    /// Unanswered requests for a grant, with their connections.
    waiting: Vec<(UnixStream, i32)>,
}

impl Manager {
    /// Listens at `path`.
    pub(super) fn start(path: &Path, simulated: bool) -> io::Result<Self> {
        // The attempt before may have left its socket: a self-test that was inconclusive is repeated in the same folder.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(path)?;
        let shared = Arc::new(Shared { simulated, ..Shared::default() });
        let known = Arc::clone(&shared);
        thread::Builder::new().name("manager".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&known);
                thread::spawn(move || {
                    // An error ends the connection; the check then reports a program that does not attach.
                    let _ = serve(&stream, &shared);
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        })?;
        Ok(Self(shared))
    }

    /// Gives the process an unlimited grant. Before this call it gets none.
    pub(super) fn release(&self, pid: i32) {
        let mut state = self.0.lock();
        state.released.insert(pid);
        let Some(client) = state.clients.get_mut(&pid) else { return };
        client.pages.iter().step_by(2).for_each(open);
        for (stream, id) in client.waiting.drain(..) {
            let _ = answer(&stream, id, ENDLESS, &[]);
        }
    }

    /// Whether the process attaches until the deadline.
    pub(super) fn has_attached(&self, pid: i32, until: Instant) -> bool {
        self.0.wait(until, |state| state.clients.contains_key(&pid))
    }

    /// Whether the process waits for a grant before the deadline.
    pub(super) fn is_waiting(&self, pid: i32, until: Instant) -> bool {
        self.0.wait(until, |state| state.clients.get(&pid).is_some_and(|client| !client.waiting.is_empty()))
    }

    /// The channel groups that the process announces until the deadline.
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

    /// Keeps a request for a grant until [`Manager::release`], unless that was called before. The check and the insertion happen under
    /// one lock: otherwise a release between them would not find the request, and it would never be answered.
    fn withhold(&self, pid: i32, stream: &UnixStream, id: i32) -> io::Result<bool> {
        let connection = stream.try_clone()?;
        let mut state = self.lock();
        if state.released.contains(&pid) {
            return Ok(false);
        }
        state.clients.entry(pid).or_default().waiting.push((connection, id));
        self.changed.notify_all();
        Ok(true)
    }

    fn change(&self, pid: i32, change: impl FnOnce(&mut Client)) {
        change(self.lock().clients.entry(pid).or_default());
        self.changed.notify_all();
    }
}

/// Serves the connection until it ends.
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
            RequestBody::Quota { .. } if shared.withhold(pid, stream, request.id)? => continue,
            RequestBody::Quota { .. } => ENDLESS,
            RequestBody::MemLimit => ResponseBody::MemLimit { used: 0, limit: NO_MEMORY_LIMIT },
            RequestBody::MemUpdate { .. } => ResponseBody::MemUpdate { granted: true },
            RequestBody::Detach => ResponseBody::Detach,
            RequestBody::OwnProcess { .. } => ResponseBody::OwnProcess { own: true },
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

/// The channel groups that a process announces: the payload, and the control descriptors that its contexts refer to.
fn announced(fds: Vec<OwnedFd>, simulated: bool) -> io::Result<Vec<Group>> {
    let mut fds = fds.into_iter();
    let payload = fds.next().ok_or(io::ErrorKind::InvalidData)?;
    let payload = memfd::read_sealed(payload.as_fd(), MAX_LEN)?;
    let contexts = AttachPayload::decode(&payload).map_err(io::Error::other)?.contexts;
    let descriptors: Result<Vec<_>, _> =
        fds.map(|fd| Controls::from_descriptor(fd, simulated).map(Arc::new)).collect();
    let descriptors = descriptors.map_err(io::Error::other)?;
    let groups = contexts.into_iter().map(|handles| {
        let controls = usize::try_from(handles.descriptor).ok().and_then(|at| descriptors.get(at));
        Ok(Group { controls: Arc::clone(controls.ok_or(io::ErrorKind::InvalidData)?), handles })
    });
    groups.collect()
}

fn attach(pid: i32, groups: Vec<Group>, shared: &Shared) -> io::Result<Vec<OwnedFd>> {
    let (grant, writable) = SharedPage::create("doctor-grant")?;
    GrantView::new(grant.words()).init();
    let (report, report_fd) = SharedPage::create("doctor-report")?;
    ReportView::new(report.words()).init();
    let fds = vec![SharedPage::reopen_read_only(&writable)?, report_fd];
    shared.change(pid, |client| {
        client.groups = groups;
        client.pages = vec![grant, report];
    });
    // A release before this point did not find the page; a later one does.
    let state = shared.lock();
    if state.released.contains(&pid) {
        state.clients.get(&pid).and_then(|client| client.pages.first()).into_iter().for_each(open);
    }
    Ok(fds)
}

fn open(grant: &SharedPage) {
    GrantView::new(grant.words()).open(UNLIMITED, UNLIMITED, 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_attempt_listens_at_the_same_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("manager.sock");
        for _ in 0..2 {
            let _manager = Manager::start(&path, true).expect("it listens");
            UnixStream::connect(&path).expect("it accepts");
        }
    }
}
