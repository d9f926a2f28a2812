//! A configuration file and its watching thread: after any kind of replacement the file is applied as a whole, or not at all.
//!
//! Directories are watched, not the file: an editor renames a new file into place, and a ConfigMap volume swaps the
//! symlink `..data` beside the file. If the path leads through symlinks, the directory at their end is watched too.
//! Other changes are not reported (a bind mount or a hard link of the file, a network file system, a symlink on the way): SIGHUP has
//! the file read again.

use crate::error::{Attempt, Error, Result};
use crate::side_thread::SideThread;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::unistd::pipe2;
use sluice_core::resources::Mistakes;
use std::fmt;
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

/// Reads the text of a file.
type ReadText<T> = Box<dyn Fn(&str) -> Result<T, Mistakes> + Send>;

/// A file, what it is called, and how it is read.
pub(crate) struct WatchedFile<T> {
    /// What the file is, for logs and errors.
    pub(crate) what: &'static str,
    /// What stays if its text has a mistake.
    pub(crate) kept: &'static str,
    /// Name of the thread.
    pub(crate) thread: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) read: ReadText<T>,
}

impl<T> fmt::Debug for WatchedFile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Starts the watching thread, which watches first and then reads, so that no change is missed. Returns what is in the file. The thread
/// reports what it reads later; `None`: the new text has a mistake, which is logged.
pub(crate) fn watch<T: 'static>(
    file: WatchedFile<T>,
    report: impl Fn(Option<T>) + Send + 'static,
) -> Result<(SideThread, ReloadRequests, T)> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).attempt("inotify_init")?;
    let (stopped, stop) = pipe2(OFlag::O_CLOEXEC).attempt("pipe")?;
    let (thread, reloads) = (file.thread, ReloadRequests::new()?);
    let mut watch = Watch {
        inotify,
        reloads: reloads.clone(),
        file,
        report: Box::new(report),
        text: String::new(),
        logged_error: None,
    };
    watch.watch_directories();
    let WatchedFile { what, path, read, .. } = &watch.file;
    watch.text = std::fs::read_to_string(path).map_err(|why| Error::ReadFile(what, path.clone(), why))?;
    let content = read(&watch.text).map_err(|mistakes| Error::File(what, path.clone(), mistakes))?;
    Ok((SideThread::start(thread, stop, move || watch.serve(&stopped))?, reloads, content))
}

struct Watch<T> {
    inotify: Inotify,
    reloads: ReloadRequests,
    file: WatchedFile<T>,
    report: Box<dyn Fn(Option<T>) + Send>,
    /// The text that was applied last.
    text: String,
    /// The error that was logged last, so that it is not repeated for every event.
    logged_error: Option<String>,
}

impl<T> Watch<T> {
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
                Err(error) => {
                    return error!(file = %self.file.path.display(), %error, "file is no longer watched");
                }
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
                info!(file = %self.file.path.display(), "reload of the {} requested", self.file.what);
            }
            self.read_if_changed();
        }
    }

    /// Watches the directory of the path and the one that its symlinks lead to. Watching twice is the same as once.
    fn watch_directories(&self) {
        // Not IN_MODIFY and, for files, not IN_CREATE: a file that is being written is read only after it was closed.
        let what = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CREATE;
        let real = std::fs::canonicalize(&self.file.path).ok();
        for file in [Some(self.file.path.clone()), real].into_iter().flatten() {
            let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
            let directory = parent.unwrap_or(Path::new("."));
            if let Err(error) = self.inotify.add_watch(directory, what) {
                error!(directory = %directory.display(), %error, "cannot watch the directory of the {}", self.file.what);
            }
        }
    }

    fn read_if_changed(&mut self) {
        let text = match std::fs::read_to_string(&self.file.path) {
            Ok(text) => text,
            Err(error) => return self.log_error(&format!("cannot be read: {error}")),
        };
        if self.text == text {
            self.logged_error = None;
            return;
        }
        match (self.file.read)(&text) {
            Ok(content) => {
                info!(file = %self.file.path.display(), "{} read anew", self.file.what);
                self.logged_error = None;
                self.text = text;
                (self.report)(Some(content));
            }
            Err(mistakes) => self.log_error(&mistakes.to_string()),
        }
    }

    fn log_error(&mut self, error: &str) {
        if self.logged_error.as_deref() != Some(error) {
            let WatchedFile { what, kept, path, .. } = &self.file;
            error!(file = %path.display(), "{what} is not applied, the previous {kept}: {error}");
            self.logged_error = Some(error.to_owned());
            (self.report)(None);
        }
    }
}
