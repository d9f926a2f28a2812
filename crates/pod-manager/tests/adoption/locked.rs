//! Who cannot be controlled by groups: the driver's lock.

use crate::node::Node;
use crate::support::agent::{pod, uid};
use crate::support::steered::quiet;
use crate::support::{MS, until};
use sluice_pod_manager::adopt::Why;
use std::path::{Path, PathBuf};

/// What makes the locks of a test: writes down what it was told, and how it ended.
fn keeper(folder: &Path) -> (PathBuf, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let (program, log) = (folder.join("keeper"), folder.join("keeper.log"));
    let to = log.display();
    let read = format!("while read line; do echo \"$line\" >> {to}; echo ok; done");
    let script = format!("#!/bin/sh\necho \"$@\" >> {to}\n{read}\necho end >> {to}\n");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (program, log)
}

#[test]
fn who_cannot_be_looked_through_is_held_by_the_drivers_lock() {
    let folder = tempfile::tempdir().unwrap();
    let (program, log) = keeper(folder.path());
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let mut node = Node::with_locks(&[pod(&uid(1)), pod(&uid(2))], Some(program));
    let (_hook, _descriptor) = node.hooked(2, 2);
    node.scout.unreachable(500, &uid(1), Why::TooMany);
    node.scout.unreachable(501, &uid(1), Why::NoGroups);
    until("it is held", || {
        node.look();
        said().contains("lock 500 1000")
    });
    let unsteered = ["too_many", "no_groups"].map(|why| node.unsteered(1, why));
    assert_eq!((node.adopted(1), unsteered), (1.0, [0.0, 1.0]));
    until("it has its turns", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        let words = said();
        words.matches("\nunlock 500").count() > 3 && words.matches("\nlock 500").count() > 3
    });
    let [_, hooked] = node.enabled_ms([1, 2]);
    assert!((4500..=5500).contains(&hooked), "{hooked} ms");
    node.world.stop();
    until("whoever makes the locks is told to end", || said().ends_with("end\n"));
    let words = said();
    assert!(words.starts_with("hold --locks\n") && !words.contains("501"), "{words}");
    node.world.start();
}
