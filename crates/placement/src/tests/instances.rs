//! Instances of a GPU in MIG mode beside GPUs.

use super::fixtures::{GIB, gpu, share, uuid, whole};
use super::{index, refusal, reserved_gpus};
use crate::demand::Demand;
use crate::inventory::{Gpu, MigInstance, NodeInventory};

const MODEL: &str = "NVIDIA H100 80GB HBM3 MIG 1g.10gb";

/// A GPU, and two instances of another one.
fn node(is_shared: bool) -> NodeInventory {
    let instance = |number: u32| Gpu {
        uuid: format!("MIG-a-{number}"),
        model: MODEL.into(),
        memory_bytes: 10 * GIB,
        mig: Some(MigInstance { parent: uuid("a", 1), profile: "1g.10gb".into(), is_shared }),
        ..gpu("a", 1)
    };
    NodeInventory::new(10, vec![gpu("a", 0), instance(0), instance(1)])
}

fn of_model(demand: Demand) -> Demand {
    Demand { models: vec![MODEL.into()], ..demand }
}

#[test]
fn pod_gets_an_instance_only_if_it_names_its_model_or_uuid() {
    let mut index = index(&[("a", node(true))]);
    assert_eq!(reserved_gpus(&mut index, "whole", &whole(1), &["a"]), [uuid("a", 0)]);
    let message = refusal(&mut index, &share(100, Some(GIB)), "a");
    assert!(
        message
            .contains("gpu-1 (MIG-a-0) is a MIG instance, for pods with one GPU that name its model or UUID"),
        "{message}"
    );
    assert_eq!(reserved_gpus(&mut index, "p1", &of_model(share(600, None)), &["a"]), ["MIG-a-0"]);
    let named = Demand { uuids: vec!["MIG-a-1".into()], ..share(300, None) };
    assert_eq!(reserved_gpus(&mut index, "p2", &named, &["a"]), ["MIG-a-1"]);
    // Shares and memory are those of the instance.
    let message = refusal(&mut index, &of_model(share(100, Some(11 * GIB))), "a");
    assert!(message.contains("(MIG-a-0) has 10.0 GiB memory in all, 11.0 GiB asked"), "{message}");
    assert_eq!(reserved_gpus(&mut index, "p3", &of_model(share(700, None)), &["a"]), ["MIG-a-1"]);
}

#[test]
fn pod_with_several_gpus_gets_no_instances_because_cuda_uses_one_in_a_process() {
    let mut index = index(&[("a", node(true))]);
    let two = of_model(Demand { gpus: 2, ..share(100, Some(GIB)) });
    assert!(refusal(&mut index, &two, "a").contains("for pods with one GPU"));
}

#[test]
fn instance_whose_controls_are_not_proven_is_given_to_one_pod() {
    let mut index = index(&[("a", node(false))]);
    let tenth = of_model(share(100, Some(GIB)));
    assert_eq!(reserved_gpus(&mut index, "p1", &tenth, &["a"]), ["MIG-a-0"]);
    assert_eq!(reserved_gpus(&mut index, "p2", &tenth, &["a"]), ["MIG-a-1"]);
    assert!(refusal(&mut index, &tenth, "a").contains("gpu-1 (MIG-a-0) is given to one pod as a whole"));
    assert!(refusal(&mut index, &of_model(whole(1)), "a").contains("is in use by 1 pod"));
    index.release("p1");
    assert_eq!(reserved_gpus(&mut index, "p3", &of_model(whole(1)), &["a"]), ["MIG-a-0"]);
}
