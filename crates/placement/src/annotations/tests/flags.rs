//! Keys that are true or false.

use super::super::{changeable_mistake, keys};
use super::{read, refused};

#[test]
fn memory_of_a_pod_with_one_gpu_may_leave_it() {
    let with = |value| read(&[("memory", "8Gi"), ("memory-overcommit", value)]).demand.overcommits;
    assert!(with("true"));
    assert!(!with("false"));
    assert!(!read(&[("memory", "8Gi")]).demand.overcommits);
    // The quota's part of the memory is an amount like any other.
    assert!(read(&[("quota", "0.7"), ("memory-overcommit", "true")]).demand.overcommits);
    for (pairs, expected) in [
        (
            &[("memory", "8Gi"), ("priority", "latency-critical")][..],
            "not with sluice.dev/priority: latency-critical, whose memory never leaves the GPU",
        ),
        (
            &[("memory", "8Gi"), ("gpus", "2")],
            "only with one GPU: memory that leaves it cannot be mapped on others",
        ),
        (&[("quota", "2")], "only with one GPU: memory that leaves it cannot be mapped on others"),
        (
            &[("memory", "8Gi"), ("gang", "ring")],
            "not beside sluice.dev/gang: the GPUs of a gang map memory of each other",
        ),
        (&[("quota", "1")], "only beside sluice.dev/memory: a whole GPU has no other pods"),
    ] {
        let overcommits = [pairs, &[("memory-overcommit", "true")]].concat();
        let expected = format!("sluice.dev/memory-overcommit: \"true\" is not allowed: {expected}");
        assert_eq!(refused(&overcommits), expected);
        // It is no mistake to say that the memory stays.
        read(&[pairs, &[("memory-overcommit", "false")]].concat());
    }
}

#[test]
fn pod_is_suspended_by_true_and_other_words_are_refused() {
    let with = |value| read(&[("quota", "0.3"), ("suspend", value)]).suspended;
    assert!(with("true"));
    assert!(!with("false"));
    assert!(!read(&[("quota", "0.3")]).suspended);
    for key in ["suspend", "memory-overcommit"] {
        for bad in ["", "yes", "True", "1"] {
            let expected = format!("sluice.dev/{key}: {bad:?} is not allowed: true or false");
            assert_eq!(refused(&[("quota", "0.3"), (key, bad)]), expected);
        }
    }
    assert_eq!(changeable_mistake(keys::SUSPEND, "true"), None);
    let expected = "sluice.dev/suspend: \"now\" is not allowed: true or false";
    assert_eq!(changeable_mistake(keys::SUSPEND, "now").unwrap().to_string(), expected);
}
