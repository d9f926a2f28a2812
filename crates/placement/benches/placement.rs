//! Cost of one filter call in the index: `cargo bench -p sluice-placement --bench placement`.
//!
//! 1,000 nodes of 8 GPUs. A stock scheduler offers 420 of 1,000 nodes (its own default share); all 1,000 are the worst
//! case. Figures, no thresholds.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its figures and may end at a mistake"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use sluice_placement::annotations::Amount;
use sluice_placement::inventory::{Gpu, NodeInventory};
use sluice_placement::{Demand, Index, PlacementOutcome, Strategy};
use sluice_units::Share;

const NODES: u32 = 1000;
const GPUS: u32 = 8;
const MEMORY: u64 = 80 << 30;
const ROUNDS: usize = 2000;

fn node(name: &str) -> NodeInventory {
    let gpu = |index| Gpu {
        uuid: format!("GPU-{name}-{index}-0000-0000-000000000000"),
        index,
        model: "NVIDIA H100 80GB HBM3".into(),
        memory_bytes: MEMORY,
        memory_total_bytes: None,
        host_memory_bytes: 0,
        numa: Some(index / 4),
        pci: String::new(),
        nvlink: (0..GPUS)
            .filter(|peer| *peer != index)
            .map(|peer| format!("GPU-{name}-{peer}-0000-0000-000000000000"))
            .collect(),
        mig: None,
        healthy: true,
        unhealthy_reason: None,
    };
    NodeInventory::new(10, (0..GPUS).map(gpu).collect())
}

/// A share of any GPU, in thousandths.
fn share(milli: u32) -> Demand {
    Demand::new(Amount::Share(Share::from_ppm(milli * 1000).unwrap()), None)
}

/// Places a pod repeatedly. Returns the time of each placement.
fn measure(index: &mut Index, demand: &Demand, names: &[&str]) -> Vec<Duration> {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let offer = index.reserve("measured", demand, names.iter().copied(), 1, u64::MAX);
        times.push(start.elapsed());
        black_box(&offer);
        index.release("measured");
    }
    times.sort();
    times
}

fn main() {
    let names: Vec<String> = (0..NODES).map(|number| format!("kwok-node-{number:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (state, filled_milli) in [("empty", 0), ("half full", 500), ("full", 900)] {
        let mut index = Index::new(Strategy::Binpack);
        for (number, name) in names.iter().enumerate() {
            let inventory = node(name);
            index.set_node(name, &inventory);
            for gpu in inventory.gpus.iter().filter(|_| filled_milli > 0) {
                let filler = share(filled_milli);
                index.confirm(
                    &format!("filler-{number}-{}", gpu.index),
                    name,
                    std::slice::from_ref(&gpu.uuid),
                    &filler,
                );
            }
        }
        let asks = [("0.300", share(300)), ("4 GPUs", Demand::new(Amount::Whole(4), None))];
        for (what, demand) in asks {
            for count in [420, 1000] {
                let candidates = names.get(..count).unwrap();
                let times = measure(&mut index, &demand, candidates);
                let at = |percent: usize| times.get(times.len() * percent / 100).unwrap().as_nanos() / 1000;
                let offer = index.reserve("shown", &demand, candidates.iter().copied(), 1, u64::MAX);
                index.release("shown");
                let answer = if matches!(offer, PlacementOutcome::Refused(_)) { "refused" } else { "placed" };
                println!(
                    "{state:>9}, {what:>6} of {count:>4} nodes: p50 {:>4} us, p99 {:>4} us, {answer}",
                    at(50),
                    at(99)
                );
            }
        }
    }
}
