//! The exchange of tables between the managers of a node, by one file for each GPU in a common directory.
//!
//! A manager replaces its file when its table changes, and reads all files when one of them does. A file that a killed manager has left
//! behind is harmless: it keeps a slot for a gang, and others use a slot whose gang does not run.

use crate::error::{Attempt, Result};
use crate::report::Report;
use crate::side_thread::SideThread;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::unistd::{geteuid, pipe2};
use serde::{Deserialize, Serialize};
use sluice_core::gangs::{GangTable, NodeGangs, assign};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tracing::warn;

/// The largest file that is read: a table of thousands of clients.
const MAX_BYTES: u64 = 1 << 20;

/// The shortest time between two tables of a manager: slots of other clients move with them, and a client can start and end processes as
/// often as it likes.
const WRITE_PAUSE: Duration = Duration::from_millis(500);

/// The ending of a table's file. A file that is being written has another one.
const ENDING: &str = "json";

/// What a file contains.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFile {
    /// See [`GangTable::shares`].
    shares: BTreeMap<String, u32>,
    /// See [`GangTable::critical`].
    critical: BTreeSet<String>,
    /// See [`GangTable::by_grants`].
    #[serde(default)]
    by_grants: bool,
}

/// Hands tables to the exchanging thread.
#[derive(Debug)]
pub(crate) struct TableSender {
    tables: Sender<GangTable>,
    wake: Arc<EventFd>,
}

impl TableSender {
    /// The table of this manager's GPU is another one from here on.
    pub(crate) fn send(&self, table: GangTable) {
        if self.tables.send(table).is_ok() {
            // The counter is full only after 2^64 - 2 tables.
            let _ = self.wake.write(1);
        }
    }
}

/// Starts the exchanging thread. The manager's own file is `GPU.json`, empty at first.
pub(crate) fn start(
    directory: &Path,
    gpu: &str,
    gangs: Report<NodeGangs>,
) -> Result<(SideThread, TableSender)> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC).attempt("inotify_init")?;
    let (stopped, stop) = pipe2(OFlag::O_CLOEXEC).attempt("pipe")?;
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let wake = Arc::new(EventFd::from_value_and_flags(0, flags).attempt("eventfd")?);
    let (sender, tables) = channel();
    DirBuilder::new().recursive(true).mode(0o700).create(directory).attempt("create the gangs' directory")?;
    let changes = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE;
    inotify.add_watch(directory, changes).attempt("watch the gangs' directory")?;
    let mut exchange = Exchange {
        own: directory.join(gpu).with_added_extension(ENDING),
        directory: directory.to_owned(),
        inotify,
        wake: Arc::clone(&wake),
        tables,
        unwritten: None,
        written_at: None,
        gangs: NodeGangs::default(),
        report: gangs,
    };
    exchange.write(&GangTable::default()).attempt("write the gangs' table")?;
    let thread = SideThread::start("gangs", stop, move || exchange.serve(&stopped))?;
    Ok((thread, TableSender { tables: sender, wake }))
}

struct Exchange {
    directory: PathBuf,
    own: PathBuf,
    inotify: Inotify,
    wake: Arc<EventFd>,
    tables: Receiver<GangTable>,
    /// The latest table, while it is too early to write it.
    unwritten: Option<GangTable>,
    written_at: Option<Instant>,
    /// What was reported last.
    gangs: NodeGangs,
    report: Report<NodeGangs>,
}

impl Exchange {
    /// Serves until the other end of the pipe `stopped` is closed.
    fn serve(&mut self, stopped: &OwnedFd) {
        loop {
            self.report_gangs();
            let mut fds = [
                PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
                PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, self.next_write_in()) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return warn!(%error, "tables of gangs are no longer exchanged"),
            }
            let [changed, sent, ended] = fds.map(|fd| fd.any().unwrap_or(false));
            if ended {
                // The others need not wait for it to be overwritten.
                let _ = std::fs::remove_file(&self.own);
                return;
            }
            if changed {
                // Which file has changed does not matter: all are read.
                let _ = self.inotify.read_events();
            }
            if sent {
                let _ = self.wake.read();
            }
            self.unwritten = self.tables.try_iter().last().or(self.unwritten.take());
            self.write_if_due();
        }
    }

    /// How long to wait at most: until a table may be written.
    fn next_write_in(&self) -> PollTimeout {
        let since = self.written_at.map_or(WRITE_PAUSE, |at| at.elapsed());
        let left = WRITE_PAUSE.saturating_sub(since).as_millis();
        self.unwritten
            .as_ref()
            .map_or(PollTimeout::NONE, |_| PollTimeout::try_from(left + 1).unwrap_or(PollTimeout::ZERO))
    }

    fn write_if_due(&mut self) {
        if self.written_at.is_some_and(|at| at.elapsed() < WRITE_PAUSE) {
            return;
        }
        let Some(table) = self.unwritten.take() else { return };
        self.written_at = Some(Instant::now());
        if let Err(error) = self.write(&table) {
            warn!(file = %self.own.display(), %error, "cannot write the table of gangs");
        }
    }

    /// Replaces the manager's file.
    fn write(&self, table: &GangTable) -> io::Result<()> {
        let new = self.own.with_extension("new");
        let GangTable { shares, critical, by_grants } = table.clone();
        let text = serde_json::to_vec(&TableFile { shares, critical, by_grants })?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&new)?.write_all(&text)?;
        std::fs::rename(&new, &self.own)
    }

    fn report_gangs(&mut self) {
        let gangs = assign(&self.read_all());
        if self.gangs != gangs {
            self.gangs.clone_from(&gangs);
            self.report.send(gangs);
        }
    }

    /// The tables of all managers. Files that are none are left out.
    fn read_all(&self) -> Vec<GangTable> {
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) => {
                warn!(directory = %self.directory.display(), %error, "cannot read the tables of gangs");
                return Vec::new();
            }
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let tables = paths.filter(|path| path.extension().is_some_and(|ending| ending == ENDING));
        tables.filter_map(|path| self.read(&path)).collect()
    }

    fn read(&self, path: &Path) -> Option<GangTable> {
        match read_table(path) {
            Ok(table) => Some(table),
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                warn!(file = %path.display(), %error, "not a table of gangs, left out");
                None
            }
        }
    }
}

/// Reads a file of this user, to which no other user can write.
fn read_table(path: &Path) -> io::Result<GangTable> {
    let mut options = OpenOptions::new();
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file: File = options.read(true).custom_flags(flags.bits()).open(path)?;
    let metadata = file.metadata()?;
    let (owner, mode, bytes) = (metadata.uid(), metadata.mode(), metadata.len());
    if !metadata.is_file() || owner != geteuid().as_raw() || mode & 0o022 != 0 || bytes > MAX_BYTES {
        let found = format!("owner {owner}, mode {mode:o}, {bytes} bytes");
        let expected = format!("a file of this user, not writable for others, of at most {MAX_BYTES} bytes");
        return Err(io::Error::other(format!("{found}; expected {expected}")));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    let TableFile { shares, critical, by_grants } = serde_json::from_str(&text)?;
    Ok(GangTable { shares, critical, by_grants })
}

#[cfg(test)]
mod tests;
