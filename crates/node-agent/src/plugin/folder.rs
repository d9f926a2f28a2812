//! Notices changes in kubelet's folder: its socket made anew, ours removed.

use super::error::{Error, Result};
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use tokio::io::unix::AsyncFd;

/// A socket in the file system, told from one that has its name later.
///
/// The time is part of it because file systems give the inode of a removed file to the next one. Changes of mode or label
/// after the socket was made, as kubelet does them, do not change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SocketIdentity {
    device: u64,
    inode: u64,
    made: (i64, i64),
}

impl SocketIdentity {
    /// That of what has the name now; none if nothing has.
    pub(super) fn of(path: &Path) -> Result<Option<Self>> {
        let about = match fs::symlink_metadata(path) {
            Ok(about) => about,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(Error::system("look at", path)(why)),
        };
        if !about.file_type().is_socket() {
            return Err(Error::InTheWay { path: path.to_owned() });
        }
        let made = (about.mtime(), about.mtime_nsec());
        Ok(Some(Self { device: about.dev(), inode: about.ino(), made }))
    }
}

/// Watches a folder.
pub(super) struct Folder {
    path: PathBuf,
    events: AsyncFd<Descriptor>,
}

impl Folder {
    /// Sees every change from now on.
    pub(super) fn watch(path: &Path) -> Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .map_err(Error::system("start to watch", path))?;
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

    /// Returns when something has changed. Which names, it does not say: who asks looks at the folder itself, so that a
    /// change that we missed in a full queue costs nothing.
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
                return Err(Error::FolderGone { path: self.path.clone() });
            }
            return Ok(());
        }
    }
}

/// Tokio asks for the number, nix lends the descriptor.
struct Descriptor(Inotify);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}
