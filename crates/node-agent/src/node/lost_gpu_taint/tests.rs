use super::*;

fn node(taints: &Value) -> Node {
    serde_json::from_value(json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": taints}})).unwrap()
}

#[test]
fn taint_is_set_and_removed_beside_those_of_others() {
    let foreign = json!({"key": "pool", "value": "gpu", "effect": "NoSchedule"});
    let ours = |effect: &str| json!({"key": "sluice.dev/gpu-lost", "effect": effect});
    let patch_to =
        |taints: &Value| Some(json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": taints}}));
    let bare = node(&json!([foreign]));
    assert_eq!(patch(&bare, WantedTaint::Absent), None);
    let preferred = json!([foreign, ours("PreferNoSchedule")]);
    assert_eq!(patch(&bare, WantedTaint::Set(LostGpuTaint::PreferNoSchedule)), patch_to(&preferred));
    let tainted = node(&preferred);
    assert_eq!(patch(&tainted, WantedTaint::Set(LostGpuTaint::PreferNoSchedule)), None);
    assert_eq!((patch(&bare, WantedTaint::Keep), patch(&tainted, WantedTaint::Keep)), (None, None));
    let refused = json!([foreign, ours("NoSchedule")]);
    assert_eq!(patch(&tainted, WantedTaint::Set(LostGpuTaint::NoSchedule)), patch_to(&refused));
    assert_eq!(patch(&tainted, WantedTaint::Absent), patch_to(&json!([foreign])));
}

#[test]
fn node_without_taints_gets_one() {
    let wanted = json!([{"key": "sluice.dev/gpu-lost", "effect": "NoSchedule"}]);
    let change = patch(&Node::default(), WantedTaint::Set(LostGpuTaint::NoSchedule)).unwrap();
    assert_eq!(change["spec"]["taints"], wanted);
}
