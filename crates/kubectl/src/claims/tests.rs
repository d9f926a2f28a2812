use serde_json::{Value, json};

use super::*;
use crate::cluster_state::{ClusterState, NodeFacts};
use crate::nodes::Nodes;
use crate::text::layout;

fn device(number: u32) -> Value {
    json!({
        "name": format!("gpu-{number}"), "attributes": {"uuid": {"string": format!("GPU-{number}")}, "model": {"string": "NVIDIA H200"}},
        "capacity": {"milli": {"value": "1k"}, "memory": {"value": "80Gi"}, "seats": {"value": "10"}, "critical": {"value": "1"}},
    })
}

fn slices() -> Vec<ResourceSlice> {
    let mut lost = device(1);
    lost["taints"] = json!([{"key": "gpu.sluice.dev/lost", "effect": "NoExecute"}]);
    let of = |driver: &str, node: &str, devices: Value| {
        let spec = json!({"driver": driver, "nodeName": node, "devices": devices, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}});
        serde_json::from_value(json!({"metadata": {"name": node}, "spec": spec})).unwrap()
    };
    vec![of("gpu.sluice.dev", "d", json!([device(0), lost])), of("nic.example.com", "e", json!([device(2)]))]
}

fn claim(pod: &str, results: &[(u32, &str, &str)]) -> ResourceClaim {
    let result = |(gpu, milli, memory): &(u32, &str, &str)| json!({"driver": "gpu.sluice.dev", "pool": "d", "device": format!("gpu-{gpu}"), "request": "gpu", "consumedCapacity": {"milli": milli, "memory": memory}});
    serde_json::from_value(json!({
        "metadata": {"namespace": "ml", "name": "c"}, "spec": {},
        "status": {
            "allocation": {"devices": {"results": results.iter().map(result).collect::<Vec<_>>()}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": format!("uid-{pod}")}],
        },
    }))
    .unwrap()
}

#[test]
fn node_with_claims_is_shown_with_what_its_claims_leave() {
    let claims = [
        claim("train", &[(0, "300", "20Gi"), (1, "300", "20Gi")]),
        // A second claim of the pod adds up on its GPU.
        claim("train", &[(0, "200", "10Gi")]),
        claim("serve", &[(0, "0", "5Gi")]),
    ];
    let state = ClusterState {
        nodes: vec![NodeFacts {
            name: "d".into(),
            inventory: Ok(inventory("d", &slices()).unwrap()),
            is_cordoned: false,
            gives_gpus_by_claims: true,
        }],
        pods: pods_with_shares(&claims, &slices()),
    };
    let expected = "\
NODE  GPUS  MODEL        PROMISED  FREE   LARGEST FREE  LARGEST FREE MEMORY  PODS  HEALTH
d     2     NVIDIA H200  0.800     0.500  0.500         45.0 GiB             3     1 GPU unhealthy: taint gpu.sluice.dev/lost";
    assert_eq!(layout(&Nodes::of(&state).lines()).join("\n"), expected);
}

#[test]
fn devices_of_other_drivers_are_no_gpus() {
    assert_eq!(inventory("e", &slices()), None);
}
