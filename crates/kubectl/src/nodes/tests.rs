use super::*;
use crate::test_cluster::{GIB, cluster, gpu_mut, node, pod, running};
use crate::text::layout;

fn state() -> ClusterState {
    let mut b = node("b", 2);
    gpu_mut(&mut b, 1).healthy = false;
    gpu_mut(&mut b, 1).unhealthy_reason = Some("XID 79".to_owned());
    b.is_cordoned = true;
    let mut c = node("c", 1);
    c.inventory = Err("no JSON".to_owned());
    let train = pod("train", &[("quota", "0.6"), ("memory", "20Gi")]);
    let serve = pod("serve", &[("quota", "0.3"), ("memory", "40Gi")]);
    let pods = vec![running(train, "a", &[0]), running(serve, "a", &[1])];
    cluster(vec![node("a", 2), b, c], pods)
}

#[test]
fn row_has_sums_of_the_node_and_the_largest_room_on_one_gpu() {
    let nodes = Nodes::of(&state());
    let a = &nodes.nodes[0];
    assert_eq!((a.promised_share, a.free_share), (0.9, 1.1));
    assert_eq!((a.largest_free_share, a.largest_free_memory_bytes), (0.7, 60 * GIB));
}

#[test]
fn lines_show_unhealthy_gpus_cordoned_nodes_and_unreadable_annotations() {
    let expected = "\
NODE  GPUS  MODEL        PROMISED  FREE   LARGEST FREE  LARGEST FREE MEMORY  PODS  HEALTH
a     2     NVIDIA H100  0.900     1.100  0.700         60.0 GiB             2     healthy
b     2     NVIDIA H100  0.000     1.000  1.000         80.0 GiB             0     1 GPU unhealthy: XID 79; cordoned
c     0                  0.000     0.000  0.000         0 MiB                0     unreadable: no JSON";
    assert_eq!(layout(&Nodes::of(&state()).lines()).join("\n"), expected);
}

#[test]
fn cluster_without_gpus_says_so() {
    let lines = layout(&Nodes::of(&cluster(Vec::new(), Vec::new())).lines());
    assert_eq!(lines, ["No node has GPUs of Sluice."]);
}
