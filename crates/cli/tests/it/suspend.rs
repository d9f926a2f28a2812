//! `sluice suspend` and `sluice resume` on files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

const CLIENTS: &str = "# two trainings\nclients:\n  - { name: a, request: 0.3, memory: 1Gi } # first\n  - name: b\n    request: 0.3\n    memory: 1Gi\n    overcommit: true\n";

fn sluice(command: &str, client: &str, file: &Path, more: &[&str]) -> Output {
    let mut sluice = Command::new(env!("CARGO_BIN_EXE_sluice"));
    sluice.args([command, client, "--resource-file"]).arg(file).args(more).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn file_behind_a_link_is_replaced_with_its_mode_and_resumption_restores_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("clients.yaml"), folder.path().join("link"));
    fs::write(&file, CLIENTS).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    symlink("clients.yaml", &link).unwrap();
    let done = sluice("suspend", "b", &link, &[]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(text(&done.stdout), format!("b is suspended in {}\n", link.display()));
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        CLIENTS.replace("name: b\n", "name: b\n    suspended: true\n")
    );
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(text(&sluice("suspend", "b", &link, &[]).stdout).contains("was suspended"));
    assert!(sluice("resume", "b", &link, &[]).status.success());
    assert_eq!(fs::read_to_string(&file).unwrap(), CLIENTS);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "a temporary file is left");
}

#[test]
fn client_whose_memory_stays_is_reported_and_errors_name_what_was_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clients.yaml");
    fs::write(&file, CLIENTS).unwrap();
    let done = sluice("suspend", "a", &file, &[]);
    assert!(
        text(&done.stdout).contains("a has no overcommit: it gets no time, but its memory stays on the GPU"),
        "{done:?}"
    );
    let refused = sluice("suspend", "c", &file, &[]);
    assert!(
        !refused.status.success() && text(&refused.stderr).contains("found no client \"c\", only a, b"),
        "{refused:?}"
    );
    let missing = sluice("resume", "a", &folder.path().join("none"), &[]);
    assert!(!missing.status.success() && text(&missing.stderr).contains("cannot read"), "{missing:?}");
    let unserved = sluice("resume", "a", &file, &["--wait", "1", "--metrics", "127.0.0.1:1"]);
    assert!(
        !unserved.status.success()
            && text(&unserved.stderr).contains("cannot read http://127.0.0.1:1/metrics"),
        "{unserved:?}"
    );
}
