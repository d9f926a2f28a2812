//! Installs the image's library into the host's folder.

use super::files::{self, Error, FileSpec, Found, Result};
use super::version::Version;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder in a container under which the versions are mounted.
pub const CONTAINER_ROOT: &str = "/usr/lib/sluice";
/// The library's name in a version's folder.
pub const LIBRARY_FILE: &str = "libsluice.so";
/// The name of the file that becomes a container's /etc/ld.so.preload.
pub const PRELOAD_FILE: &str = "ld.so.preload";

/// The hook looks for it beside itself: where it exists, the environment of a process does not switch the limits off.
const NODE_SETTINGS_FILE: &str = "node.env";
const NODE_SETTINGS: &str = "# The environment of a process does not switch Sluice off on this node: a file `disable` in /run/sluice does.\n";

/// Every process of every container loads the library: all users may read it, none may write it.
const FOLDER_MODE: u32 = 0o755;
const LIBRARY_MODE: u32 = 0o755;
const PRELOAD_MODE: u32 = 0o644;
/// Locked while anything in the root folder changes.
const LOCK_FILE: &str = ".lock";
const ELF: &[u8] = b"\x7fELF";

/// The folder of all versions.
#[derive(Debug, Clone)]
pub struct Library {
    pub(super) root: PathBuf,
}

/// A completely installed version. While a clone of it lives, no agent collects the version.
#[derive(Debug, Clone)]
pub struct Installed {
    /// The version.
    pub version: Version,
    /// Its folder on the host.
    pub folder: PathBuf,
    /// A shared lock on the folder. The kernel releases it with the process, so a killed agent leaves none behind.
    _lock: Arc<File>,
}

impl Installed {
    /// Its folder in a container.
    pub fn container_folder(&self) -> String {
        format!("{CONTAINER_ROOT}/{}", self.version)
    }

    /// The file on the host that becomes a container's /etc/ld.so.preload.
    pub fn preload_file(&self) -> PathBuf {
        self.folder.join(PRELOAD_FILE)
    }
}

impl Library {
    /// The folder of all versions, `/var/lib/sluice/lib` on a node. Nothing is created yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Installs the library `source` into its version's folder, or verifies that it is installed completely.
    ///
    /// A damaged file is replaced by a new file of the same name; a process that has the old one mapped keeps it.
    /// Intact files are not touched. Several agents may install at the same time.
    ///
    /// # Errors
    /// An I/O error, or an entry that Sluice did not create: a symbolic link, a file of another user.
    pub fn install(&self, source: &Path) -> Result<Installed> {
        let content = fs::read(source).map_err(Error::disk("read", source))?;
        if !content.starts_with(ELF) {
            return Err(Error::NotALibrary(source.to_owned()));
        }
        let version = Version::of(&content);
        let preload = format!("{CONTAINER_ROOT}/{version}/{LIBRARY_FILE}\n");
        let files = [
            FileSpec { name: LIBRARY_FILE, content: &content, mode: LIBRARY_MODE },
            FileSpec { name: PRELOAD_FILE, content: preload.as_bytes(), mode: PRELOAD_MODE },
            FileSpec { name: NODE_SETTINGS_FILE, content: NODE_SETTINGS.as_bytes(), mode: PRELOAD_MODE },
        ];
        let _lock = self.lock()?;
        let folder = self.root.join(&version);
        if check_folder(&folder)? {
            repair(&folder, &files)?;
        } else {
            self.create(&folder, &version, &files)?;
        }
        let lock = File::open(&folder).map_err(Error::disk("open", &folder))?;
        lock.lock_shared().map_err(Error::disk("lock", &folder))?;
        Ok(Installed { version, folder, _lock: Arc::new(lock) })
    }

    /// The versions that have a folder; none if no agent ever ran. Other names are ignored.
    ///
    /// # Errors
    /// An I/O error of the disk.
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

    /// Waits until no other agent changes the folder, and removes what a killed agent left incomplete.
    pub(super) fn lock(&self) -> Result<File> {
        self.make_root()?;
        let path = self.root.join(LOCK_FILE);
        let lock =
            File::options().create(true).append(true).open(&path).map_err(Error::disk("make", &path))?;
        lock.lock().map_err(Error::disk("lock", &path))?;
        for item in fs::read_dir(&self.root).map_err(Error::disk("read", &self.root))? {
            let item = item.map_err(Error::disk("read", &self.root))?;
            if item.file_name().to_string_lossy().starts_with(files::UNFINISHED) {
                files::remove(&item.path())?;
            }
        }
        Ok(lock)
    }

    fn make_root(&self) -> Result<()> {
        let root = &self.root;
        if let Some(parent) = root.parent() {
            fs::create_dir_all(parent).map_err(Error::disk("make", parent))?;
        }
        // Another agent may create it between our check and our attempt. Only the final state counts.
        let made = fs::create_dir(root);
        if check_folder(root)? { Ok(()) } else { made.map_err(Error::disk("make", root)) }
    }

    fn create(&self, folder: &Path, version: &Version, files: &[FileSpec<'_>]) -> Result<()> {
        let unfinished = self.root.join(format!("{}{version}", files::UNFINISHED));
        files::make_folder(&unfinished, FOLDER_MODE)?;
        for wanted in files {
            files::write_file(&unfinished, wanted)?;
        }
        files::sync_folder(&unfinished)?;
        fs::rename(&unfinished, folder).map_err(Error::disk("put in place", folder))?;
        files::sync_folder(&self.root)
    }
}

/// Checks that a folder is ours, and sets its mode. `false` if it does not exist.
fn check_folder(path: &Path) -> Result<bool> {
    match files::find(path)? {
        Found::Nothing => Ok(false),
        Found::Folder(about) => {
            files::check_owner(path, &about, "a folder")?;
            files::set_mode(path, &about, FOLDER_MODE).map(|()| true)
        }
        Found::File(_) => Err(foreign_entry(path, "a file", "a folder")),
        Found::Other(found) => Err(foreign_entry(path, found, "a folder")),
    }
}

/// Replaces damaged files one by one. Pods that have the folder mounted see intact files again.
fn repair(folder: &Path, files: &[FileSpec<'_>]) -> Result<()> {
    for wanted in files {
        let path = folder.join(wanted.name);
        match files::find(&path)? {
            Found::Nothing => files::write_file(folder, wanted)?,
            Found::File(about) => {
                files::check_owner(&path, &about, "a file")?;
                let content = fs::read(&path).map_err(Error::disk("read", &path))?;
                if content == wanted.content {
                    files::set_mode(&path, &about, wanted.mode)?;
                } else {
                    tracing::warn!(path = %path.display(), "replacing a damaged file");
                    files::write_file(folder, wanted)?;
                }
            }
            Found::Folder(_) => return Err(foreign_entry(&path, "a folder", "a file")),
            Found::Other(found) => return Err(foreign_entry(&path, found, "a file")),
        }
    }
    files::sync_folder(folder)
}

fn foreign_entry(path: &Path, found: &str, wanted: &'static str) -> Error {
    Error::ForeignEntry { path: path.to_owned(), found: found.to_owned(), wanted }
}
