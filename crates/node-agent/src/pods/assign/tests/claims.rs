//! Pods with claims, beside annotated ones.

use super::*;
use crate::prepared_claims::{GpuShare, PreparedClaim};

/// A share of a GPU, with annotations given without the prefix of Sluice's keys.
fn share(gpu: &str, annotations: &[(&str, &str)]) -> GpuShare {
    GpuShare {
        gpu: gpu.into(),
        request: "gpu".into(),
        share_id: None,
        annotations: pod("", 0, annotations).annotations,
    }
}

fn claim(uid: &str, pod: &str, shares: Vec<GpuShare>) -> (String, PreparedClaim) {
    let pod_uid = pod.to_owned();
    let claim = PreparedClaim {
        namespace: "ns".into(),
        name: uid.into(),
        pod_uid,
        pod: format!("pod-{pod}"),
        shares,
    };
    (uid.to_owned(), claim)
}

fn of(
    claims: impl IntoIterator<Item = (String, PreparedClaim)>,
    pods: Pods,
    before: &Assignments,
) -> Assignments {
    assign(&pods, &claims.into_iter().collect(), &node(&["GPU-a", "GPU-b"]), before)
}

const THIRD: [(&str, &str); 2] = [("quota", "0.300"), ("memory", "2Gi")];

#[test]
fn claim_becomes_the_same_client_as_an_annotated_pod() {
    let annotations =
        [("quota", "0.3"), ("memory", "2Gi"), ("limit", "0.5"), ("priority", "high"), ("gang", "ring")];
    let annotated = [annotations.as_slice(), &[("assigned-gpu", "GPU-a")]].concat();
    let wanted = first([pod("u", 0, &annotated)], &["GPU-a", "GPU-b"]);
    let claimed =
        of([claim("c", "u", vec![share("GPU-a", &annotations)])], Pods::new(), &Assignments::default());
    assert_eq!(claimed.sets, wanted.sets);
    assert_eq!(claimed.gpus["u"], ["GPU-a"]);
}

#[test]
fn shares_of_a_pod_on_one_gpu_add_up_and_those_on_two_do_not() {
    let limited = [("quota", "0.300"), ("memory", "2Gi"), ("limit", "0.6")];
    let claims = [
        claim("c", "u", vec![share("GPU-a", &limited), share("GPU-b", &THIRD)]),
        claim("d", "u", vec![share("GPU-a", &limited)]),
    ];
    let result = of(claims, Pods::new(), &Assignments::default());
    let [sum] = result.sets["GPU-a"].as_slice() else { panic!("{result:?}") };
    assert_eq!((sum.quota_ppm, sum.limit_ppm, sum.memory_bytes), (600_000, 1_000_000, 4 * GIB));
    assert_eq!(result.sets["GPU-b"][0].quota_ppm, 300_000);
    assert_eq!(result.gpus["u"], ["GPU-a", "GPU-b"]);
}

#[test]
fn shares_of_different_priorities_on_one_gpu_are_refused() {
    let urgent = [("quota", "0.1"), ("memory", "1Gi"), ("priority", "latency-critical")];
    let claims = [claim("c", "u", vec![share("GPU-a", &THIRD), share("GPU-a", &urgent)])];
    let result = of(claims, Pods::new(), &Assignments::default());
    assert!(result.sets["GPU-a"].is_empty());
    let why = result.refused["u"].to_string();
    assert!(why.contains("shares of GPU-a with different priorities"), "{why}");
}

#[test]
fn claim_gets_only_what_annotated_pods_and_earlier_claims_leave() {
    let annotated = all([pod("p", 0, &[("quota", "0.5"), ("memory", "4Gi"), ("assigned-gpu", "GPU-a")])]);
    let held = claim("z", "early", vec![share("GPU-a", &THIRD)]);
    let before = of([held.clone()], annotated.clone(), &Assignments::default());
    assert_eq!(clients(&before, "GPU-a"), ["early", "p"]);
    // By its uid the new claim would come first.
    let result = of([claim("a", "a", vec![share("GPU-a", &THIRD)]), held], annotated, &before);
    assert_eq!(clients(&result, "GPU-a"), ["early", "p"]);
    assert_eq!(result.refused["a"].to_string(), "GPU-a has 0.200 free, 0.300 asked");
}

#[test]
fn assigned_pod_gets_no_second_client_by_a_claim() {
    let annotated = all([pod("u", 0, &[("quota", "0.5"), ("assigned-gpu", "GPU-a")])]);
    let result = of([claim("c", "u", vec![share("GPU-a", &THIRD)])], annotated, &Assignments::default());
    assert_eq!(clients(&result, "GPU-a"), ["u"]);
    assert_eq!(result.sets["GPU-a"][0].quota_ppm, 500_000);
    assert_eq!(result.refused["u"], Refusal::AssignedAndClaimed);
}
