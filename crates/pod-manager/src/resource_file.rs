//! The resource file and its watching thread: after any kind of replacement the file is applied as a whole, or not at all.
//!
//! Directories are watched, not the file: an editor renames a new file into place, and a ConfigMap volume swaps the
//! symlink `..data` beside the file. If the path leads through symlinks, the directory at their end is watched too.

use crate::clients::of_file;
use crate::error::{Attempt, Error, Result};
use crate::message::{Message, Remote};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use sluice_core::resources::{ParseOptions, Resources, parse};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use tracing::{error, info};

/// Reads a resource file.
pub(crate) fn read(path: &Path, reading: ParseOptions) -> Result<(String, Resources)> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Error::ReadResources { path: path.to_owned(), source })?;
    let resources =
        parse(&text, reading).map_err(|mistakes| Error::Resources { path: path.to_owned(), mistakes })?;
    Ok((text, resources))
}

/// The watching thread.
#[derive(Debug)]
pub(crate) struct Watcher {
    stop: Arc<EventFd>,
    thread: JoinHandle<()>,
}

impl Watcher {
    /// Watches first and then reads, so that no change is missed; returns what is in the file.
    pub(crate) fn start(path: &Path, reading: ParseOptions, remote: Remote) -> Result<(Self, Resources)> {
        let inotify =
            Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).attempt("inotify_init")?;
        let stop = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC).attempt("eventfd")?;
        let stop = Arc::new(stop);
        let mut watch =
            Watch { inotify, path: path.to_owned(), reading, remote, text: None, logged_error: None };
        watch.watch_directories();
        let (text, resources) = read(path, reading)?;
        watch.text = Some(text);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("sluice-watch".into())
            .spawn(move || watch.serve(&stopped))
            .attempt("start the watching thread")?;
        Ok((Self { stop, thread }, resources))
    }

    /// Ends the thread.
    pub(crate) fn stop(self) -> Result<()> {
        let _ = self.stop.write(1);
        self.thread.join().map_err(|_| Error::Panicked("watching"))
    }
}

struct Watch {
    inotify: Inotify,
    path: PathBuf,
    reading: ParseOptions,
    remote: Remote,
    /// The text that was applied last.
    text: Option<String>,
    /// The error that was logged last, so that it is not repeated for every event.
    logged_error: Option<String>,
}

impl Watch {
    fn serve(&mut self, stop: &EventFd) {
        loop {
            let mut fds = [
                PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN),
                PollFd::new(stop.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return error!(%error, "the resource file is no longer watched"),
            }
            if fds[1].any().unwrap_or(false) {
                return;
            }
            // The kind of event does not matter: the file is read again and compared.
            let _ = self.inotify.read_events();
            self.watch_directories();
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
        if self.text.as_ref() == Some(&text) {
            self.logged_error = None;
            return;
        }
        match parse(&text, self.reading) {
            Ok(resources) => {
                info!(file = %self.path.display(), clients = resources.clients.len(), "resource file read anew");
                self.logged_error = None;
                self.text = Some(text);
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
