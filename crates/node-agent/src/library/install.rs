//! Puts the image's library into the host's folder.

use super::entry::{self, Found, Wanted};
use super::error::{Error, Result};
use super::version::Version;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a container sees the versions that it is given.
pub const CONTAINER_ROOT: &str = "/usr/lib/sluice";
/// The library's name in a version's folder.
pub const LIBRARY_FILE: &str = "libsluice.so";
/// The name of the file that becomes a container's /etc/ld.so.preload.
pub const PRELOAD_FILE: &str = "ld.so.preload";

/// Every user of every container loads it, so all may read and nobody may write.
const FOLDER_MODE: u32 = 0o755;
const LIBRARY_MODE: u32 = 0o755;
const PRELOAD_MODE: u32 = 0o644;
/// Held while anything in the root folder is changed.
const LOCK_FILE: &str = ".lock";
const ELF: &[u8] = b"\x7fELF";

/// The folder of all versions.
#[derive(Debug, Clone)]
pub struct Library {
    pub(super) root: PathBuf,
}

/// A version that lies complete in its folder. As long as a clone of it lives, no agent collects it.
#[derive(Debug, Clone)]
pub struct Installed {
    /// Which.
    pub version: Version,
    /// Its folder on the host.
    pub folder: PathBuf,
    /// A shared lock on the folder. The kernel gives it up with the process, so a killed agent leaves none behind.
    _claim: Arc<File>,
}

impl Installed {
    /// Its folder as a container sees it.
    pub fn container_folder(&self) -> String {
        format!("{CONTAINER_ROOT}/{}", self.version)
    }

    /// The file on the host that becomes a container's /etc/ld.so.preload.
    pub fn preload_file(&self) -> PathBuf {
        self.folder.join(PRELOAD_FILE)
    }
}

impl Library {
    /// The folder of all versions, `/var/lib/sluice/lib` on a node. Nothing is made yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Puts the library `source` into its version's folder, or sees that it lies there whole.
    ///
    /// A damaged file is replaced by a new one under its name: a process that has the old one mapped keeps it. Good files
    /// are not touched. Several agents may do this at once.
    ///
    /// # Errors
    /// The disk's, and anything in the way that is not ours: a symbolic link, a file of another user.
    pub fn install(&self, source: &Path) -> Result<Installed> {
        let content = fs::read(source).map_err(Error::disk("read", source))?;
        if !content.starts_with(ELF) {
            return Err(Error::NoLibrary { path: source.to_owned() });
        }
        let version = Version::of(&content);
        let preload = format!("{CONTAINER_ROOT}/{version}/{LIBRARY_FILE}\n");
        let files = [
            Wanted { name: LIBRARY_FILE, content: &content, mode: LIBRARY_MODE },
            Wanted { name: PRELOAD_FILE, content: preload.as_bytes(), mode: PRELOAD_MODE },
        ];
        let _lock = self.lock()?;
        let folder = self.root.join(&version);
        match entry::look(&folder)? {
            Found::Nothing => self.create(&folder, &version, &files)?,
            Found::Folder(about) => {
                entry::check_owner(&folder, &about, "a folder")?;
                entry::set_mode(&folder, &about, FOLDER_MODE)?;
                repair(&folder, &files)?;
            }
            Found::File(_) => return Err(in_the_way(&folder, "a file", "a folder")),
            Found::Other(found) => return Err(in_the_way(&folder, found, "a folder")),
        }
        let claim = File::open(&folder).map_err(Error::disk("open", &folder))?;
        claim.lock_shared().map_err(Error::disk("lock", &folder))?;
        Ok(Installed { version, folder, _claim: Arc::new(claim) })
    }

    /// The versions that have a folder; none where no agent ever was. Other names are none of our business.
    ///
    /// # Errors
    /// The disk's.
    pub fn versions(&self) -> Result<BTreeSet<Version>> {
        let mut versions = BTreeSet::new();
        let items = match fs::read_dir(&self.root) {
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(versions),
            items => items.map_err(Error::disk("read", &self.root))?,
        };
        for item in items {
            let item = item.map_err(Error::disk("read", &self.root))?;
            versions.extend(item.file_name().to_str().and_then(Version::parse));
        }
        Ok(versions)
    }

    /// Waits until no other agent works in the folder, and clears away what one that was killed left unfinished.
    pub(super) fn lock(&self) -> Result<File> {
        self.make_root()?;
        let path = self.root.join(LOCK_FILE);
        let lock =
            File::options().create(true).append(true).open(&path).map_err(Error::disk("make", &path))?;
        lock.lock().map_err(Error::disk("lock", &path))?;
        for item in fs::read_dir(&self.root).map_err(Error::disk("read", &self.root))? {
            let item = item.map_err(Error::disk("read", &self.root))?;
            if item.file_name().to_string_lossy().starts_with(entry::UNFINISHED) {
                entry::remove(&item.path())?;
            }
        }
        Ok(lock)
    }

    fn make_root(&self) -> Result<()> {
        let root = &self.root;
        if let Some(parent) = root.parent() {
            fs::create_dir_all(parent).map_err(Error::disk("make", parent))?;
        }
        // Another agent may make it between our look and our attempt: what counts is what is there in the end.
        let made = fs::create_dir(root);
        match entry::look(root)? {
            Found::Folder(about) => {
                entry::check_owner(root, &about, "a folder")?;
                entry::set_mode(root, &about, FOLDER_MODE)
            }
            Found::File(_) => Err(in_the_way(root, "a file", "a folder")),
            Found::Other(found) => Err(in_the_way(root, found, "a folder")),
            Found::Nothing => made.map_err(Error::disk("make", root)),
        }
    }

    fn create(&self, folder: &Path, version: &Version, files: &[Wanted<'_>]) -> Result<()> {
        let unfinished = self.root.join(format!("{}{version}", entry::UNFINISHED));
        entry::make_folder(&unfinished, FOLDER_MODE)?;
        for wanted in files {
            entry::write_file(&unfinished, wanted)?;
        }
        entry::sync_folder(&unfinished)?;
        fs::rename(&unfinished, folder).map_err(Error::disk("put in place", folder))?;
        entry::sync_folder(&self.root)
    }
}

/// Replaces what is damaged, file by file: pods that have the folder mounted get whole files again.
fn repair(folder: &Path, files: &[Wanted<'_>]) -> Result<()> {
    for wanted in files {
        let path = folder.join(wanted.name);
        match entry::look(&path)? {
            Found::Nothing => entry::write_file(folder, wanted)?,
            Found::File(about) => {
                entry::check_owner(&path, &about, "a file")?;
                let content = fs::read(&path).map_err(Error::disk("read", &path))?;
                if content == wanted.content {
                    entry::set_mode(&path, &about, wanted.mode)?;
                } else {
                    tracing::warn!(path = %path.display(), "is damaged; replacing it");
                    entry::write_file(folder, wanted)?;
                }
            }
            Found::Folder(_) => return Err(in_the_way(&path, "a folder", "a file")),
            Found::Other(found) => return Err(in_the_way(&path, found, "a file")),
        }
    }
    entry::sync_folder(folder)
}

fn in_the_way(path: &Path, found: &str, wanted: &'static str) -> Error {
    Error::InTheWay { path: path.to_owned(), found: found.to_owned(), wanted }
}
