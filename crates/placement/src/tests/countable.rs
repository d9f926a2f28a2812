//! Amounts that the cluster counts.

use super::fixtures::{GIB, node, share, uuid, whole};
use crate::countable::Countable;
use crate::demand::Demand;

#[test]
fn pod_counts_slots_thousandths_and_whole_mebibytes() {
    let shared = share(300, Some(8 * GIB + 1)).countable();
    assert_eq!(shared, Countable { slots: 1, milli: 300, memory_mib: 8193 });
    assert_eq!(share(0, Some(GIB)).countable(), Countable { slots: 1, milli: 0, memory_mib: 1024 });
}

#[test]
fn pod_of_several_gpus_counts_the_sum_over_them() {
    let demand = Demand { gpus: 3, ..share(300, Some(8 * GIB + 1)) };
    assert_eq!(demand.countable(), Countable { slots: 3, milli: 900, memory_mib: 3 * 8193 });
    assert_eq!(demand.countable_per_gpu(), Countable { slots: 1, milli: 300, memory_mib: 8193 });
}

#[test]
fn each_container_with_the_gpu_takes_a_slot_of_each_gpu() {
    let demand = Demand { gpus: 2, slots: 3, ..share(300, Some(GIB)) };
    assert_eq!(demand.countable(), Countable { slots: 6, milli: 600, memory_mib: 2048 });
}

#[test]
fn memory_that_depends_on_the_gpu_is_not_counted() {
    assert_eq!(share(300, None).countable(), Countable { slots: 1, milli: 300, memory_mib: 0 });
    assert_eq!(whole(4).countable(), Countable { slots: 4, milli: 4000, memory_mib: 0 });
}

#[test]
fn unhealthy_gpu_offers_exactly_what_its_pods_request() {
    let mut inventory = node("a", 2);
    let whole_node = inventory.countable(|_| Countable::default());
    assert_eq!(whole_node, Countable { slots: 20, milli: 2000, memory_mib: 2 * 80 * 1024 });
    inventory.gpus[1].healthy = false;
    let held = share(800, Some(10 * GIB)).countable();
    let requested = |gpu: &str| if gpu == uuid("a", 1) { held } else { Countable::default() };
    let offered = inventory.countable(requested);
    assert_eq!(offered, Countable { slots: 11, milli: 1800, memory_mib: 90 * 1024 });
}
