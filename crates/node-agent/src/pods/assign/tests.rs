mod claims;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use sluice_placement::inventory::{Gpu, NodeInventory};
use sluice_proto::control::Class;

use super::*;
use crate::gpus::fake;

const GIB: u64 = 1 << 30;

fn node(gpus: &[&str]) -> NodeInventory {
    let gpu = |(index, uuid): (u32, &&str)| Gpu {
        uuid: (*uuid).to_owned(),
        memory_bytes: 10 * GIB,
        ..fake::gpu(index)
    };
    NodeInventory::new(10, (0..).zip(gpus).map(gpu).collect())
}

/// A pod bound at this second, with annotations given without the prefix of Sluice's keys.
fn pod(uid: &str, bound_at: i64, annotations: &[(&str, &str)]) -> PodView {
    PodView {
        uid: uid.to_owned(),
        namespace: "ns".into(),
        name: format!("pod-{uid}"),
        bound_at,
        annotations: annotations
            .iter()
            .map(|(key, value)| (format!("sluice.dev/{key}"), (*value).to_owned()))
            .collect(),
        ..PodView::default()
    }
}

/// Uid, annotations, and a part of the reason.
type Bad<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

fn all(pods: impl IntoIterator<Item = PodView>) -> Pods {
    pods.into_iter().map(|pod| (pod.uid.clone(), Arc::new(pod))).collect()
}

fn first(pods: impl IntoIterator<Item = PodView>, gpus: &[&str]) -> Assignments {
    assign(&all(pods), &PreparedClaims::new(), &node(gpus), &Assignments::default())
}

fn clients<'a>(assignments: &'a Assignments, gpu: &str) -> Vec<&'a str> {
    assignments.sets[gpu].iter().map(|client| client.pod_uid.as_str()).collect()
}

#[test]
fn annotations_become_exact_limits() {
    let annotations = [
        ("quota", "0.125"),
        ("limit", "50%"),
        ("priority", "latency-critical"),
        ("slo", "5ms"),
        ("gang", "ring"),
        ("assigned-gpu", "GPU-a"),
    ];
    let result = first([pod("u", 0, &annotations)], &["GPU-a", "GPU-b"]);
    let wanted = Client {
        pod_uid: "u".into(),
        namespace: "ns".into(),
        pod: "pod-u".into(),
        class: Class::LatencyCritical.into(),
        quota_ppm: 125_000,
        limit_ppm: 500_000,
        memory_bytes: 10 * GIB / 8,
        slo_ns: 5_000_000,
        gang: "ring".into(),
        overcommit: false,
        suspended: false,
    };
    assert_eq!(result.sets["GPU-a"], [wanted]);
    assert!(result.sets["GPU-b"].is_empty() && result.refused.is_empty());
}

#[test]
fn pod_without_quota_has_memory_and_no_guarantee() {
    let annotations = [("memory", "3Gi"), ("priority", "high"), ("assigned-gpu", "GPU-a")];
    let result = first([pod("u", 0, &annotations)], &["GPU-a"]);
    let client = &result.sets["GPU-a"][0];
    assert_eq!((client.quota_ppm, client.limit_ppm, client.memory_bytes), (0, 1_000_000, 3 * GIB));
}

#[test]
fn each_priority_is_the_class_of_the_same_name() {
    let classes = [
        ("latency-critical", Class::LatencyCritical),
        ("high", Class::High),
        ("normal", Class::Normal),
        ("best-effort", Class::BestEffort),
    ];
    for (priority, class) in classes {
        let annotations = [("quota", "0.1"), ("priority", priority), ("assigned-gpu", "GPU-a")];
        let result = first([pod("u", 0, &annotations)], &["GPU-a"]);
        assert_eq!(result.sets["GPU-a"][0].class(), class, "{priority}");
    }
}

#[test]
fn pod_with_whole_gpus_is_a_client_of_each_with_all_resources() {
    let result = first(
        [pod("u", 0, &[("quota", "2"), ("assigned-gpu", "GPU-a,GPU-c")])],
        &["GPU-a", "GPU-b", "GPU-c"],
    );
    for gpu in ["GPU-a", "GPU-c"] {
        let client = &result.sets[gpu][0];
        assert_eq!((client.quota_ppm, client.memory_bytes), (1_000_000, 10 * GIB));
    }
    assert!(result.sets["GPU-b"].is_empty());
    assert_eq!(result.gpus["u"], ["GPU-a", "GPU-c"]);
}

#[test]
fn each_kind_of_invalid_pod_is_refused_with_its_reason_and_others_are_accepted() {
    let assigned = ("assigned-gpu", "GPU-a");
    let good = pod("good", 9, &[("quota", "0.4"), assigned]);
    let bad: [Bad; 7] = [
        ("1", &[("quota", "1.5"), assigned], "sluice.dev/quota: \"1.5\""),
        ("2", &[("quota", "0.1"), ("assigned-gpu", "nonsense")], "sluice.dev/assigned-gpu: \"nonsense\""),
        ("3", &[assigned], "asks for no GPU"),
        ("4", &[("quota", "0.1")], "scheduled by sluice-scheduler"),
        ("5", &[("quota", "0.1"), ("assigned-gpu", "GPU-a,GPU-b")], "asks for 1 GPU(s)"),
        (
            "6",
            &[("quota", "0.1"), ("assigned-gpu", "GPU-z")],
            "GPU-z, which was assigned to it, is not a GPU of this node",
        ),
        ("7", &[("quota", "3"), ("assigned-gpu", "GPU-a,GPU-b")], "asks for 3 GPU(s)"),
    ];
    let pods = bad.iter().map(|(uid, annotations, _)| pod(uid, 0, annotations)).chain([good]);
    let result = first(pods, &["GPU-a", "GPU-b"]);
    for (uid, _, words) in bad {
        let message = result.refused[uid].to_string();
        assert!(message.contains(words), "{message:?} does not contain {words:?}");
    }
    assert_eq!(clients(&result, "GPU-a"), ["good"]);
    assert_eq!(result.refused.len(), 7);
}

#[test]
fn pods_without_our_annotations_are_ignored() {
    let mut strange = pod("u", 0, &[]);
    strange.annotations.insert("other/quota".into(), "0.3".into());
    assert_eq!(first([strange], &["GPU-a"]).refused.len(), 0);
}

#[test]
fn pod_bound_first_keeps_the_gpu_and_a_later_one_learns_what_is_free() {
    let of = |uid, at, quota| pod(uid, at, &[("quota", quota), ("memory", "1Gi"), ("assigned-gpu", "GPU-a")]);
    let result = first([of("c", 1, "0.6"), of("a", 2, "0.6"), of("b", 3, "0.4")], &["GPU-a"]);
    assert_eq!(clients(&result, "GPU-a"), ["b", "c"]);
    assert_eq!(result.refused["a"].to_string(), "GPU-a has 0.400 free, 0.600 asked");
}

#[test]
fn memory_is_promised_only_once() {
    let of = |uid, at| pod(uid, at, &[("quota", "0.1"), ("memory", "6Gi"), ("assigned-gpu", "GPU-a")]);
    let result = first([of("a", 1), of("b", 2)], &["GPU-a"]);
    assert_eq!(clients(&result, "GPU-a"), ["a"]);
    assert!(
        matches!(result.refused["b"], Refusal::NoMemoryLeft { asked, free, .. } if asked == 6 * GIB && free == 4 * GIB)
    );
}

#[test]
fn whole_gpus_are_all_reserved_or_none() {
    let small = pod("a", 1, &[("quota", "0.1"), ("assigned-gpu", "GPU-b")]);
    let whole = pod("b", 2, &[("quota", "2"), ("assigned-gpu", "GPU-a,GPU-b")]);
    let result = first([small, whole], &["GPU-a", "GPU-b"]);
    assert!(result.sets["GPU-a"].is_empty());
    assert!(result.refused["b"].to_string().starts_with("GPU-b has 0.900 free"));
}

#[test]
fn share_of_several_gpus_is_reserved_on_all_of_them_or_on_none() {
    let pair = [
        ("gpus", "2"),
        ("quota", "0.3"),
        ("limit", "0.4"),
        ("memory", "2Gi"),
        ("assigned-gpu", "GPU-a,GPU-b"),
    ];
    let small = pod("a", 1, &[("quota", "0.5"), ("memory", "1Gi"), ("assigned-gpu", "GPU-b")]);
    let result = first([small, pod("b", 2, &pair), pod("c", 3, &pair)], &["GPU-a", "GPU-b", "GPU-c"]);
    for gpu in ["GPU-a", "GPU-b"] {
        let client = result.sets[gpu].iter().find(|client| client.pod_uid == "b").unwrap();
        assert_eq!((client.quota_ppm, client.limit_ppm, client.memory_bytes), (300_000, 400_000, 2 * GIB));
    }
    assert_eq!((clients(&result, "GPU-a"), clients(&result, "GPU-b")), (vec!["b"], vec!["a", "b"]));
    assert_eq!(result.refused["c"].to_string(), "GPU-b has 0.200 free, 0.300 asked");
    // The scheduler subtracts what all three request, one slot of each GPU.
    let requested = |gpu: &str| result.requested.get(gpu).map(|sum| (sum.slots, sum.milli, sum.memory_mib));
    assert_eq!(requested("GPU-a"), Some((2, 600, 4096)));
    assert_eq!(requested("GPU-b"), Some((3, 1100, 5120)));
    assert_eq!(requested("GPU-c"), None);
}

#[test]
fn running_client_is_not_displaced_by_a_pod_bound_in_the_same_second() {
    let of = |uid| pod(uid, 5, &[("quota", "0.7"), ("assigned-gpu", "GPU-a")]);
    let before = first([of("z")], &["GPU-a"]);
    let after = assign(&all([of("a"), of("z")]), &PreparedClaims::new(), &node(&["GPU-a"]), &before);
    assert_eq!(clients(&after, "GPU-a"), ["z"]);
    assert!(after.refused.contains_key("a"));
}

#[test]
fn ended_pod_frees_its_share() {
    let of = |uid, at| pod(uid, at, &[("quota", "0.7"), ("assigned-gpu", "GPU-a")]);
    let before = first([of("a", 1), of("b", 2)], &["GPU-a"]);
    let ended = PodView { has_ended: true, ..of("a", 1) };
    let after = assign(&all([ended, of("b", 2)]), &PreparedClaims::new(), &node(&["GPU-a"]), &before);
    assert_eq!(clients(&after, "GPU-a"), ["b"]);
    assert!(after.refused.is_empty());
}

fn any_pod() -> impl Strategy<Value = PodView> {
    let quota = prop_oneof![
        8 => (1u32..=1000).prop_map(|milli| format!("0.{milli:03}").replace("0.1000", "1")),
        1 => Just("2".to_owned()),
        1 => Just("x".to_owned())
    ];
    let gpus = prop_oneof![
        8 => prop::sample::subsequence(vec!["GPU-a", "GPU-b", "GPU-c", "GPU-z"], 1..2),
        2 => prop::sample::subsequence(vec!["GPU-a", "GPU-b", "GPU-c", "GPU-z"], 0..3),
    ];
    (
        0u32..40,
        0i64..5,
        prop::option::weighted(0.9, quota),
        prop::option::weighted(0.8, 1u64..5),
        gpus,
        any::<bool>(),
        prop::option::weighted(0.3, 1u32..3),
    )
        .prop_map(|(uid, at, quota, memory, gpus, has_ended, count)| {
            let mut annotations = BTreeMap::new();
            annotations.extend(count.map(|count| ("sluice.dev/gpus".to_owned(), count.to_string())));
            annotations.extend(quota.map(|quota| ("sluice.dev/quota".to_owned(), quota)));
            annotations.extend(memory.map(|gib| ("sluice.dev/memory".to_owned(), format!("{gib}Gi"))));
            if at % 2 == 0 {
                annotations.insert("sluice.dev/memory-overcommit".to_owned(), "true".to_owned());
            }
            if !gpus.is_empty() {
                annotations.insert("sluice.dev/assigned-gpu".to_owned(), gpus.join(","));
            }
            PodView { annotations, has_ended, ..pod(&uid.to_string(), at, &[]) }
        })
}

proptest! {
    #[test]
    fn no_gpu_is_promised_twice_and_every_pod_is_assigned_or_refused(
        steps in prop::collection::vec(prop::collection::vec(any_pod(), 0..25), 1..4),
    ) {
        let inventory = with_host_memory(node(&["GPU-a", "GPU-b", "GPU-c"]));
        let mut before = Assignments::default();
        for pods in steps {
            let pods = all(pods);
            let now = assign(&pods, &PreparedClaims::new(), &inventory, &before);
            for clients in now.sets.values() {
                prop_assert!(clients.iter().map(|client| client.quota_ppm).sum::<u32>() <= 1_000_000);
                let promised = clients.iter().fold(MemoryUse::default(), |sum, client| sum.and(client.memory_bytes, client.overcommit));
                prop_assert!(promised.on_gpu() <= 10 * GIB && promised.on_host() <= HOST_MEMORY);
                let mut uids: Vec<_> = clients.iter().map(|client| &client.pod_uid).collect();
                uids.dedup();
                prop_assert_eq!(uids.len(), clients.len());
            }
            for pod in pods.values() {
                let is_ours = !pod.annotations.is_empty() && !pod.has_ended;
                let has = now.gpus.contains_key(&pod.uid);
                prop_assert_eq!(is_ours, has || now.refused.contains_key(&pod.uid));
                prop_assert!(!(has && now.refused.contains_key(&pod.uid)));
                // A pod that had a GPU and still requests the same keeps it.
                let unchanged = before.gpus.get(&pod.uid).is_some_and(|gpus| {
                    let same = assign(&all([PodView::clone(pod)]), &PreparedClaims::new(), &inventory, &Assignments::default());
                    same.gpus.get(&pod.uid) == Some(gpus)
                        && gpus.iter().all(|gpu| before.sets[gpu].iter().any(|was| same.sets[gpu].contains(was)))
                });
                prop_assert!(!unchanged || has);
            }
            // A second run with the same input changes nothing.
            let again = assign(&pods, &PreparedClaims::new(), &inventory, &now);
            prop_assert_eq!(&again.sets, &now.sets);
            prop_assert!(again.refused.keys().eq(now.refused.keys()));
            before = now;
        }
    }
}

#[test]
fn pod_bound_before_a_reserve_keeps_its_place_and_a_part_is_of_the_usable_memory() {
    let mut inventory = node(&["GPU-a", "GPU-b"]);
    for gpu in &mut inventory.gpus {
        gpu.memory_total_bytes = Some(gpu.memory_bytes);
        gpu.memory_bytes = 8 * GIB;
    }
    let pods = [
        pod("old", 0, &[("quota", "0.5"), ("memory", "10Gi"), ("assigned-gpu", "GPU-a")]),
        pod("half", 1, &[("quota", "0.5"), ("assigned-gpu", "GPU-b")]),
    ];
    let result = assign(&all(pods), &PreparedClaims::new(), &inventory, &Assignments::default());
    assert_eq!(result.refused, BTreeMap::new());
    assert_eq!(result.sets["GPU-a"][0].memory_bytes, 10 * GIB);
    assert_eq!(result.sets["GPU-b"][0].memory_bytes, 4 * GIB);
    let alone = pod("alone", 0, &[("quota", "1"), ("assigned-gpu", "GPU-a")]);
    let result = assign(&all([alone]), &PreparedClaims::new(), &inventory, &Assignments::default());
    assert_eq!(result.sets["GPU-a"][0].memory_bytes, 10 * GIB);
}

/// For one pod and a half with all memory of a GPU of [`node`].
const HOST_MEMORY: u64 = 15 * GIB;

fn with_host_memory(mut inventory: NodeInventory) -> NodeInventory {
    for gpu in &mut inventory.gpus {
        gpu.host_memory_bytes = HOST_MEMORY;
    }
    inventory
}

#[test]
fn memory_leaves_the_gpu_if_the_host_has_a_place_and_stays_else() {
    let overcommits = |uid, at, memory| {
        pod(uid, at, &[("memory", memory), ("memory-overcommit", "true"), ("assigned-gpu", "GPU-a")])
    };
    let fixed = pod("fixed", 2, &[("memory", "4Gi"), ("assigned-gpu", "GPU-a")]);
    let pods = [overcommits("1", 0, "7Gi"), overcommits("2", 1, "7Gi"), fixed, overcommits("3", 3, "3Gi")];
    let on = |inventory| {
        let result = assign(&all(pods.clone()), &PreparedClaims::new(), &inventory, &Assignments::default());
        let clients = result.sets["GPU-a"].iter();
        let clients: Vec<_> = clients.map(|client| (client.pod_uid.clone(), client.overcommit)).collect();
        (clients, result.refused)
    };
    let names = |clients: Vec<(String, bool)>| {
        clients
            .into_iter()
            .map(|(uid, overcommit)| format!("{uid} {overcommit}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (clients, refused) = on(with_host_memory(node(&["GPU-a"])));
    assert_eq!(names(clients), "1 true, 2 true");
    // 10 - 7 - 0.5 GiB: the others need it at the same time.
    assert_eq!(
        refused["fixed"],
        Refusal::NoMemoryLeft { gpu: "GPU-a".into(), free: 5 * GIB / 2, asked: 4 * GIB }
    );
    let none_left = Refusal::NoHostMemoryLeft { gpu: "GPU-a".into(), free: GIB, asked: 3 * GIB };
    assert_eq!(refused["3"], none_left);
    // The operator has switched it off: what was bound first keeps its place.
    let (clients, refused) = on(node(&["GPU-a"]));
    assert_eq!(names(clients), "1 false, 3 false");
    assert_eq!(refused["2"], Refusal::NoHostMemoryLeft { gpu: "GPU-a".into(), free: 0, asked: 7 * GIB });
}

#[test]
fn memory_that_stays_on_the_gpu_stays_there_when_the_host_has_a_place_again() {
    let overcommits = |uid, at, memory| {
        pod(uid, at, &[("memory", memory), ("memory-overcommit", "true"), ("assigned-gpu", "GPU-a")])
    };
    let mut inventory = node(&["GPU-a"]);
    inventory.gpus[0].host_memory_bytes = 8 * GIB;
    let after = |pods: &[PodView], before: &Assignments| {
        assign(&all(pods.to_vec()), &PreparedClaims::new(), &inventory, before)
    };
    let may_leave = |result: &Assignments, index: usize| result.sets["GPU-a"][index].overcommit;
    let (first, second) = (overcommits("1", 0, "7Gi"), overcommits("2", 1, "2Gi"));
    let both = after(&[first.clone(), second.clone()], &Assignments::default());
    assert_eq!((may_leave(&both, 0), may_leave(&both, 1)), (true, false));
    // The first one has ended. The second one still has its memory on the GPU, so a large pod does not fit beside it.
    let large = pod("3", 2, &[("memory", "9Gi"), ("assigned-gpu", "GPU-a")]);
    let result = after(&[second.clone(), large], &both);
    assert!(!may_leave(&result, 0));
    assert_eq!(
        result.refused["3"],
        Refusal::NoMemoryLeft { gpu: "GPU-a".into(), free: 8 * GIB, asked: 9 * GIB }
    );
    assert!(!may_leave(&after(&[second], &result), 0));
    // Another pod of the same size has the place.
    assert!(may_leave(&after(&[overcommits("4", 3, "2Gi")], &result), 0));
    // What may leave the GPU still may when another pod comes.
    assert!(may_leave(&after(&[first, overcommits("5", 0, "2Gi")], &both), 0));
}

#[test]
fn pod_keeps_its_limits_on_the_gpus_that_are_left() {
    let annotations =
        [("gpus", "2"), ("quota", "0.3"), ("memory", "1Gi"), ("assigned-gpu", "GPU-a,GPU-gone")];
    let result = first([pod("u", 0, &annotations)], &["GPU-a", "GPU-b"]);
    let clients: Vec<(&str, u32)> =
        result.sets["GPU-a"].iter().map(|client| (client.pod_uid.as_str(), client.quota_ppm)).collect();
    assert_eq!(clients, [("u", 300_000)]);
    assert!(result.sets["GPU-b"].is_empty() && result.refused.is_empty());
    // Without any of its GPUs it is refused.
    let result = first([pod("u", 0, &annotations)], &["GPU-b"]);
    assert!(matches!(&result.refused["u"], Refusal::ForeignGpu { .. }), "{:?}", result.refused);
}
