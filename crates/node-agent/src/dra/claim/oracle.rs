//! Random claims, one after the other as the driver prepares them, against sums.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::dra::driver::newly_refused;
use crate::gpus::fake;
use crate::pods::assign::assign;
use crate::pods::{Assignments, PodView, Pods};
use crate::prepared_claims::PreparedClaims;

const NODE: &str = "node-1";
const GPUS: u32 = 2;
const MIB: u64 = 1 << 20;
const GPU_MIB: u64 = 10_000;
const PRIORITIES: [&str; 2] = ["high", "best-effort"];

/// A claim of a pod: its shares in thousandths and MiB, by GPU, and its configuration.
#[derive(Debug, Clone)]
struct Wish {
    pod: u8,
    shares: Vec<(u32, u32, u64)>,
    priority: usize,
    limit: Option<u32>,
}

fn wish() -> impl Strategy<Value = Wish> {
    let share = (0..GPUS, prop_oneof![Just(0), Just(1), 1..600_u32, Just(1000)], 1..5_000_u64);
    let limit = proptest::option::of(prop_oneof![Just(1000), 1..=1000_u32]);
    (0..4_u8, prop::collection::vec(share, 1..4), 0..PRIORITIES.len(), limit)
        .prop_map(|(pod, shares, priority, limit)| Wish { pod, shares, priority, limit })
}

fn inventory() -> NodeInventory {
    let gpu = |index| sluice_placement::inventory::Gpu {
        memory_bytes: GPU_MIB * MIB,
        memory_total_bytes: None,
        host_memory_bytes: 0,
        ..fake::gpu(index)
    };
    NodeInventory::new(100, (0..GPUS).map(gpu).collect())
}

fn claim(number: usize, wish: &Wish) -> ResourceClaim {
    let result = |(at, (gpu, milli, mib)): (usize, &(u32, u32, u64))| {
        json!({"driver": DRIVER, "pool": NODE, "device": fake::gpu(*gpu).uuid.to_lowercase(), "request": format!("r{at}"),
               "shareID": format!("{number}-{at}"), "consumedCapacity": {"milli": milli.to_string(), "memory": format!("{mib}Mi"), "seats": "1"}})
    };
    let mut parameters = json!({"apiVersion": "gpu.sluice.dev/v1alpha1", "kind": "ShareConfig", "priority": PRIORITIES[wish.priority]});
    if let Some(limit) = wish.limit {
        parameters["limit"] = json!(format!("{}.{:03}", limit / 1000, limit % 1000));
    }
    serde_json::from_value(json!({
        "metadata": {"namespace": "ml", "name": format!("c{number}"), "uid": format!("c{number}")}, "spec": {},
        "status": {
            "allocation": {"devices": {
                "results": wish.shares.iter().enumerate().map(result).collect::<Vec<_>>(),
                "config": [{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": parameters}}],
            }},
            "reservedFor": [{"resource": "pods", "name": format!("p{}", wish.pod), "uid": format!("p{}", wish.pod)}],
        },
    }))
    .unwrap()
}

/// What a pod has of a GPU: thousandths, thousandths of its limit, MiB, priority.
type Sums = BTreeMap<(u8, u32), (u32, u32, u64, usize)>;

/// The sums with the claim; `None` if it is to be refused.
fn with(sums: &Sums, wish: &Wish) -> Option<Sums> {
    let mut sums = sums.clone();
    for (gpu, milli, mib) in &wish.shares {
        let limit = wish.limit.unwrap_or(1000);
        if limit < *milli {
            return None;
        }
        let sum = sums.entry((wish.pod, *gpu)).or_insert((0, 0, 0, wish.priority));
        if sum.3 != wish.priority {
            return None;
        }
        *sum = (sum.0 + milli, (sum.1 + limit).min(1000), sum.2 + mib, sum.3);
    }
    let fits = |gpu| {
        let of_gpu = || sums.iter().filter(move |((_, at), _)| *at == gpu).map(|(_, sum)| sum);
        of_gpu().map(|sum| sum.0).sum::<u32>() <= 1000 && of_gpu().map(|sum| sum.2).sum::<u64>() <= GPU_MIB
    };
    (0..GPUS).all(fits).then_some(sums)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_claims_get_the_sums_of_what_they_ask_for_or_a_refusal(wishes in prop::collection::vec(wish(), 1..12)) {
        let inventory = inventory();
        let view = |pod: u8| Arc::new(PodView { uid: format!("p{pod}"), name: format!("p{pod}"), ..PodView::default() });
        let pods: Pods = (0..4).map(|pod| (format!("p{pod}"), view(pod))).collect();
        let (mut prepared, mut before, mut sums) = (PreparedClaims::new(), Assignments::default(), Sums::new());
        for (number, wish) in wishes.iter().enumerate() {
            let expected = with(&sums, wish);
            let mut found = None;
            if let Ok(one) = read(&claim(number, wish), NODE, &inventory) {
                let mut all = prepared.clone();
                all.insert(format!("c{number}"), one);
                let after = assign(&pods, &all, &inventory, &before);
                found = newly_refused(&after, &before, &all).is_none().then_some((all, after));
            }
            prop_assert_eq!(found.is_some(), expected.is_some(), "claim {} {:?} beside {:?}", number, wish, sums);
            if let (Some((all, after)), Some(expected)) = (found, expected) {
                (prepared, before, sums) = (all, after, expected);
            }
            let mut clients = Sums::new();
            for gpu in 0..GPUS {
                for client in &before.sets.get(&fake::gpu(gpu).uuid).cloned().unwrap_or_default() {
                    let pod = client.pod_uid[1..].parse().unwrap();
                    let priority = if client.class() == sluice_proto::control::Class::High { 0 } else { 1 };
                    clients.insert((pod, gpu), (client.quota_ppm / 1000, client.limit_ppm / 1000, client.memory_bytes / MIB, priority));
                }
            }
            prop_assert_eq!(&clients, &sums);
        }
    }
}
