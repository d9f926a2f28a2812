//! Compares our copies of kubelet's and NRI's definitions with upstream's. A lost or renumbered field would still compile; the
//! other side would only ignore it.
//!
//! The list beside this file was made from upstream's own file. To compare it with upstream again, or with a newer version:
//! `KUBELET_MODULE=$(go mod download -json k8s.io/kubelet@v0.36.3 | jq -r .Dir) cargo test -p sluice-proto`, and with
//! `NRI_MODULE=$(go mod download -json github.com/containerd/nri@v0.11.0 | jq -r .Dir)`.

use std::path::Path;

/// The wire format: every rpc with its types, every field with its number, type and label.
fn wire(folder: &Path, file: &str) -> String {
    let mut lines = Vec::new();
    for file in protox::compile([file], [folder]).expect("the definitions compile").file {
        for service in &file.service {
            for method in &service.method {
                let stream = if method.server_streaming() { "stream " } else { "" };
                let (input, output) = (method.input_type(), method.output_type());
                lines.push(format!("{}.{}: {input} -> {stream}{output}", service.name(), method.name()));
            }
        }
        for message in &file.message_type {
            lines.push(message.name().to_owned());
            for field in &message.field {
                let (label, kind) = (field.label(), field.r#type());
                let (name, number) = (field.name(), field.number());
                let optional = if field.proto3_optional() { " optional" } else { "" };
                let of = field.type_name();
                lines.push(format!("{}.{name} = {number}: {label:?} {kind:?}{of}{optional}", message.name()));
            }
        }
    }
    lines.sort();
    lines.join("\n") + "\n"
}

fn check(ours: &str, list: &str, upstream: &str) {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(wire(crate_folder, ours), list, "{ours} against the list of upstream's fields");
    if let Ok(module) = std::env::var("KUBELET_MODULE") {
        assert_eq!(wire(Path::new(&module), upstream), list, "upstream's {upstream} against our list");
    }
}

#[test]
fn the_device_plugin_api_equals_upstreams() {
    let list = include_str!("deviceplugin_v1beta1.fields");
    check("kubelet/deviceplugin_v1beta1.proto", list, "pkg/apis/deviceplugin/v1beta1/api.proto");
}

#[test]
fn the_api_of_dra_drivers_equals_upstreams() {
    check("kubelet/dra_v1.proto", include_str!("dra_v1.fields"), "pkg/apis/dra/v1/api.proto");
}

#[test]
fn the_registration_of_plugins_equals_upstreams() {
    let list = include_str!("pluginregistration_v1.fields");
    check("kubelet/pluginregistration_v1.proto", list, "pkg/apis/pluginregistration/v1/api.proto");
}

/// Ours has only the fields that the agent uses.
#[test]
fn every_field_of_nri_is_one_of_upstreams() {
    let list = include_str!("nri_api_v1alpha1.fields");
    let upstream: Vec<_> = list.lines().collect();
    let ours = wire(Path::new(env!("CARGO_MANIFEST_DIR")), "nri/api_v1alpha1.proto");
    let foreign: Vec<_> = ours.lines().filter(|line| !upstream.contains(line)).collect();
    assert!(foreign.is_empty(), "not in upstream's definitions: {foreign:#?}");
    if let Ok(module) = std::env::var("NRI_MODULE") {
        assert_eq!(wire(Path::new(&module), "pkg/api/api.proto"), list, "upstream's against our list");
    }
}
