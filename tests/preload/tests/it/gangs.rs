//! Data-parallel jobs over two GPUs: each rank has a GPU, and the collective at the end of a step spins until the other rank runs.
//!
//! The figures are printed as lines of JSON, also by a run of all tests. Only progress is asserted.

use sluice_preload_tests::{Node, Tenant, exclusive};
use std::io::Write;
use std::time::Duration;

/// Two clients with the same shares on both GPUs.
const RESOURCES: &str =
    "clients:\n  - { name: a, request: 0.3, memory: 8Gi }\n  - { name: b, request: 0.7, memory: 8Gi }\n";
const CLIENTS: [&str; 2] = ["a", "b"];
/// Kernels of a step in microseconds; with the exposed collective 45 ms, as the trainings that were measured on two H200.
const STEP_US: u32 = 44_400;
/// All collectives of a step, in microseconds.
const COLLECTIVE_US: u32 = 2_500;
/// 100 MB of gradients in the buckets of 25 MB that PyTorch makes.
const BUCKETS: u32 = 5;
/// A ring of two ranks passes a bucket on in a few pieces of what its buffers hold.
const PARTS: u32 = 8;
/// How much later the second rank of the second job begins in the arm `apart`. The quanta of a client on the two GPUs then begin at
/// different times.
const APART: Duration = Duration::from_millis(80);

/// How the jobs of an arm share the GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// Without Sluice: by the time slices of the driver.
    Driver,
    /// By quanta of channel groups.
    Controls,
    /// By grants to each process.
    Grants,
}

/// Two simulated GPUs on one timeline, with a pod-manager each. The second node uses the first one's simulator, so it is dropped first.
struct TwoGpus {
    second: Node,
    first: Node,
    sharing: Sharing,
}

/// What one job did.
#[derive(Debug, Clone, Copy)]
struct Training {
    steps_per_second: f64,
    longest_step_ms: f64,
}

impl TwoGpus {
    fn start(sharing: Sharing) -> Self {
        let controls = if sharing == Sharing::Controls { "--controls simulated" } else { "" };
        let first = Node::with(RESOURCES).gpus(2).manager_arguments(controls).start();
        let gpu = first.socket_of_gpu(1);
        let second = Node::with(RESOURCES).on_gpu(gpu).manager_arguments(controls).start();
        Self { second, first, sharing }
    }

    /// A job of two ranks, one on each GPU, that are ready to begin.
    fn job(&self, client: &str, seconds: f64) -> [Tenant; 2] {
        // A path of this test, so that no other job has this name.
        let name = self.first.path().join(format!("{client}-{seconds}"));
        let start = |rank: usize| {
            let node = [&self.first, &self.second][rank];
            let arguments =
                format!("{rank} 2 {} {seconds} {STEP_US} {COLLECTIVE_US} {BUCKETS} {PARTS}", name.display());
            let options = node.tenant(client, "ddp").arguments(&arguments);
            let is_bare = self.sharing == Sharing::Driver;
            let mut tenant = if is_bare { options.without_hook() } else { options }.start();
            tenant.expect("ready");
            tenant
        };
        [start(0), start(1)]
    }

    /// Trains these clients' jobs at the same time. The last rank begins `apart` later than the others.
    fn train(&self, clients: &[&str], seconds: f64, apart: Duration) -> Vec<Training> {
        let mut jobs: Vec<[Tenant; 2]> = clients.iter().map(|client| self.job(client, seconds)).collect();
        let mut ranks: Vec<&mut Tenant> = jobs.iter_mut().flatten().collect();
        let last = ranks.pop();
        ranks.into_iter().for_each(|rank| rank.send("go"));
        std::thread::sleep(apart);
        last.into_iter().for_each(|rank| rank.send("go"));
        let trained = jobs.into_iter().map(|ranks| {
            let both = ranks.map(|mut rank| {
                let line = rank.line();
                rank.finish().expect_success();
                training(&line)
            });
            both[0]
        });
        trained.collect()
    }

    /// Trains, and prints the figures as a line of JSON: steps per second, also as part of `alone`, and the longest step.
    fn measure(&self, clients: &[&str], seconds: f64, apart: Duration, alone: &[f64]) -> Vec<f64> {
        let trainings = self.train(clients, seconds, apart);
        let rates: Vec<f64> = trainings.iter().map(|training| training.steps_per_second).collect();
        let parts: Vec<f64> = rates.iter().zip(alone).map(|(rate, alone)| round(rate / alone)).collect();
        let figures = serde_json::json!({
            "sharing": format!("{:?}", self.sharing).to_lowercase(),
            "jobs": clients,
            "apart_ms": apart.as_millis(),
            "steps_per_second": rates,
            "of_alone": parts,
            "sum": round(parts.iter().fold(0.0, |sum, part| sum + part)),
            "longest_step_ms": trainings.iter().map(|training| training.longest_step_ms).collect::<Vec<_>>(),
        });
        // Printed past the captured output.
        let _ = writeln!(std::io::stderr(), "gangs: {figures}");
        for (client, rate) in clients.iter().zip(&rates) {
            assert!(*rate > 0.0, "job {client} made no step: {figures}");
        }
        rates
    }
}

fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// The line that a rank prints at its end.
fn training(line: &str) -> Training {
    let figures: Vec<f64> = line.split_whitespace().filter_map(|figure| figure.parse().ok()).collect();
    let [steps_per_second, longest_step_ms, _] = figures[..] else { panic!("a rank printed {line:?}") };
    Training { steps_per_second, longest_step_ms }
}

#[test]
fn two_jobs_of_two_ranks_progress_by_time_slices_by_quanta_and_by_grants() {
    let _lock = exclusive();
    let none = Duration::ZERO;
    let bare = TwoGpus::start(Sharing::Driver);
    let alone: Vec<f64> = CLIENTS.iter().flat_map(|client| bare.measure(&[client], 1.5, none, &[])).collect();
    bare.measure(&CLIENTS, 4.0, none, &alone);
    drop(bare);
    for (sharing, seconds, apart) in
        [(Sharing::Controls, 7.0, none), (Sharing::Controls, 7.0, APART), (Sharing::Grants, 4.0, none)]
    {
        TwoGpus::start(sharing).measure(&CLIENTS, seconds, apart, &alone);
    }
}
