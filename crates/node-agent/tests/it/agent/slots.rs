//! Which device slots kubelet is told are unhealthy.

use std::collections::BTreeSet;

use super::node::{Node, soon, uuid};
use crate::support::kubelet::{Kubelet, SlotStream};

/// Waits for a list with this many healthy slots. Returns the numbers of the unhealthy ones.
pub(super) async fn unhealthy_slots(stream: &mut SlotStream, healthy: usize) -> BTreeSet<u64> {
    let number = |id: &str| id.strip_prefix("sluice-seat-").unwrap().parse().unwrap();
    let wanted = async {
        loop {
            let list = stream.next().await.expect("the stream is open");
            let unhealthy: BTreeSet<u64> =
                list.iter().filter(|(_, health)| health != "Healthy").map(|(id, _)| number(id)).collect();
            if list.len() - unhealthy.len() == healthy {
                return unhealthy;
            }
        }
    };
    soon("the list of slots", wanted).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_of_pods_on_the_lost_gpu_become_unhealthy_and_those_of_other_pods_stay_healthy() {
    let node = Node::with_gpus(2).await;
    let assigned = |gpu| [("quota", "0.2".to_owned()), ("assigned-gpu", uuid(gpu))];
    for (pod, gpu) in [("lost-1", 1), ("lost-2", 1), ("kept-1", 0), ("kept-2", 0)] {
        let [quota, gpu] = assigned(gpu);
        node.put(pod, &[(quota.0, &quota.1), (gpu.0, &gpu.1)]);
    }
    node.write_checkpoint(&[("lost-1", &[0]), ("lost-2", &[9]), ("kept-1", &[19]), ("kept-2", &[1])]);
    let mut kubelet = Kubelet::start(&node.plugin_folder());
    let agent = node.start_agent().await;
    let mut plugin = kubelet.next_plugin().await;
    let mut stream = plugin.listen().await;
    assert_eq!(unhealthy_slots(&mut stream, 20).await, BTreeSet::new());

    node.gpus.lose(1);
    // The scheduler subtracts the slots of all four pods: ten of the healthy GPU, and the two that pods of the lost one hold.
    let unhealthy = unhealthy_slots(&mut stream, 12).await;
    assert!(unhealthy.is_superset(&BTreeSet::from([0, 9])), "{unhealthy:?}");
    assert!(unhealthy.is_disjoint(&BTreeSet::from([1, 19])), "{unhealthy:?}");

    // A slot that kubelet allocates later belongs to the healthy GPU.
    let [quota, gpu] = assigned(0);
    node.put("late", &[(quota.0, &quota.1), (gpu.0, &gpu.1)]);
    let free = *unhealthy.iter().find(|slot| ![0, 9].contains(*slot)).unwrap();
    let held: [(&str, &[u64]); 5] =
        [("lost-1", &[0]), ("lost-2", &[9]), ("kept-1", &[19]), ("kept-2", &[1]), ("late", &[free])];
    node.write_checkpoint(&held);
    let unhealthy = unhealthy_slots(&mut stream, 12).await;
    assert!(unhealthy.is_disjoint(&BTreeSet::from([1, 19, free])), "{unhealthy:?}");

    // An agent that starts again tells the same.
    agent.end().await;
    let agent = node.start_agent().await;
    let mut plugin = kubelet.next_plugin().await;
    assert_eq!(unhealthy_slots(&mut plugin.listen().await, 12).await, unhealthy);
    agent.end().await;
}
