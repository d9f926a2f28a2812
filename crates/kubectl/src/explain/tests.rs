use sluice_placement::inventory::MigInstance;
use sluice_placement::PlacementOutcome;

use super::*;
use crate::test_cluster::{cluster, gpu_mut, node, pod, running};
use crate::text::layout;

fn explain(pod: &PodFacts, state: &ClusterState) -> Explanation {
    Explanation::of(pod, state, Vec::new())
}

fn text(pod: &PodFacts, state: &ClusterState) -> String {
    layout(&explain(pod, state).lines()).join("\n")
}

/// Two GPUs of `a` with 0.6 and 0.7 promised, and `b` with one GPU of which 0.9 is promised.
fn full() -> ClusterState {
    let with = |name: &str, quota: &str| pod(name, &[("quota", quota), ("memory", "1Gi")]);
    let pods = vec![
        running(with("p1", "0.6"), "a", &[0]),
        running(with("p2", "0.3"), "a", &[1]),
        running(with("p3", "0.4"), "a", &[1]),
        running(with("p4", "0.9"), "b", &[0]),
    ];
    cluster(vec![node("a", 2), node("b", 1)], pods)
}

#[test]
fn waiting_pod_gets_the_reason_of_each_node_and_the_pods_in_its_way() {
    let mut waits = pod("waits", &[("quota", "0.5"), ("memory", "8Gi")]);
    waits.scheduling_failure = Some("0/2 nodes are available".to_owned());
    let expected = "\
default/waits waits for a GPU.
It asks for 0.500 of a GPU and 8.0 GiB of its memory; its priority is best-effort.
sluice-scheduler reports: 0/2 nodes are available
Its GPUs fit on none of 2 nodes:
  a: gpu-0 (GPU-a-0) has 0.400 free, 0.500 asked; gpu-1 (GPU-a-1) has 0.300 free, 0.500 asked
    fragmented: 0.700 is free in all, at most 0.400 on one GPU
    fits after the end of default/p1
  b: gpu-0 (GPU-b-0) has 0.100 free, 0.500 asked
    fits after the end of default/p4";
    assert_eq!(text(&waits, &full()), expected);
}

#[test]
fn pod_fits_after_the_end_of_the_pods_that_are_named_and_not_before() {
    let waits = pod("waits", &[("quota", "0.8"), ("memory", "8Gi")]);
    let mut state = full();
    let named = explain(&waits, &state).nodes.remove(0).fits_after_end_of;
    assert_eq!(named.len(), 1, "{named:?}");
    state.pods.retain(|pod| !named.contains(&pod.title()));
    assert!(explain(&waits, &state).nodes[0].fits);
}

#[test]
fn pod_that_is_ending_already_is_named_before_others() {
    let waits = pod("waits", &[("quota", "0.5"), ("memory", "8Gi")]);
    let mut state = full();
    state.pods[2].is_ending = true;
    assert_eq!(explain(&waits, &state).nodes[0].fits_after_end_of, ["default/p3"]);
}

#[test]
fn pod_that_fits_is_told_where_and_to_read_the_schedulers_report() {
    let small = pod("small", &[("quota", "0.4"), ("memory", "1Gi")]);
    let text = text(&small, &full());
    assert!(text.contains("sluice-scheduler has not reported an attempt to place it."), "{text}");
    assert!(text.contains("Its GPUs fit on 1 of 2 nodes. If it stays pending"), "{text}");
    assert!(text.contains("  a: fits, for example on gpu-0\n"), "{text}");
}

#[test]
fn mig_instance_that_fits_is_told_by_its_uuid() {
    let mut split = node("a", 1);
    let instance = gpu_mut(&mut split, 0);
    instance.uuid = "MIG-a".into();
    instance.mig = Some(MigInstance { parent: "GPU-a".into(), profile: "1g.10gb".into(), is_shared: true });
    let small = pod("small", &[("quota", "0.4"), ("memory", "1Gi"), ("gpu-uuid", "MIG-a")]);
    let text = text(&small, &cluster(vec![split], vec![small.clone()]));
    assert!(text.contains("  a: fits, for example on MIG-a\n"), "{text}");
}

#[test]
fn no_end_of_pods_helps_where_the_gpus_are_too_small_unhealthy_or_of_another_model() {
    let mut b = node("b", 1);
    gpu_mut(&mut b, 0).healthy = false;
    let mut c = node("c", 1);
    gpu_mut(&mut c, 0).model = "NVIDIA A2".to_owned();
    let state = cluster(vec![node("a", 1), b, c], Vec::new());
    let big = pod("big", &[("quota", "0.1"), ("memory", "90Gi"), ("gpu-model", "NVIDIA-H100")]);
    let answers = explain(&big, &state).nodes;
    assert!(answers.iter().all(|node| !node.fits && node.fits_after_end_of.is_empty() && !node.fragmented));
    let reasons: Vec<&str> = answers.iter().map(|node| node.reason.as_deref().unwrap()).collect();
    assert!(reasons[0].contains("80.0 GiB memory in all, 90.0 GiB asked"), "{reasons:?}");
    assert!(reasons[1].contains("unhealthy"), "{reasons:?}");
    assert!(reasons[2].contains("no GPU of model NVIDIA-H100 (has NVIDIA A2)"), "{reasons:?}");
}

#[test]
fn each_state_of_a_pod_has_its_sentence() {
    let state = full();
    let request = [("quota", "0.5"), ("memory", "1Gi")];
    let bound = PodFacts { node: Some("a".to_owned()), ..pod("pod", &request) };
    let cases = [
        (pod("pod", &[]), "default/pod asks for no GPU of Sluice"),
        (pod("pod", &[("quota", "much"), ("memory", "x")]), "sluice.dev/memory: \"x\" is not allowed"),
        (PodFacts { phase: "Failed".to_owned(), ..pod("pod", &request) }, "default/pod has ended (Failed)"),
        (PodFacts { is_ending: true, ..pod("pod", &request) }, "default/pod is being deleted"),
        (running(pod("pod", &request), "a", &[1]), "default/pod has GPU-a-1 of a."),
        (PodFacts { scheduler: "other".to_owned(), ..bound }, "was bound to a by other, without a GPU"),
    ];
    for (pod, sentence) in cases {
        let text = text(&pod, &state);
        assert!(text.contains(sentence), "{text:?} lacks {sentence:?}");
        assert!(explain(&pod, &state).nodes.is_empty(), "{sentence}");
    }
}

#[test]
fn json_has_the_state_beside_the_other_fields() {
    let waits = pod("waits", &[("quota", "0.5"), ("memory", "8Gi")]);
    let json = serde_json::to_value(explain(&waits, &full())).unwrap();
    assert_eq!(json["state"], "waiting");
    assert_eq!(json["scheduler"], "sluice-scheduler");
    assert_eq!(json["asks"]["share"], 0.5);
    assert_eq!(json["nodes"][0]["fits_after_end_of"][0], "default/p1");
}

proptest::proptest! {
    /// The oracle: the placement index of an extender that has read the same annotations.
    #[test]
    fn pod_fits_on_exactly_the_nodes_where_the_extender_would_place_it(
        bound in proptest::collection::vec((0..2_u32, 0..2_u32, 1..1000_u32, 1..80_u32), 0..8), quota in 1..=1000_u32,
        gib in 1..90_u32, gpus in 1..3_u32,
    ) {
        let request = |quota: u32, gib: u32, gpus: u32| {
            let quota = format!("{}.{:03}", quota / 1000, quota % 1000);
            [("quota", quota), ("memory", format!("{gib}Gi")), ("gpus", gpus.to_string())]
        };
        let of = |name: &str, request: &[(&'static str, String); 3]| {
            let pairs: Vec<(&str, &str)> = request.iter().map(|(key, value)| (*key, value.as_str())).collect();
            pod(name, &pairs)
        };
        let names = ["a", "b"];
        let pods = bound.iter().enumerate().map(|(at, (node, gpu, quota, gib))| {
            running(of(&format!("p{at}"), &request(*quota, *gib, 1)), names[*node as usize], &[*gpu])
        });
        let state = cluster(names.iter().map(|name| node(name, 2)).collect(), pods.collect());
        let newcomer = of("newcomer", &request(quota, gib, gpus));
        let demand = newcomer.demand().unwrap();
        let answers = explain(&newcomer, &state).nodes;
        for answer in &answers {
            let offer = state.index().reserve("uid-newcomer", &demand, std::iter::once(answer.node.as_str()), 1, 1);
            match offer {
                PlacementOutcome::Reserved(_) => proptest::prop_assert!(answer.fits),
                PlacementOutcome::Refused(reasons) => {
                    proptest::prop_assert_eq!(answer.reason.clone(), Some(reasons[0].1.to_string()));
                    proptest::prop_assert_eq!(answer.fits_after_end_of.is_empty(), !reasons[0].1.is_resolvable());
                }
                other => panic!("{other:?}"),
            }
        }
        let everywhere = state.index().reserve("uid-newcomer", &demand, names.into_iter(), 1, 1);
        let placed = matches!(everywhere, PlacementOutcome::Reserved(_));
        proptest::prop_assert_eq!(placed, answers.iter().any(|answer| answer.fits));
    }
}
