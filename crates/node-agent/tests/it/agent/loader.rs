//! An agent whose library pods could not load.

use std::fs;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;

use super::node::{Node, of_reason};
use crate::support::kubelet::Kubelet;

/// Runs a test on a thread with mounts of its own. The threads that it starts share them. Mounting needs root: without it the
/// test is left out.
fn with_private_mounts<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let run = move || {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS).unwrap();
        let private = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(test());
    };
    std::thread::spawn(run).join().unwrap();
}

#[test]
fn noexec_state_folder_gives_no_slots_and_a_reason_until_the_agent_starts_elsewhere() {
    with_private_mounts(async || {
        let node = Node::with_gpus(1).await;
        let mut kubelet = Kubelet::start(&node.plugin_folder());
        let library = node.library_folder();
        fs::create_dir_all(&library).unwrap();
        mount(Some("none"), &library, Some("tmpfs"), MsFlags::MS_NOEXEC, None::<&str>).unwrap();
        let agent = node.start_agent().await;
        let events = of_reason(&mut node.api.seen(), "LibraryNotLoadable", 1).await;
        let reason = events[0]["note"].as_str().unwrap();
        assert_eq!(events[0]["regarding"]["kind"], "Node");
        assert!(reason.contains("noexec") && reason.contains(library.to_str().unwrap()), "{reason}");
        node.managers_serve().await;
        let has_reason = |status, missing: &str| status == 503 && missing.contains(reason);
        node.page_with("/readyz", "the reason", has_reason).await;
        node.state_with("the reason", |state| state["no_slots_reason"] == reason).await;
        assert!(!kubelet.has_plugin());
        agent.end().await;

        mount(None::<&str>, &library, None::<&str>, MsFlags::MS_REMOUNT, None::<&str>).unwrap();
        let agent = node.start_agent().await;
        assert_eq!(kubelet.next_plugin().await.request.resource_name, "sluice.dev/gpu");
        let has_no_reason = |state: &Value| state.get("no_slots_reason") == Some(&Value::Null);
        node.state_with("no reason", has_no_reason).await;
        agent.end().await;
        umount2(&library, MntFlags::MNT_DETACH).unwrap();
    });
}
