//! The library folder on a host's disk.

use sluice_node_agent::library::{Error, Installed, Library, Version};
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use tempfile::TempDir;

const OLD: &[u8] = b"\x7fELF, the old one";
const NEW: &[u8] = b"\x7fELF, the new one";

struct Host {
    library: Library,
    root: PathBuf,
    disk: TempDir,
}

impl Host {
    fn new() -> Self {
        let disk = tempfile::tempdir().unwrap();
        let root = disk.path().join("sluice/lib");
        Self { library: Library::new(&root), root, disk }
    }

    /// Installs this library, as an agent with this image does.
    fn install(&self, content: &[u8]) -> Result<Installed, Error> {
        let source = tempfile::NamedTempFile::new().unwrap();
        fs::write(source.path(), content).unwrap();
        self.library.install(source.path())
    }

    fn folder(&self, content: &[u8]) -> PathBuf {
        self.root.join(Version::of(content))
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap()).collect()
}

/// Asserts that the version is complete and contains no other file.
fn assert_whole(host: &Host, content: &[u8]) {
    let folder = host.folder(content);
    assert_eq!(
        names(&folder),
        BTreeSet::from(["ld.so.preload", "libsluice.so", "node.env"].map(str::to_owned))
    );
    assert_eq!(fs::read(folder.join("libsluice.so")).unwrap(), content);
    let preload = fs::read_to_string(folder.join("ld.so.preload")).unwrap();
    assert_eq!(preload, format!("/usr/lib/sluice/{}/libsluice.so\n", Version::of(content)));
    let modes = [&host.root, &folder, &folder.join("libsluice.so"), &folder.join("ld.so.preload")]
        .map(|path| mode(path));
    assert_eq!(modes, [0o755, 0o755, 0o755, 0o644]);
}

#[test]
fn versions_coexist_and_intact_files_are_not_touched() {
    let host = Host::new();
    host.install(OLD).unwrap();
    let files = ["libsluice.so", "ld.so.preload"].map(|name| host.folder(OLD).join(name));
    let before = files.clone().map(|file| (inode(&file), fs::metadata(&file).unwrap().ctime_nsec()));
    host.install(NEW).unwrap();
    host.install(OLD).unwrap();
    assert_eq!(before, files.map(|file| (inode(&file), fs::metadata(&file).unwrap().ctime_nsec())));
    assert_whole(&host, OLD);
    assert_whole(&host, NEW);
    assert_eq!(host.library.versions().unwrap(), BTreeSet::from([Version::of(OLD), Version::of(NEW)]));
}

#[test]
fn only_damaged_files_are_replaced() {
    let host = Host::new();
    let installed = host.install(OLD).unwrap();
    let (library, preload) = (host.folder(OLD).join("libsluice.so"), installed.preload_file());
    fs::write(&library, &OLD[..7]).unwrap();
    let mut mapped_by_a_pod = File::open(&library).unwrap();
    let (folder, whole) = (inode(&host.folder(OLD)), inode(&preload));
    host.install(OLD).unwrap();
    assert_whole(&host, OLD);
    assert_eq!((inode(&host.folder(OLD)), inode(&preload)), (folder, whole), "pods have these mounted");
    let mut still_mapped = Vec::new();
    mapped_by_a_pod.read_to_end(&mut still_mapped).unwrap();
    assert_eq!(still_mapped, OLD[..7], "nothing is written into a file that is in use");
}

#[test]
fn missing_files_and_wrong_modes_are_repaired() {
    let host = Host::new();
    host.install(OLD).unwrap();
    let preload = host.folder(OLD).join("ld.so.preload");
    let library = host.folder(OLD).join("libsluice.so");
    fs::remove_file(&preload).unwrap();
    fs::set_permissions(&library, Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(host.folder(OLD), Permissions::from_mode(0o700)).unwrap();
    host.install(OLD).unwrap();
    assert_whole(&host, OLD);
}

#[test]
fn incomplete_folders_of_a_killed_agent_are_removed() {
    let host = Host::new();
    host.install(OLD).unwrap();
    let unfinished = host.root.join(format!(".unfinished-{}", Version::of(NEW)));
    fs::create_dir(&unfinished).unwrap();
    fs::write(unfinished.join(".unfinished-libsluice.so"), "half").unwrap();
    fs::write(host.folder(OLD).join(".unfinished-libsluice.so"), "half").unwrap();
    fs::write(host.folder(OLD).join("libsluice.so"), "damaged").unwrap();
    host.install(OLD).unwrap();
    host.install(NEW).unwrap();
    assert!(!unfinished.exists());
    assert_whole(&host, OLD);
    assert_whole(&host, NEW);
}

#[test]
fn foreign_entries_are_reported_and_kept() {
    let elsewhere = tempfile::tempdir().unwrap();
    type Put = fn(&Host, &Path);
    let cases: [(&str, Put); 5] = [
        ("a symbolic link, where a folder", |host, elsewhere| symlink(elsewhere, host.folder(OLD)).unwrap()),
        ("a file, where a folder", |host, _| fs::write(host.folder(OLD), "precious").unwrap()),
        ("a symbolic link, where a file", |host, elsewhere| {
            fs::create_dir(host.folder(OLD)).unwrap();
            symlink(elsewhere.join("x"), host.folder(OLD).join("libsluice.so")).unwrap();
        }),
        ("a folder, where a file", |host, _| {
            fs::create_dir_all(host.folder(OLD).join("ld.so.preload")).unwrap()
        }),
        ("a symbolic link, where a folder", |host, elsewhere| {
            fs::remove_dir(&host.root).unwrap();
            symlink(elsewhere, &host.root).unwrap();
        }),
    ];
    for (found, put) in cases {
        let host = Host::new();
        fs::create_dir_all(&host.root).unwrap();
        put(&host, elsewhere.path());
        let error = host.install(OLD).unwrap_err();
        assert!(matches!(error, Error::ForeignEntry { .. }), "{error}");
        assert!(error.to_string().contains(found), "{error} should say {found:?}");
        assert_eq!(names(elsewhere.path()), BTreeSet::new(), "nothing is written through a link");
    }
}

#[test]
fn image_without_library_is_reported() {
    let host = Host::new();
    assert!(
        host.install(b"").unwrap_err().to_string().ends_with("is no shared library: the image is damaged")
    );
    let absent = host.library.install(Path::new("/nonexistent/libsluice.so")).unwrap_err().to_string();
    assert!(absent.starts_with("cannot read /nonexistent/libsluice.so: "), "{absent}");
    assert!(!host.disk.path().join("sluice").exists());
}

#[test]
fn concurrent_installs_end_with_complete_versions() {
    let host = Arc::new(Host::new());
    for _ in 0..20 {
        let start = Arc::new(Barrier::new(4));
        let agents: Vec<_> = [OLD, NEW, OLD, NEW]
            .into_iter()
            .map(|content| {
                let (host, start) = (Arc::clone(&host), Arc::clone(&start));
                std::thread::spawn(move || {
                    start.wait();
                    host.install(content).unwrap()
                })
            })
            .collect();
        let installed: Vec<_> = agents.into_iter().map(|agent| agent.join().unwrap()).collect();
        assert_whole(&host, OLD);
        assert_whole(&host, NEW);
        drop(installed);
        assert_eq!(host.library.collect(&BTreeSet::new()).unwrap().len(), 2);
        assert_eq!(names(&host.root), BTreeSet::from([".lock".to_owned()]));
    }
}

#[test]
fn only_unused_versions_are_collected() {
    let host = Host::new();
    let in_use: &[u8] = b"\x7fELF, in use";
    drop((host.install(OLD).unwrap(), host.install(in_use).unwrap()));
    let current = host.install(NEW).unwrap();
    fs::write(host.root.join("README"), "of the administrator").unwrap();
    let collected = host.library.collect(&BTreeSet::from([Version::of(in_use)])).unwrap();
    assert_eq!(collected, BTreeSet::from([Version::of(OLD)]));
    assert!(!host.folder(OLD).exists() && host.root.join("README").exists());
    assert_whole(&host, in_use);
    assert_whole(&host, NEW);

    drop(current);
    assert_eq!(
        host.library.collect(&BTreeSet::new()).unwrap().len(),
        2,
        "what held the current one was the agent's claim"
    );
}

#[test]
fn installed_version_is_not_collected_by_another_agent() {
    let host = Host::new();
    let claims = [host.install(NEW).unwrap(), host.install(NEW).unwrap()];
    let other_agent = Library::new(&host.root);
    let [one, other] = claims;
    let clone = one.clone();
    drop((one, other));
    assert_eq!(other_agent.collect(&BTreeSet::new()).unwrap(), BTreeSet::new());
    assert_whole(&host, NEW);
    drop(clone);
    assert_eq!(other_agent.collect(&BTreeSet::new()).unwrap(), BTreeSet::from([Version::of(NEW)]));
}
