//! Data-parallel jobs over two GPUs: each rank has a GPU, and the collective at the end of a step spins until the other rank runs.
//!
//! The figures are printed as lines of JSON, also by a run of all tests. Only progress is asserted.

use sluice_preload_tests::{Node, Tenant, exclusive};
use std::io::Write;

/// Two clients with the same shares on both GPUs.
const RESOURCES: &str =
    "clients:\n  - { name: a, request: 0.3, memory: 8Gi }\n  - { name: b, request: 0.7, memory: 8Gi }\n";
const CLIENTS: [&str; 2] = ["a", "b"];
/// Time of a step alone, in microseconds: kernels, and a collective.
const STEP_US: u32 = 42_000;
const COLLECTIVE_US: u32 = 2_000;

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
            let arguments = format!("{rank} 2 {} {seconds} {STEP_US} {COLLECTIVE_US}", name.display());
            let options = node.tenant(client, "ddp").arguments(&arguments);
            let is_bare = self.sharing == Sharing::Driver;
            let mut tenant = if is_bare { options.without_hook() } else { options }.start();
            tenant.expect("ready");
            tenant
        };
        [start(0), start(1)]
    }

    /// Trains these clients' jobs at the same time.
    fn train(&self, clients: &[&str], seconds: f64) -> Vec<Training> {
        let mut jobs: Vec<[Tenant; 2]> = clients.iter().map(|client| self.job(client, seconds)).collect();
        jobs.iter_mut().flatten().for_each(|rank| rank.send("go"));
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
    fn measure(&self, clients: &[&str], seconds: f64, alone: &[f64]) -> Vec<f64> {
        let trainings = self.train(clients, seconds);
        let rates: Vec<f64> = trainings.iter().map(|training| training.steps_per_second).collect();
        let parts: Vec<f64> = rates.iter().zip(alone).map(|(rate, alone)| round(rate / alone)).collect();
        let figures = serde_json::json!({
            "sharing": format!("{:?}", self.sharing).to_lowercase(),
            "jobs": clients,
            "steps_per_second": rates,
            "of_alone": parts,
            "sum": round(parts.iter().sum()),
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
    let bare = TwoGpus::start(Sharing::Driver);
    let alone: Vec<f64> = CLIENTS.iter().flat_map(|client| bare.measure(&[client], 2.0, &[])).collect();
    bare.measure(&CLIENTS, 5.0, &alone);
    drop(bare);
    for sharing in [Sharing::Controls, Sharing::Grants] {
        TwoGpus::start(sharing).measure(&CLIENTS, 8.0, &alone);
    }
}
