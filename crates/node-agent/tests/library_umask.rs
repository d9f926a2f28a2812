//! The library folder under unusual umasks. A binary of its own, because the umask belongs to the process.
#![allow(clippy::unwrap_used, reason = "tests")]

use nix::sys::stat::{Mode, umask};
use sluice_node_agent::library::Library;
use std::fs;
use std::os::unix::fs::MetadataExt;

#[test]
fn library_is_readable_for_all_users_under_any_umask() {
    let disk = tempfile::tempdir().unwrap();
    for mask in [0o000, 0o022, 0o077, 0o177, 0o277] {
        let source = disk.path().join("libsluice.so");
        fs::write(&source, format!("\x7fELF {mask}")).unwrap();
        let root = disk.path().join(format!("lib-{mask:o}"));
        let before = umask(Mode::from_bits_truncate(mask));
        let installed = Library::new(&root).install(&source);
        umask(before);
        let installed = installed.unwrap();
        let library = installed.folder.join("libsluice.so");
        let modes = [&root, &installed.folder, &library, &installed.preload_file()]
            .map(|path| format!("{:o}", fs::symlink_metadata(path).unwrap().mode() & 0o7777));
        assert_eq!(modes, ["755", "755", "755", "644"], "umask {mask:o}");
    }
}
