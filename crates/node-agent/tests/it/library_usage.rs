//! Which versions of the library pods use, by kubelet's checkpoint and by mounts.
//!
//! The checkpoints in tests/checkpoints were written by kubelet's own code (package devicemanager/checkpoint of
//! k8s.io/kubernetes v1.34.4): two containers of ours with the versions aaa… and bbb…, one of another plugin with ccc….

use sluice_node_agent::library::{
    CollectError, Collector, Installed, Library, Usage, UsageError, Version, collect_periodically,
};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const HOUR: Duration = Duration::from_secs(3600);
const UNUSED: &[u8] = b"\x7fELF, unused";
const CURRENT: &[u8] = b"\x7fELF, current";

/// A host with processes and a kubelet, as folders.
struct Host {
    disk: TempDir,
    usage: Usage,
}

impl Host {
    fn new(checkpoint: &str) -> Self {
        let disk = tempfile::tempdir().unwrap();
        let usage = Usage {
            proc: disk.path().join("proc"),
            checkpoint: disk.path().join("kubelet_internal_checkpoint"),
        };
        fs::write(&usage.checkpoint, checkpoint).unwrap();
        let host = Self { disk, usage };
        host.add_process("1", "22 27 0:21 / /proc rw,relatime - proc proc rw\n");
        fs::create_dir(host.usage.proc.join("sys")).unwrap();
        host
    }

    fn add_process(&self, pid: &str, mountinfo: &str) -> PathBuf {
        let process = self.usage.proc.join(pid);
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("mountinfo"), mountinfo).unwrap();
        process
    }
}

fn version(digit: char) -> Version {
    Version::parse(&digit.to_string().repeat(64)).unwrap()
}

fn checkpoint(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checkpoints").join(name)).unwrap()
}

#[test]
fn versions_in_kubelets_checkpoint_are_in_use() {
    let host = Host::new(&checkpoint("three_pods.json"));
    assert_eq!(host.usage.versions().unwrap(), BTreeSet::from([version('a'), version('b')]));
    let host = Host::new(&checkpoint("no_pods.json"));
    assert_eq!(host.usage.versions().unwrap(), BTreeSet::new());
}

#[test]
fn mounted_versions_are_in_use_without_checkpoint_entry() {
    let host = Host::new(&checkpoint("no_pods.json"));
    // As recorded from containers: on the root file system, and where /var/lib is a file system of its own.
    let [d, e] = [version('d'), version('e')];
    host.add_process(
        "417",
        &format!(
            "612 590 254:1 /var/lib/sluice/lib/{d} /usr/lib/sluice/{d} ro,relatime - ext4 /dev/vda1 rw\n"
        ),
    );
    host.add_process(
        "418",
        &format!("613 590 254:2 /sluice/lib/{e}/ld.so.preload /etc/ld.so.preload ro - xfs /dev/vdb rw\n"),
    );
    assert_eq!(host.usage.versions().unwrap(), BTreeSet::from([d, e]));
}

#[test]
fn processes_that_end_during_the_scan_are_ignored() {
    let host = Host::new(&checkpoint("no_pods.json"));
    fs::remove_file(host.add_process("419", "").join("mountinfo")).unwrap();
    assert_eq!(host.usage.versions().unwrap(), BTreeSet::new());
}

#[test]
fn the_processes_of_this_machine_can_be_read() {
    let usage = Usage { proc: "/proc".into(), ..Host::new("").usage };
    let disk = tempfile::tempdir().unwrap();
    let checkpoint_file = disk.path().join("checkpoint");
    fs::write(&checkpoint_file, checkpoint("no_pods.json")).unwrap();
    let usage = Usage { checkpoint: checkpoint_file, ..usage };
    usage.versions().unwrap();
}

#[test]
fn unreadable_sources_are_errors() {
    let good = checkpoint("three_pods.json");
    let cases = [
        (String::new(), "EOF"),
        (good[..good.len() / 2].to_owned(), "EOF"),
        (good.replace("PodDeviceEntries", "Entries"), "missing field `PodDeviceEntries`"),
        (good.replace("\"AllocResp\"", "\"Answer\""), "missing field `AllocResp`"),
        (
            good.replacen("\"AllocResp\":\"", "\"AllocResp\":\"AAAA", 1),
            "pod 5d4c7a9e-6b1f-4c6e-9f10-0a8f3f0d2c11, container train",
        ),
        (good.replacen("\"AllocResp\":\"", "\"AllocResp\":\"*", 1), "Invalid symbol"),
        (no_answer(&good), "its mounts name no version of the library"),
    ];
    for (text, why) in cases {
        let error = Host::new(&text).usage.versions().unwrap_err();
        assert!(matches!(error, UsageError::Checkpoint { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error} should say {why:?}");
    }
    let host = Host::new(&good);
    fs::remove_file(&host.usage.checkpoint).unwrap();
    assert!(matches!(host.usage.versions(), Err(UsageError::Read { .. })), "an absent one is no answer");
    let host = Host::new(&good);
    symlink("mountinfo", host.add_process("420", "").join("loop")).unwrap();
    fs::remove_file(host.usage.proc.join("420/mountinfo")).unwrap();
    symlink("mountinfo", host.usage.proc.join("420/mountinfo")).unwrap();
    assert!(
        matches!(host.usage.versions(), Err(UsageError::Read { .. })),
        "an unreadable process is no answer"
    );
}

/// Replaces the first answer in the checkpoint by an empty one.
fn no_answer(checkpoint: &str) -> String {
    let (before, rest) = checkpoint.split_once("\"AllocResp\":\"").unwrap();
    let (_answer, after) = rest.split_once('"').unwrap();
    format!("{before}\"AllocResp\":\"\"{after}")
}

/// Two versions: one in kubelet's checkpoint, one that is unused.
fn library_on(host: &Host) -> (Library, Version) {
    let library = Library::new(host.disk.path().join("lib"));
    let source = host.disk.path().join("libsluice.so");
    fs::write(&source, UNUSED).unwrap();
    let unused = library.install(&source).unwrap().version;
    fs::create_dir(host.disk.path().join("lib").join(version('a'))).unwrap();
    (library, unused)
}

/// Installs a third version, the agent's own.
fn current(host: &Host, library: &Library) -> Installed {
    let source = host.disk.path().join("libsluice.so");
    fs::write(&source, CURRENT).unwrap();
    library.install(&source).unwrap()
}

fn collector(host: &Host, library: &Library) -> Collector {
    Collector::new(library.clone(), current(host, library), host.usage.clone())
}

#[test]
fn version_unused_in_two_rounds_is_removed() {
    let host = Host::new(&checkpoint("three_pods.json"));
    let (library, unused) = library_on(&host);
    let mut collector = collector(&host, &library);
    assert_eq!(collector.round().unwrap(), BTreeSet::new(), "kubelet may just be writing it down");
    let ended = host.add_process(
        "417",
        &format!("612 590 254:1 /lib/{unused} /usr/lib/sluice/{unused} ro - ext4 /dev/vda1 rw\n"),
    );
    assert_eq!(collector.round().unwrap(), BTreeSet::new(), "in use again");
    fs::remove_dir_all(ended).unwrap();
    assert_eq!(collector.round().unwrap(), BTreeSet::new(), "unused for the first time again");
    assert_eq!(collector.round().unwrap(), BTreeSet::from([unused]));
    assert_eq!(collector.round().unwrap(), BTreeSet::new());
    assert_eq!(library.versions().unwrap(), BTreeSet::from([version('a'), Version::of(CURRENT)]));
}

#[test]
fn nothing_is_removed_while_the_checkpoint_is_unreadable() {
    let host = Host::new(&checkpoint("three_pods.json"));
    let (library, unused) = library_on(&host);
    let mut collector = collector(&host, &library);
    collector.round().unwrap();
    fs::write(&host.usage.checkpoint, "not what it was").unwrap();
    assert!(matches!(collector.round(), Err(CollectError::Usage(_))));
    fs::write(&host.usage.checkpoint, checkpoint("three_pods.json")).unwrap();
    assert_eq!(collector.round().unwrap(), BTreeSet::new(), "what it saw before the trouble does not count");
    assert!(library.versions().unwrap().contains(&unused));
}

#[tokio::test]
async fn collecting_ends_with_stop_and_releases_its_version() {
    let host = Host::new(&checkpoint("three_pods.json"));
    let (library, _) = library_on(&host);
    let stop = CancellationToken::new();
    let collecting = tokio::spawn(collect_periodically(
        library.clone(),
        current(&host, &library),
        host.usage.clone(),
        HOUR,
        stop.clone(),
    ));
    let unclaimed = BTreeSet::from([version('a'), Version::of(UNUSED)]);
    assert_eq!(library.collect(&unclaimed).unwrap(), BTreeSet::new());
    stop.cancel();
    collecting.await.unwrap();
    assert_eq!(library.collect(&unclaimed).unwrap(), BTreeSet::from([Version::of(CURRENT)]));
}
