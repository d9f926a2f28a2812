//! Which versions a cleanup counts as in use: those of existing pods and those that are mounted, not those of ended
//! pods in kubelet's checkpoint.

use sluice_node_agent::library::{Usage, Version};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The pod with version bbb… in tests/checkpoints/three_pods.json.
const SERVE: &str = "b3f1d7c2-0e55-4b8a-8a57-6e0c9d1f4e22";

fn version(digit: char) -> Version {
    Version::parse(&digit.to_string().repeat(64)).unwrap()
}

#[test]
fn checkpoint_counts_only_for_existing_pods_and_mounts_always() {
    let disk = tempfile::tempdir().unwrap();
    let proc = disk.path().join("proc");
    fs::create_dir_all(proc.join("417")).unwrap();
    let e = version('e');
    let mount = format!(
        "612 590 254:1 /var/lib/sluice/lib/{e} /usr/lib/sluice/{e} ro,relatime - ext4 /dev/vda1 rw\n"
    );
    fs::write(proc.join("417/mountinfo"), mount).unwrap();
    let checkpoint = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checkpoints/three_pods.json");
    let usage = Usage { proc, checkpoint };

    assert_eq!(usage.versions().unwrap(), BTreeSet::from([version('a'), version('b'), e.clone()]));
    assert_eq!(usage.versions_of(|uid| uid == SERVE).unwrap(), BTreeSet::from([version('b'), e.clone()]));
    assert_eq!(usage.versions_of(|_| false).unwrap(), BTreeSet::from([e]));
}
