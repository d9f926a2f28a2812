//! Single files and folders of the library: what exists, and writing such that a crash leaves the old or the new
//! content, never a part.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name prefix of entries that are incomplete or being removed. The holder of the library's lock may remove all of
/// them.
pub(super) const UNFINISHED: &str = ".unfinished-";

/// What a file has to be.
pub(super) struct FileSpec<'a> {
    pub(super) name: &'static str,
    pub(super) content: &'a [u8],
    pub(super) mode: u32,
}

/// What has a name now. Symbolic links are not followed: any user could change their target.
pub(super) enum Found {
    Nothing,
    Folder(Metadata),
    File(Metadata),
    Other(&'static str),
}

pub(super) fn find(path: &Path) -> Result<Found> {
    let about = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(why) => return Err(Error::disk("examine", path)(why)),
    };
    Ok(if about.is_dir() {
        Found::Folder(about)
    } else if about.is_file() {
        Found::File(about)
    } else if about.is_symlink() {
        Found::Other("a symbolic link")
    } else {
        Found::Other("a special file")
    })
}

/// The owner of an entry can change it, and with it every pod that has it mounted.
pub(super) fn check_owner(path: &Path, about: &Metadata, wanted: &'static str) -> Result<()> {
    if about.uid() == nix::unistd::geteuid().as_raw() {
        return Ok(());
    }
    let found = format!("owned by user {}", about.uid());
    Err(Error::ForeignEntry { path: path.to_owned(), found, wanted })
}

/// Sets exactly this mode, independent of the umask, unless the entry has it already.
pub(super) fn set_mode(path: &Path, about: &Metadata, mode: u32) -> Result<()> {
    if about.mode() & 0o7777 == mode {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(Error::disk("set the mode of", path))
}

pub(super) fn make_folder(path: &Path, mode: u32) -> Result<()> {
    fs::create_dir(path).map_err(Error::disk("make", path))?;
    let about = fs::symlink_metadata(path).map_err(Error::disk("examine", path))?;
    set_mode(path, &about, mode)
}

/// Writes a file under a temporary name, makes it durable, then renames it.
pub(super) fn write_file(folder: &Path, wanted: &FileSpec<'_>) -> Result<()> {
    let unfinished = folder.join(format!("{UNFINISHED}{}", wanted.name));
    let path = folder.join(wanted.name);
    remove(&unfinished)?;
    let mut file = File::create_new(&unfinished).map_err(Error::disk("make", &unfinished))?;
    file.write_all(wanted.content).map_err(Error::disk("write", &unfinished))?;
    file.set_permissions(Permissions::from_mode(wanted.mode))
        .map_err(Error::disk("set the mode of", &unfinished))?;
    file.sync_all().map_err(Error::disk("sync", &unfinished))?;
    fs::rename(&unfinished, &path).map_err(Error::disk("put in place", &path))
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(path: &Path) -> Result<()> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(Error::disk("sync", path))
}

/// Removes a file, a link, or a folder with its content. An absent entry is fine.
pub(super) fn remove(path: &Path) -> Result<()> {
    let removed = match find(path)? {
        Found::Nothing => return Ok(()),
        Found::Folder(_) => fs::remove_dir_all(path),
        Found::File(_) | Found::Other(_) => fs::remove_file(path),
    };
    removed.map_err(Error::disk("remove", path))
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Which operation failed, on which path, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// The operation.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The name belongs to something that Sluice did not create.
    #[error("{} is {found}, where {wanted} of Sluice's belongs: move it away", path.display())]
    ForeignEntry {
        /// The name.
        path: PathBuf,
        /// What was found.
        found: String,
        /// What was expected.
        wanted: &'static str,
    },
    /// The image's library is not a shared library.
    #[error("{} is no shared library: the image is damaged", .0.display())]
    NotALibrary(PathBuf),
}

impl Error {
    /// For `map_err`: this action on this path failed.
    pub(crate) fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk { action, path: path.to_owned(), source }
    }
}
