//! Runtimes with a kernel of their own.

use clap::Parser;
use serde_json::{Value, json};

use super::super::arguments::Arguments;
use super::super::plan::Settings;
use super::{Decision, mutate_with, pod, refused, single};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

/// The settings that these flags give.
fn settings(flags: &[&str]) -> Settings {
    Program::parse_from([&["webhook"], flags].concat()).arguments.settings()
}

fn with_class(class: &str) -> Value {
    let mut object = pod(&[("quota", "0.3")], &single());
    object["spec"]["runtimeClassName"] = json!(class);
    object
}

fn is_refused(class: &str, settings: &Settings) -> bool {
    matches!(mutate_with(&with_class(class), settings), Decision::Refused(_))
}

#[test]
fn pod_in_a_sandbox_is_refused_with_the_reason_and_the_remedy() {
    assert_eq!(
        refused(&with_class("gvisor")),
        "spec.runtimeClassName: \"gvisor\" is not allowed: a RuntimeClass whose containers share the node's kernel, or \
         nothing: a sandbox (gvisor, runsc, kata, kata-*) hides the pod's processes from Sluice, so its share and memory \
         would have no limits"
    );
}

#[test]
fn default_list_names_gvisor_and_kata() {
    for class in ["gvisor", "runsc", "kata", "kata-qemu", "kata-mshv-vm-isolation"] {
        assert!(is_refused(class, &settings(&[])), "{class}");
    }
    for class in ["nvidia", "nvidia-cdi", "runc", "katana", "my-gvisor"] {
        assert!(!is_refused(class, &settings(&[])), "{class}");
    }
}

#[test]
fn list_can_be_replaced_or_empty() {
    let own = settings(&["--sandbox-runtime-classes=vm-*,isolated"]);
    assert_eq!(["vm-a", "isolated", "gvisor"].map(|class| is_refused(class, &own)), [true, true, false]);
    assert!(!is_refused("gvisor", &settings(&["--sandbox-runtime-classes="])));
}

#[test]
fn pod_without_a_request_may_run_in_a_sandbox() {
    let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": single()});
    object["spec"]["runtimeClassName"] = json!("gvisor");
    assert_eq!(mutate_with(&object, &settings(&[])), Decision::NotOurs);
}
