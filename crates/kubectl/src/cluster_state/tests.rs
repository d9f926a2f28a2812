use super::*;
use crate::test_cluster::{GIB, cluster, gpu_mut, node, pod, running};

fn rooms(state: &ClusterState) -> Vec<GpuRoom> {
    state.rooms(&state.index()).into_values().flatten().collect()
}

#[test]
fn promised_and_free_are_sums_of_the_pods_annotations() {
    let quarter = pod("quarter", &[("quota", "0.25"), ("memory", "8Gi")]);
    let half = pod("half", &[("quota", "0.5")]);
    let state = cluster(vec![node("a", 2)], vec![running(quarter, "a", &[0]), running(half, "a", &[0])]);
    let rooms = rooms(&state);
    assert_eq!((rooms[0].promised_share, rooms[0].free_share, rooms[0].pods), (0.75, 0.25, 2));
    // Without sluice.dev/memory the memory is the same share.
    assert_eq!(rooms[0].promised_memory_bytes, 48 * GIB);
    assert_eq!((rooms[1].free_share, rooms[1].free_memory_bytes), (1.0, 80 * GIB));
}

#[test]
fn ended_pods_take_no_room_and_pods_without_readable_request_take_whole_gpus() {
    let ended =
        PodFacts { phase: "Succeeded".to_owned(), ..running(pod("ended", &[("quota", "1")]), "a", &[0]) };
    let odd = running(pod("odd", &[("quota", "many")]), "a", &[1]);
    let state = cluster(vec![node("a", 2)], vec![ended, odd]);
    let free: Vec<f64> = rooms(&state).iter().map(|gpu| gpu.free_share).collect();
    assert_eq!(free, [1.0, 0.0]);
}

#[test]
fn unhealthy_gpu_and_gpu_outside_the_inventory_have_nothing_free() {
    let mut a = node("a", 1);
    gpu_mut(&mut a, 0).healthy = false;
    gpu_mut(&mut a, 0).unhealthy_reason = Some("XID 79".to_owned());
    let gone = running(pod("gone", &[("quota", "0.1"), ("memory", "1Gi")]), "a", &[7]);
    let rooms = rooms(&cluster(vec![a], vec![gone]));
    assert_eq!((rooms[0].healthy, rooms[0].free_share, rooms[0].free_memory_bytes), (false, 0.0, 0));
    assert_eq!(rooms[0].unhealthy_reason.as_deref(), Some("XID 79"));
    assert_eq!((rooms[1].gpu.as_str(), rooms[1].healthy, rooms[1].index), ("GPU-a-7", false, None));
}

#[test]
fn room_of_a_nominated_pod_is_not_free_for_others() {
    let mut nominated = pod("nominated", &[("quota", "0.9"), ("memory", "1Gi")]);
    nominated.nominated_node = Some("a".to_owned());
    let other = pod("other", &[("quota", "0.5"), ("memory", "1Gi")]);
    let demand = other.demand().unwrap();
    let state = cluster(vec![node("a", 1)], vec![nominated, other]);
    assert!(state.index().place_on_node("uid-other", &demand, "a").is_err());
}
