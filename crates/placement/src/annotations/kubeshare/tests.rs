//! KubeShare's labels: their translation, and each mistake with its message.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::GpuRequest;
use super::{Translation, translate};

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| (format!("sharedgpu/{key}"), (*value).to_owned())).collect()
}

fn ours(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| (format!("sluice.dev/{key}"), (*value).to_owned())).collect()
}

fn translated(pairs: &[(&str, &str)]) -> Translation {
    translate(&labels(pairs), &BTreeMap::new()).unwrap()
}

fn refused(pairs: &[(&str, &str)]) -> String {
    translate(&labels(pairs), &BTreeMap::new()).unwrap_err().to_string()
}

#[test]
fn request_and_limit_become_quota_and_limit() {
    let all = translated(&[
        ("gpu_request", "0.5"),
        ("gpu_limit", "0.8"),
        ("gpu_mem", "1073741824"),
        ("gpu_model", "Tesla-V100-PCIE-32GB"),
        ("priority", "50"),
        ("group_name", "ring"),
        ("group_headcount", "5"),
        ("group_threshold", "0.5"),
    ]);
    let expected = ours(&[
        ("quota", "0.5"),
        ("limit", "0.8"),
        ("memory", "1073741824"),
        ("gpu-model", "Tesla-V100-PCIE-32GB"),
        ("priority", "high"),
        ("gang", "ring"),
    ]);
    assert_eq!(all, Translation { annotations: expected, warnings: Vec::new() });
    assert!(GpuRequest::admit(&all.annotations).unwrap().is_some());
}

#[test]
fn every_decimal_up_to_one_and_every_whole_number_is_accepted() {
    for (text, quota) in [("0.5", "0.5"), (".5", "0.5"), ("1", "1"), ("1.0", "1"), ("00.250", "0.25")] {
        let found = translated(&[("gpu_request", text), ("gpu_limit", "1.0")]).annotations;
        assert_eq!(found, ours(&[("quota", quota), ("limit", "1")]), "{text}");
    }
    for text in ["2", "2.0", "10", "20.00", "64"] {
        let found = translated(&[("gpu_request", text), ("gpu_limit", text)]).annotations;
        let whole = text.split('.').next().unwrap();
        assert_eq!(found, ours(&[("quota", whole)]), "{text}");
    }
}

#[test]
fn share_finer_than_thousandths_is_rounded_down_with_a_warning() {
    let found = translated(&[("gpu_request", "0.3333"), ("gpu_limit", "0.3333")]);
    assert_eq!(found.annotations, ours(&[("quota", "0.333"), ("limit", "0.333")]));
    let warning = |label: &str| format!("sharedgpu/{label} is rounded down to thousandths: 0.333");
    assert_eq!(found.warnings, [warning("gpu_request"), warning("gpu_limit")]);
}

#[test]
fn pod_without_a_kubeshare_gpu_is_not_translated() {
    for pairs in [
        &[][..],
        &[("priority", "5")],
        &[("gpu_request", "0"), ("gpu_limit", "0.0")],
        &[("gpu_limit", "0"), ("gpu_mem", "1048576")],
        &[("group_name", "x")],
    ] {
        assert_eq!(translated(pairs), Translation::default(), "{pairs:?}");
    }
}

#[test]
fn guarantee_pods_become_high_and_opportunistic_ones_best_effort() {
    for (priority, ours) in [("1", "high"), ("100", "high"), ("0", "best-effort"), ("-1", "best-effort")] {
        let found = translated(&[("gpu_request", "0.5"), ("gpu_limit", "1"), ("priority", priority)]);
        assert_eq!(found.annotations["sluice.dev/priority"], ours);
    }
}

#[test]
fn incomplete_group_is_ignored_and_an_unknown_label_is_reported() {
    let found = translated(&[("gpu_request", "0.5"), ("gpu_limit", "1"), ("group_name", "ring")]);
    assert!(!found.annotations.contains_key("sluice.dev/gang"));
    let found =
        translated(&[("gpu_request", "0.5"), ("gpu_limit", "1"), ("pod_group_name", "ring"), ("x", "1")]);
    assert_eq!(
        found.warnings,
        [
            "label sharedgpu/x has no meaning",
            "label sharedgpu/pod_group_name has no meaning: it is sharedgpu/group_name",
        ]
    );
}

#[test]
fn each_mistake_names_label_value_and_allowed_values() {
    for (pairs, expected) in [
        (
            &[("gpu_request", "half"), ("gpu_limit", "1.5")][..],
            "sharedgpu/gpu_request: \"half\" is not allowed: a decimal from 0 to 1, or a whole number up to 64; \
             sharedgpu/gpu_limit: \"1.5\" is not allowed: a decimal from 0 to 1, or a whole number up to 64",
        ),
        (&[("gpu_request", "0.5")], "sharedgpu/gpu_limit is missing: KubeShare wants it on every GPU pod"),
        (
            &[("gpu_request", "0.5"), ("gpu_limit", "0.4")],
            "sharedgpu/gpu_limit: \"0.4\" is not allowed: at least sharedgpu/gpu_request",
        ),
        (
            &[("gpu_request", "0.5"), ("gpu_limit", "2")],
            "sharedgpu/gpu_limit: \"2\" is not allowed: at most 1 where sharedgpu/gpu_request is at most 1",
        ),
        (
            &[("gpu_request", "2"), ("gpu_limit", "3")],
            "sharedgpu/gpu_limit: \"3\" is not allowed: the same as sharedgpu/gpu_request where that is above 1",
        ),
        (
            &[("gpu_limit", "0.5")],
            "sharedgpu/gpu_mem is missing: it may only be left out beside sharedgpu/gpu_request",
        ),
        (
            &[("gpu_request", "0.0004"), ("gpu_limit", "1")],
            "sharedgpu/gpu_request: \"0.0004\" is not allowed: at least 0.001",
        ),
        (
            &[("gpu_request", "0.5"), ("gpu_limit", "1"), ("gpu_mem", "1Gi"), ("priority", "101")],
            "sharedgpu/gpu_mem: \"1Gi\" is not allowed: a whole number of bytes, at least 1048576 (1 MiB), or 0 \
             for the share's part",
        ),
        (
            &[("gpu_request", "0.5"), ("gpu_limit", "1"), ("priority", "101"), ("group_headcount", "0")],
            "sharedgpu/priority: \"101\" is not allowed: a whole number from -1 to 100; \
             sharedgpu/group_headcount: \"0\" is not allowed: a whole number from 1 to 4096",
        ),
    ] {
        assert_eq!(refused(pairs), expected);
    }
}

#[test]
fn labels_and_annotations_of_one_pod_must_agree() {
    let shared = labels(&[("gpu_request", "0.5"), ("gpu_limit", "1.0"), ("gpu_mem", "1073741824")]);
    let same =
        ours(&[("quota", "50%"), ("limit", "1"), ("memory", "1Gi"), ("priority", "0"), ("slo", "5ms")]);
    assert!(translate(&shared, &same).is_ok());
    let other = ours(&[("quota", "0.4"), ("limit", "0.9"), ("memory", "1G")]);
    let text = translate(&shared, &other).unwrap_err().to_string();
    assert_eq!(
        text,
        "sluice.dev/limit: \"0.9\" is not allowed: the pod's sharedgpu/ labels say \"1\"; keep one of the two; \
         sluice.dev/memory: \"1G\" is not allowed: the pod's sharedgpu/ labels say \"1073741824\"; keep one of the two; \
         sluice.dev/quota: \"0.4\" is not allowed: the pod's sharedgpu/ labels say \"0.5\"; keep one of the two"
    );
}

#[test]
fn conflict_with_an_annotation_shows_the_number_of_the_label() {
    let shared = labels(&[("gpu_request", "0.5"), ("gpu_limit", "2")]);
    let text = translate(&shared, &ours(&[("limit", "0.9")])).unwrap_err().to_string();
    assert_eq!(
        text,
        "sharedgpu/gpu_limit: \"2\" is not allowed: at most 1 where sharedgpu/gpu_request is at most 1; \
         sluice.dev/limit: \"0.9\" is not allowed: the pod's sharedgpu/ labels say \"2\"; keep one of the two"
    );
}

proptest! {
    #[test]
    fn translation_is_valid_and_repeatable(request in "[0-9.]{1,5}", limit in "[0-9.]{1,5}", mem in "[0-9]{1,12}") {
        let shared = labels(&[("gpu_request", &request), ("gpu_limit", &limit), ("gpu_mem", &mem)]);
        if let Ok(found) = translate(&shared, &BTreeMap::new()) {
            prop_assert_eq!(GpuRequest::admit(&found.annotations).unwrap().is_some(), !found.annotations.is_empty());
            prop_assert_eq!(translate(&shared, &found.annotations), Ok(found));
        }
    }

    #[test]
    fn decimals_keep_their_thousandths(milli in 1..=1000u32) {
        let text = format!("{}.{:03}", milli / 1000, milli % 1000);
        let found = translated(&[("gpu_request", &text), ("gpu_limit", "1")]);
        let request = GpuRequest::admit(&found.annotations).unwrap().unwrap();
        let share = sluice_units::Share::from_ppm(milli * 1000).unwrap();
        prop_assert_eq!((request.demand.share, request.limit), (share, sluice_units::Share::ONE));
    }
}
