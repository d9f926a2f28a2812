//! The resource file and its watching thread: after any kind of replacement the file is applied as a whole, or not at all.
//!
//! Directories are watched, not the file: an editor renames a new file into place, and a ConfigMap volume swaps the
//! symlink `..data` beside the file. If the path leads through symlinks, the directory at their end is watched too.
//! Other changes are not reported (a bind mount or a hard link of the file, a network file system, a symlink on the way): SIGHUP has
//! the file read again.

use crate::definition::of_file;
use crate::error::{Attempt, Error, Result};
use crate::message::{Message, Remote};
use crate::side_thread::SideThread;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::unistd::pipe2;
use sluice_core::resources::{ClientEntry, ParseOptions, parse};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::{error, info};

/// Has the watching thread read the file again, whether its directory reported a change or not.
#[derive(Clone, Debug)]
pub(crate) struct ReloadRequests(Arc<EventFd>);

impl ReloadRequests {
    fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_value_and_flags(0, flags).attempt("eventfd")?)))
    }

    pub(crate) fn request(&self) {
        // The counter is full only after 2^64 - 2 requests.
        let _ = self.0.write(1);
    }

    /// Whether a request has come since this was last asked.
    fn take(&self) -> bool {
        self.0.read().is_ok()
    }
}

/// Starts the watching thread, which watches first and then reads, so that no change is missed. Returns what is in the file.
pub(crate) fn watch(
    path: &Path,
    reading: ParseOptions,
    remote: Remote,
) -> Result<(SideThread, ReloadRequests, Vec<ClientEntry>)> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).attempt("inotify_init")?;
    let (stopped, stop) = pipe2(OFlag::O_CLOEXEC).attempt("pipe")?;
    let (path, reloads) = (path.to_owned(), ReloadRequests::new()?);
    let mut watch = Watch {
        inotify,
        reloads: reloads.clone(),
        path,
        reading,
        remote,
        text: String::new(),
        logged_error: None,
    };
    watch.watch_directories();
    let unreadable = |error| Error::ReadResources(watch.path.clone(), error);
    watch.text = std::fs::read_to_string(&watch.path).map_err(unreadable)?;
    let wrong = |mistakes| Error::Resources(watch.path.clone(), mistakes);
    let resources = parse(&watch.text, reading).map_err(wrong)?;
    Ok((SideThread::start("watch", stop, move || watch.serve(&stopped))?, reloads, resources))
}

struct Watch {
    inotify: Inotify,
    reloads: ReloadRequests,
    path: PathBuf,
    reading: ParseOptions,
    remote: Remote,
    /// The text that was applied last.
    text: String,
    /// The error that was logged last, so that it is not repeated for every event.
    logged_error: Option<String>,
}

impl Watch {
    /// Serves until the other end of the pipe `stopped` is closed.
    fn serve(&mut self, stopped: &OwnedFd) {
        loop {
            let mut fds = [
                PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.reloads.0.as_fd(), PollFlags::POLLIN),
                PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return error!(%error, "the resource file is no longer watched"),
            }
            if fds[2].any().unwrap_or(false) {
                return;
            }
            // The kind of event does not matter: the file is read again and compared.
            let _ = self.inotify.read_events();
            self.watch_directories();
            if self.reloads.take() {
                // The operator reads the log after a request: an error is logged again.
                self.logged_error = None;
                info!(file = %self.path.display(), "reload of the resource file requested");
            }
            self.read_if_changed();
        }
    }

    /// Watches the directory of the path and the one that its symlinks lead to. Watching twice is the same as once.
    fn watch_directories(&self) {
        // Not IN_MODIFY and, for files, not IN_CREATE: a file that is being written is read only after it was closed.
        let what = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CREATE;
        let real = std::fs::canonicalize(&self.path).ok();
        for file in [Some(self.path.clone()), real].into_iter().flatten() {
            let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
            let directory = parent.unwrap_or(Path::new("."));
            if let Err(error) = self.inotify.add_watch(directory, what) {
                error!(directory = %directory.display(), %error, "cannot watch the resource file's directory");
            }
        }
    }

    fn read_if_changed(&mut self) {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) => return self.log_error(&format!("cannot be read: {error}")),
        };
        if self.text == text {
            self.logged_error = None;
            return;
        }
        match parse(&text, self.reading) {
            Ok(resources) => {
                info!(file = %self.path.display(), clients = resources.len(), "resource file read anew");
                self.logged_error = None;
                self.text = text;
                self.remote.send(Message::Clients(of_file(resources)));
            }
            Err(mistakes) => self.log_error(&mistakes.to_string()),
        }
    }

    fn log_error(&mut self, what: &str) {
        if self.logged_error.as_deref() != Some(what) {
            error!(file = %self.path.display(), "resource file is not applied, the previous clients stay: {what}");
            self.logged_error = Some(what.to_owned());
        }
    }
}
