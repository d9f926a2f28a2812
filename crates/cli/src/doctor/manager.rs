//! A minimal manager: it withholds grants or gives unlimited ones, and keeps the announced channel groups.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use sluice_sys::page::SharedPage;

use super::connection::{ENDLESS, answer, open, serve};
use super::groups::Group;

/// The manager. Its threads end with the connections, its listener with the process.
#[derive(Debug, Clone)]
pub(super) struct Manager(Arc<Shared>);

#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    pub(super) simulated: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Processes that get a grant. All others wait, because a process may attach before the doctor knows its pid.
    pub(super) released: BTreeSet<i32>,
    pub(super) clients: BTreeMap<i32, Client>,
}

#[derive(Debug, Default)]
pub(super) struct Client {
    /// Channel groups of its last announcement.
    pub(super) groups: Vec<Group>,
    pub(super) pages: Vec<SharedPage>,
    /// Unanswered requests for a grant, with their connections.
    pub(super) waiting: Vec<(UnixStream, i32)>,
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
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, until: Instant, seen: impl Fn(&State) -> bool) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(self.lock(), left, |state| !seen(state));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Keeps a request for a grant until [`Manager::release`], unless that was called before. The check and the insertion happen under
    /// one lock: otherwise a release between them would not find the request, and it would never be answered.
    pub(super) fn withhold(&self, pid: i32, stream: &UnixStream, id: i32) -> io::Result<bool> {
        let connection = stream.try_clone()?;
        let mut state = self.lock();
        if state.released.contains(&pid) {
            return Ok(false);
        }
        state.clients.entry(pid).or_default().waiting.push((connection, id));
        self.changed.notify_all();
        Ok(true)
    }

    pub(super) fn change(&self, pid: i32, change: impl FnOnce(&mut Client)) {
        change(self.lock().clients.entry(pid).or_default());
        self.changed.notify_all();
    }
}
