use super::{host_name, is_ours};

#[test]
fn long_pod_name_is_cut_as_kubelet_does() {
    let long = format!("{}-12345678-abcde", "x".repeat(54));
    assert_eq!(host_name(&long), format!("{}-12345678", "x".repeat(54)));
    assert!(is_ours(&format!("{}-12345678_5d0e", "x".repeat(54)), &long));
    assert_eq!(host_name("short-1"), "short-1");
}

#[test]
fn holder_matches_only_the_complete_pod_name() {
    assert!(is_ours("sluice-scheduler-abc-1_5d0e", "sluice-scheduler-abc-1"));
    for other in ["", "sluice-scheduler-abc-1", "sluice-scheduler-abc-10_5d0e", "x_sluice-scheduler-abc-1_"] {
        assert!(!is_ours(other, "sluice-scheduler-abc-1"), "{other}");
    }
}
