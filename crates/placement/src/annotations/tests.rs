//! Annotations: their meaning, and each mistake with its message.

mod flags;

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_units::Share;

use crate::demand::Demand;

use super::keys;
use super::{Amount, Class, GpuRequest, assigned, parse_duration, parse_quantity};

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| (format!("sluice.dev/{key}"), (*value).to_owned())).collect()
}

/// A share in thousandths.
fn share(milli: u32) -> Share {
    Share::from_ppm(milli * 1000).unwrap()
}

fn read(pairs: &[(&str, &str)]) -> GpuRequest {
    GpuRequest::admit(&map(pairs)).unwrap().unwrap()
}

/// The message of the webhook.
fn refused(pairs: &[(&str, &str)]) -> String {
    GpuRequest::admit(&map(pairs)).unwrap_err().to_string()
}

#[test]
fn pod_without_sluice_keys_has_no_request() {
    assert_eq!(GpuRequest::admit(&BTreeMap::new()), Ok(None));
    assert_eq!(GpuRequest::admit(&map(&[("assigned-gpu", "GPU-1")])), Ok(None));
    let other = BTreeMap::from([("prometheus.io/scrape".to_owned(), "true".to_owned())]);
    assert_eq!(GpuRequest::admit(&other), Ok(None));
}

#[test]
fn quota_alone_is_a_share_of_time_and_memory() {
    let request = read(&[("quota", "0.3")]);
    assert_eq!(request.class, Class::BestEffort);
    assert_eq!((request.demand.share, request.limit), (share(300), Share::ONE));
    assert_eq!(request.demand.memory_on(10_001), 3_000);
    assert_eq!(request.demand.gpus, 1);
}

#[test]
fn shares_are_decimals_or_percent() {
    for (text, milli) in [
        ("0.3", 300),
        ("30%", 300),
        ("0.125", 125),
        ("12.5%", 125),
        ("0.3000", 300),
        ("1", 1000),
        ("1.0", 1000),
        ("100%", 1000),
        ("0.001", 1),
        ("0.1%", 1),
    ] {
        let read = read(&[("quota", text)]);
        assert_eq!((read.demand.share, read.limit), (share(milli), Share::ONE), "{text}");
    }
}

#[test]
fn whole_gpus_include_all_of_their_memory() {
    let request = read(&[("quota", "4")]);
    assert_eq!(request.demand, Demand::new(Amount::Whole(4), None));
    assert_eq!((request.demand.gpus, request.demand.memory_on(80 << 30)), (4, 80 << 30));
    assert_eq!(read(&[("quota", "2.0")]).demand, Demand::new(Amount::Whole(2), None));
    assert_eq!(read(&[("quota", "1"), ("gpus", "2")]), read(&[("quota", "2")]));
}

#[test]
fn every_key_is_read() {
    let request = read(&[
        ("priority", "0"),
        ("gpus", "2"),
        ("quota", "50%"),
        ("limit", "0.8"),
        ("memory", "8Gi"),
        ("slo", "1.5ms"),
        ("gpu-model", "NVIDIA H100, NVIDIA-A100"),
        ("gpu-uuid", "GPU-a,MIG-b"),
        ("container", "main,init"),
        ("gang", "ring"),
        ("suspend", "true"),
        ("memory-overcommit", "false"),
    ]);
    let expected = GpuRequest {
        class: Class::LatencyCritical,
        demand: Demand {
            gpus: 2,
            slots: 1,
            share: share(500),
            memory_bytes: Some(8 << 30),
            models: vec!["NVIDIA H100".to_owned(), "NVIDIA-A100".to_owned()],
            uuids: vec!["GPU-a".to_owned(), "MIG-b".to_owned()],
            latency_critical: true,
            overcommits: false,
            gang: None,
            pod_priority: 0,
        },
        limit: share(800),
        slo_ns: Some(1_500_000),
        containers: vec!["main".to_owned(), "init".to_owned()],
        suspended: true,
        gang: Some("ring".to_owned()),
    };
    assert_eq!(request, expected);
}

#[test]
fn each_mistake_names_key_value_and_allowed_values() {
    let share = "a share of one GPU above 0 and at most 1 in thousandths (0.3, 0.125) or percent (30%, 12.5%), \
                 or 2 to 64 whole GPUs (2)";
    for bad in [
        "", "0", "0.0", "-0.1", "+0.3", "1.5", "0.0001", "101%", "0.05%", "65", ".5", "1.", "half", "0,3",
        "1e-1", "NaN", " 0.3",
    ] {
        let expected = format!("sluice.dev/quota: {bad:?} is not allowed: {share}");
        assert_eq!(refused(&[("quota", bad)]), expected);
    }
    let memory = "a Kubernetes quantity of bytes, at least 1Mi and below 16Ei, e.g. 8Gi or 500M";
    for bad in ["", "8GiB", "8gb", "-8Gi", "128m", "0", "1.2.3Gi", "16Ei", "8 Gi", "1e99", "Gi"] {
        let expected = format!("sluice.dev/memory: {bad:?} is not allowed: {memory}");
        assert_eq!(refused(&[("memory", bad)]), expected);
    }
    for (pairs, expected) in [
        (
            &[("quota", "0.3"), ("priority", "urgent")][..],
            "sluice.dev/priority: \"urgent\" is not allowed: latency-critical, high, normal, best-effort, or 0 to 3 \
             (0 is latency-critical)",
        ),
        (
            &[("quota", "0.3"), ("limit", "2")],
            "sluice.dev/limit: \"2\" is not allowed: a share of one GPU above 0 and at most 1 in thousandths (0.8) or \
             percent (80%)",
        ),
        (
            &[("quota", "0.3"), ("limit", "0.2")],
            "sluice.dev/limit: \"0.2\" is not allowed: at least sluice.dev/quota (0.300)",
        ),
        (
            &[("limit", "0.5")],
            "sluice.dev/memory is missing: it may only be left out beside sluice.dev/quota, whose share it then is",
        ),
        (
            &[("quota", "0.3"), ("slo", "5ms")],
            "sluice.dev/slo: \"5ms\" is not allowed: only with sluice.dev/priority: latency-critical",
        ),
        (
            &[("quota", "0.3"), ("priority", "0"), ("slo", "5")],
            "sluice.dev/slo: \"5\" is not allowed: a duration above 0, e.g. 5ms or 1.5s",
        ),
        (
            &[("quota", "2"), ("limit", "0.5"), ("memory", "1Gi"), ("gpu-uuid", "GPU-1")],
            "sluice.dev/limit: \"0.5\" is not allowed: not beside 2 whole GPUs, which come with all time and memory; \
             sluice.dev/memory: \"1Gi\" is not allowed: not beside 2 whole GPUs, which come with all time and memory; \
             sluice.dev/gpu-uuid: \"GPU-1\" is not allowed: at least 2 GPUs, as sluice.dev/quota asks for",
        ),
        (
            &[("quota", "0.3"), ("gpu-model", "A,,B")],
            "sluice.dev/gpu-model: \"A,,B\" is not allowed: GPU models as `sluice.dev/gpu.model` on nodes shows them, \
             comma-separated, none twice",
        ),
        (
            &[("quota", "0.3"), ("gpu-uuid", "0")],
            "sluice.dev/gpu-uuid: \"0\" is not allowed: GPU UUIDs (GPU-… or MIG-…), comma-separated, none twice",
        ),
        (
            &[("quota", "0.3"), ("container", "Main")],
            "sluice.dev/container: \"Main\" is not allowed: names of the pod's containers, comma-separated, none twice",
        ),
        (
            &[("quota", "0.3"), ("gang", "a b")],
            "sluice.dev/gang: \"a b\" is not allowed: a name of lower-case letters, digits and dashes, at most 63",
        ),
        (
            &[("quota", "4"), ("gpus", "2"), ("memory", "8Gi")],
            "sluice.dev/memory: \"8Gi\" is not allowed: not beside 4 whole GPUs, which come with all time and memory; \
             sluice.dev/gpus: \"2\" is not allowed: not beside 4 whole GPUs: sluice.dev/quota is then their number, and not \
             a share of each GPU",
        ),
        (
            &[("quota", "0.3"), ("gpus", "3"), ("gpu-uuid", "GPU-1,GPU-2")],
            "sluice.dev/gpu-uuid: \"GPU-1,GPU-2\" is not allowed: at least 3 GPUs, as sluice.dev/gpus asks for",
        ),
        (
            &[("gpus", "2")],
            "sluice.dev/memory is missing: it may only be left out beside sluice.dev/quota, whose share it then is",
        ),
        (
            &[("quota", "0.3"), ("gpu-modle", "A")],
            "sluice.dev/gpu-modle: \"A\" is not allowed: no such key; did you mean sluice.dev/gpu-model?",
        ),
        (
            &[("qouta", "0.3")],
            "sluice.dev/qouta: \"0.3\" is not allowed: no such key; did you mean sluice.dev/quota?",
        ),
        (
            &[("flavour-of-the-month", "x")],
            "sluice.dev/flavour-of-the-month: \"x\" is not allowed: no such key; there are sluice.dev/priority, \
             sluice.dev/gpus, sluice.dev/quota, sluice.dev/limit, sluice.dev/memory, \
             sluice.dev/memory-overcommit, sluice.dev/slo, sluice.dev/gpu-model, sluice.dev/gpu-uuid, \
             sluice.dev/container, sluice.dev/gang, sluice.dev/suspend",
        ),
    ] {
        assert_eq!(refused(pairs), expected);
    }
}

#[test]
fn share_memory_and_limit_are_those_of_each_of_several_gpus() {
    let request = read(&[("gpus", "2"), ("quota", "0.3"), ("limit", "0.5"), ("memory", "10Gi")]);
    assert_eq!((request.demand.gpus, request.demand.share, request.limit), (2, share(300), share(500)));
    assert_eq!(request.demand.memory_on(80 << 30), 10 << 30);
    let part = read(&[("gpus", "64"), ("quota", "0.25")]);
    assert_eq!((part.demand.gpus, part.demand.memory_on(80 << 30)), (64, 20 << 30));
    assert_eq!(read(&[("gpus", "1"), ("quota", "0.3")]), read(&[("quota", "0.3")]));
    for bad in ["", "0", "65", "+2", "2.0", "all"] {
        let expected = format!("sluice.dev/gpus: {bad:?} is not allowed: a number of GPUs, 1 to 64");
        assert_eq!(refused(&[("gpus", bad), ("quota", "0.3")]), expected);
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = refused(&[
        ("quota", "2x"),
        ("gpus", "two"),
        ("memory", "lots"),
        ("priority", "9"),
        ("gang-size", "2"),
        ("colour", "red"),
    ]);
    for part in [
        "quota: \"2x\"",
        "gpus: \"two\"",
        "gang-size: \"2\"",
        "memory: \"lots\"",
        "priority: \"9\"",
        "colour: \"red\"",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn unknown_keys_are_ignored_outside_the_webhook() {
    let annotations = map(&[("quota", "0.3"), ("from-the-future", "1")]);
    assert!(GpuRequest::from_annotations(&annotations).unwrap().is_some());
    assert!(GpuRequest::admit(&annotations).is_err());
}

#[test]
fn assignment_is_a_list_of_uuids() {
    let of = |text: &str| assigned(&map(&[("assigned-gpu", text)]));
    assert_eq!(assigned(&BTreeMap::new()), Ok(None));
    assert_eq!(of("GPU-1"), Ok(Some(vec!["GPU-1".to_owned()])));
    assert_eq!(of("GPU-1,GPU-2").unwrap().unwrap().len(), 2);
    for bad in ["", "all", "GPU-1,", "GPU-1,GPU-1", "GPU-../x"] {
        assert!(of(bad).is_err(), "{bad:?}");
    }
}

fn any_request() -> impl Strategy<Value = GpuRequest> {
    let shared = (0..=1000u32).prop_flat_map(|quota| {
        (Just(quota), quota.max(1)..=1000, prop::option::of((1u64 << 20)..), 1..=64u32).prop_map(
            |(quota, limit, memory, gpus)| {
                let memory = if quota == 0 { memory.or(Some(1 << 20)) } else { memory };
                (gpus, share(quota), share(limit), memory)
            },
        )
    });
    let whole = (1..=64u32).prop_map(|gpus| (gpus, Share::ONE, Share::ONE, None));
    let amount = prop_oneof![shared, whole];
    let gang = prop::option::of("[a-z]([-a-z0-9]{0,8}[a-z0-9])?");
    (amount, 0..4usize, prop::option::of(1u64..), any::<(bool, bool)>(), gang).prop_map(
        |((gpus, share, limit, memory_bytes), class, slo, (named, overcommits), gang)| {
            let class = Class::ALL[class];
            GpuRequest {
                class,
                demand: Demand {
                    gpus,
                    slots: 1,
                    share,
                    memory_bytes,
                    models: if named { vec!["NVIDIA H100".to_owned()] } else { Vec::new() },
                    uuids: Vec::new(),
                    latency_critical: class == Class::LatencyCritical,
                    overcommits: overcommits
                        && gpus == 1
                        && gang.is_none()
                        && memory_bytes.is_some()
                        && class != Class::LatencyCritical,
                    gang: None,
                    pod_priority: 0,
                },
                limit,
                slo_ns: slo.filter(|_| class == Class::LatencyCritical),
                containers: if named { vec!["a".to_owned(), "b".to_owned()] } else { Vec::new() },
                suspended: named,
                gang,
            }
        },
    )
}

proptest! {
    #[test]
    fn request_reads_back_as_written(request in any_request()) {
        prop_assert_eq!(GpuRequest::admit(&request.to_annotations()), Ok(Some(request)));
    }

    #[test]
    fn any_text_is_read_without_panic(key in 0..keys::USER.len(), text in ".{0,40}", other in "[0-9.eEmkKiMGTP%+-]{0,40}") {
        for value in [text, other] {
            let annotations = BTreeMap::from([(keys::USER[key].to_owned(), value.clone())]);
            let _ = GpuRequest::admit(&annotations);
            let _ = assigned(&BTreeMap::from([(keys::ASSIGNED_GPU.to_owned(), value.clone())]));
            let _ = parse_quantity(&value);
            let _ = parse_duration(&value);
        }
    }

    #[test]
    fn shares_read_back_exactly(milli in 1..=1000u32) {
        let text = format!("{}.{:03}", milli / 1000, milli % 1000);
        let percent = format!("{}.{}%", milli / 10, milli % 10);
        for text in [text, percent] {
            let request = read(&[("quota", &text)]);
            prop_assert_eq!((request.demand.share, request.limit), (share(milli), Share::ONE));
        }
    }

    #[test]
    fn default_memory_is_the_share_rounded_down(milli in 1..=1000u32, gpu: u64) {
        let request = read(&[("quota", &format!("0.{milli:03}").replace("0.1000", "1"))]);
        let memory = request.demand.memory_on(gpu);
        prop_assert!(u128::from(memory) * 1000 <= u128::from(gpu) * u128::from(milli));
        prop_assert!((u128::from(memory) + 1) * 1000 > u128::from(gpu) * u128::from(milli));
    }

    #[test]
    fn binary_and_decimal_suffixes_are_multiplications(number in 0u64..16384, power in 0usize..6) {
        let binary = ["", "Ki", "Mi", "Gi", "Ti", "Pi"][power];
        let decimal = ["", "k", "M", "G", "T", "P"][power];
        let power = u32::try_from(power).unwrap();
        prop_assert_eq!(parse_quantity(&format!("{number}{binary}")), number.checked_mul(1024u64.pow(power)));
        prop_assert_eq!(parse_quantity(&format!("{number}{decimal}")), number.checked_mul(1000u64.pow(power)));
    }
}
