//! Any text is a cgroup file or refused. No name that a tenant can give below its container changes the pod that is read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_core::pod_cgroup::pod_of;

const UID: &str = "0b6b5d2c-6a4e-4f0b-9d7e-3f1c2a5b7d90";
const CONTAINER: &str = "4f2a9c61d7e8b3054f2a9c61d7e8b3054f2a9c61d7e8b3054f2a9c61d7e8b305";

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    match pod_of(&text) {
        Ok(pod) => assert!(text.contains(&pod.uid) || text.contains(&pod.uid.replace('-', "_"))),
        Err(error) => assert!(error.to_string().chars().count() < 4096 && !error.to_string().contains('\n')),
    }
    // What the kernel lets a tenant name its cgroups: no line feed, no slash, not itself or its parent.
    let below: Vec<&str> =
        text.split(['/', '\n', '\r', '\0']).filter(|name| !["", ".", ".."].contains(name)).collect();
    let systemd = UID.replace('-', "_");
    for own in [
        format!("/kubepods/burstable/pod{UID}/{CONTAINER}"),
        format!("/kubepods.slice/kubepods-pod{systemd}.slice/cri-containerd-{CONTAINER}.scope"),
        format!("/../../pod{UID}/{CONTAINER}"),
    ] {
        let pod = pod_of(&format!("0::{own}/{}\n", below.join("/"))).expect("the container's own path is in order");
        assert_eq!((pod.uid.as_str(), pod.container.as_deref()), (UID, Some(CONTAINER)));
    }
});
