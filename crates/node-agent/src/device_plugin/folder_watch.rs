//! Watches kubelet's folder: kubelet recreates its socket, or our socket is removed.

use super::error::{Error, Result};
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use tokio::io::unix::AsyncFd;

/// Identity of a socket file, to tell it from a later one with the same name.
///
/// It includes the modification time, because file systems reuse the inode of a removed file. Kubelet changes mode and
/// label after it made the socket; that does not change the identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SocketIdentity {
    device: u64,
    inode: u64,
    made: (i64, i64),
}

impl SocketIdentity {
    /// Identity of the socket that has the name now; `None` if no file has it.
    pub(super) fn of(path: &Path) -> Result<Option<Self>> {
        let about = match fs::symlink_metadata(path) {
            Ok(about) => about,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(Error::system("examine", path)(why)),
        };
        if !about.file_type().is_socket() {
            return Err(Error::NotASocket(path.to_owned()));
        }
        let made = (about.mtime(), about.mtime_nsec());
        Ok(Some(Self { device: about.dev(), inode: about.ino(), made }))
    }
}

pub(super) struct FolderWatch {
    path: PathBuf,
    events: AsyncFd<Descriptor>,
}

impl FolderWatch {
    /// Starts the watch. Every later change is seen.
    pub(super) fn watch(path: &Path) -> Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .map_err(Error::system("start watching", path))?;
        let changes = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVE;
        let end = AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_ONLYDIR;
        inotify.add_watch(path, changes | end).map_err(Error::system("watch", path))?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe; ours owns its descriptor, which is what that asks for"
        )]
        let events = AsyncFd::new(Descriptor(inotify)).map_err(Error::system("watch", path))?;
        Ok(Self { path: path.to_owned(), events })
    }

    /// Returns when something in the folder has changed. The caller examines the folder itself, so events lost in a
    /// full queue do no harm.
    pub(super) async fn changed(&mut self) -> Result<()> {
        loop {
            let mut ready = self.events.readable().await.map_err(Error::system("watch", &self.path))?;
            let events = match ready.get_inner().0.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => {
                    ready.clear_ready();
                    continue;
                }
                Err(why) => return Err(Error::system("watch", &self.path)(why)),
            };
            let end = AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_IGNORED;
            if events.iter().any(|event| event.mask.intersects(end)) {
                return Err(Error::FolderGone(self.path.clone()));
            }
            return Ok(());
        }
    }
}

/// tokio needs the raw number, nix lends a borrowed descriptor.
struct Descriptor(Inotify);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}
