//! Which container gets the GPU, and what the user hears about it.

use serde_json::{Value, json};

use super::{choice_warnings, patch, patched, pod, refused, validate};
use crate::webhook::review::Decision;

/// A pod with app containers of these names, and annotations of Sluice.
fn with_apps(annotations: &[(&str, &str)], apps: &[&str]) -> Value {
    let containers: Vec<Value> = apps.iter().map(|name| json!({"name": name, "image": "x"})).collect();
    pod(annotations, &json!({"containers": containers}))
}

fn sharing(apps: &[&str]) -> Value {
    with_apps(&[("quota", "0.3")], apps)
}

fn with_default(mut object: Value, name: &str) -> Value {
    object["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = json!(name);
    object
}

/// Names of the app containers that see the GPU after the patch, and have its slot.
fn holders(object: &Value) -> Vec<String> {
    let has_slot = |container: &&Value| container["resources"]["limits"]["sluice.dev/gpu"] == "1";
    let sees_gpu = |container: &&Value| container["env"][0].get("valueFrom").is_some();
    let containers = patched(object)["spec"]["containers"].as_array().unwrap().clone();
    let with_slot: Vec<_> = containers.iter().filter(has_slot).collect();
    assert_eq!(with_slot, containers.iter().filter(sees_gpu).collect::<Vec<_>>());
    with_slot.iter().map(|container| container["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn sidecar_of_gcsfuse_that_stands_first_gets_no_gpu() {
    let mut object = pod(
        &[("quota", "0.5"), ("memory", "16Gi")],
        &json!({
            "containers": [
                {"name": "gke-gcsfuse-sidecar", "image": "gcs-fuse", "args": ["--v=5"]},
                {"name": "trainer", "image": "pytorch", "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            ],
            "volumes": [{"name": "data", "csi": {"driver": "gcsfuse.csi.storage.gke.io"}}],
        }),
    );
    object["metadata"]["annotations"]["gke-gcsfuse/volumes"] = json!("true");
    assert_eq!(holders(&object), ["trainer"]);
    assert_eq!(
        choice_warnings(&object),
        ["container trainer gets the GPU: gke-gcsfuse-sidecar is added by GKE's Cloud Storage FUSE driver; \
          sluice.dev/container: trainer states the choice"]
    );
}

#[test]
fn proxy_of_linkerd_that_stands_first_gets_no_gpu() {
    let object = pod(
        &[("quota", "0.2"), ("memory", "4Gi"), ("priority", "latency-critical")],
        &json!({
            "initContainers": [{"name": "linkerd-init", "image": "linkerd-init"}],
            "containers": [
                {"name": "linkerd-proxy", "image": "linkerd-proxy"},
                {"name": "server", "image": "triton"},
            ],
        }),
    );
    assert_eq!(holders(&object), ["server"]);
    assert_eq!(
        choice_warnings(&object),
        [
            "container server gets the GPU: linkerd-proxy is added by Linkerd; sluice.dev/container: server states the choice"
        ]
    );
}

#[test]
fn injected_sidecars_are_left_out_wherever_they_stand() {
    for sidecar in [
        "istio-proxy",
        "kuma-sidecar",
        "consul-dataplane",
        "envoy-sidecar",
        "vault-agent",
        "datadog-agent-injected",
        "fluid-fuse",
        "fluid-fuse-1",
        "linkerd-debug",
        "otc-container",
        "daprd",
        "azwi-proxy",
        "traffic-agent",
        "queue-proxy",
        "autoscaler",
        "oauth-proxy",
    ] {
        assert_eq!(holders(&sharing(&[sidecar, "main"])), ["main"], "{sidecar} first");
        assert_eq!(holders(&sharing(&["main", sidecar])), ["main"], "{sidecar} last");
    }
    assert_eq!(
        choice_warnings(&sharing(&["gke-gcsfuse-sidecar", "istio-proxy", "main"])),
        [
            "container main gets the GPU: gke-gcsfuse-sidecar is added by GKE's Cloud Storage FUSE driver, istio-proxy is added \
          by Istio; sluice.dev/container: main states the choice"
        ]
    );
}

#[test]
fn several_containers_of_which_nothing_names_one_are_refused() {
    assert_eq!(
        refused(&sharing(&["istio-proxy", "web", "main"])),
        "sluice.dev/container is missing: one of web, main: the pod has several containers, and nothing names the one that \
         gets the GPU"
    );
    assert!(refused(&sharing(&["istio-proxy", "vault-agent"])).contains("one of istio-proxy, vault-agent:"));
    // A longer name is not an injector's; only a number may follow Fluid's.
    for mine in ["fluid-fusion", "fluid-fuse-train", "fluid-fuse-", "fluid-fuse1"] {
        assert!(refused(&sharing(&[mine, "main"])).contains(&format!("one of {mine}, main:")), "{mine}");
    }
    assert!(refused(&sharing(&["istio-proxy-2", "main"])).contains("one of istio-proxy-2, main:"));
}

#[test]
fn default_container_is_chosen_with_a_warning() {
    let object = with_default(sharing(&["web", "main"]), "main");
    assert_eq!(holders(&object), ["main"]);
    assert_eq!(
        choice_warnings(&object),
        [
            "container main gets the GPU: kubectl.kubernetes.io/default-container names it; sluice.dev/container: main states \
          the choice"
        ]
    );
}

#[test]
fn default_container_that_is_a_sidecar_or_absent_is_not_followed() {
    assert_eq!(holders(&with_default(sharing(&["istio-proxy", "main"]), "istio-proxy")), ["main"]);
    for name in ["istio-proxy", "absent"] {
        let object = with_default(sharing(&["istio-proxy", "web", "main"]), name);
        assert!(refused(&object).starts_with("sluice.dev/container is missing: one of web, main:"), "{name}");
    }
}

#[test]
fn stated_choice_and_only_container_cause_no_warning() {
    let named = with_apps(&[("quota", "0.3"), ("container", "istio-proxy")], &["istio-proxy", "main"]);
    assert_eq!((holders(&named), choice_warnings(&named)), (vec!["istio-proxy".to_owned()], vec![]));
    let mut with_resource = with_default(sharing(&["web", "main"]), "web");
    with_resource["spec"]["containers"][1]["resources"] = json!({"limits": {"sluice.dev/gpu": "1"}});
    assert_eq!((holders(&with_resource), choice_warnings(&with_resource)), (vec!["main".to_owned()], vec![]));
    for only in ["main", "istio-proxy"] {
        let mut object = sharing(&[only]);
        object["spec"]["initContainers"] =
            json!([{"name": "linkerd-proxy", "image": "x", "restartPolicy": "Always"}]);
        assert_eq!((holders(&object), choice_warnings(&object)), (vec![only.to_owned()], vec![]));
    }
}

#[test]
fn choice_is_kept_if_an_injector_adds_containers_afterwards() {
    for name in ["istio-proxy", "unknown-proxy"] {
        let mut object = patched(&sharing(&["linkerd-proxy", "main"]));
        assert_eq!(object["metadata"]["annotations"]["sluice.dev/container"], "main");
        let containers = object["spec"]["containers"].as_array_mut().unwrap();
        containers.insert(0, json!({"name": name, "image": "proxy"}));
        object["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = json!(name);
        assert_eq!(choice_warnings(&object), Vec::<String>::new());
        let void = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]);
        assert_eq!(patch(&object), json!([{"op": "add", "path": "/spec/containers/0/env", "value": void}]));
        assert_eq!(holders(&object), ["main"]);
        let fine = Decision::Admitted { patch: Vec::new(), warnings: Vec::new() };
        assert_eq!(validate(&patched(&object)), fine);
    }
}
