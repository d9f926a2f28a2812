//! Data-parallel jobs over two GPUs: each rank has a GPU, and the collective at the end of a step spins until the other rank runs.
//! `tests/gpu/gangs.py --gpu sim` measures more.

use sluice_preload_tests::{Node, Tenant, exclusive};
use sluice_sim::client::gpu_info;
use sluice_sim::identity::uuid_text;

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
/// How the jobs of an arm share the GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// By quanta of channel groups.
    Controls,
    /// By grants to each process.
    Grants,
}

/// Two simulated GPUs on one timeline, with a pod-manager each. The second node uses the first one's simulator, so it is dropped first.
struct TwoGpus {
    second: Node,
    first: Node,
}

/// What one job did.
#[derive(Debug, Clone, Copy)]
struct Training {
    steps_per_second: f64,
    longest_step_ms: f64,
}

impl TwoGpus {
    fn start(sharing: Sharing, tables: &std::path::Path) -> Self {
        let controls = if sharing == Sharing::Controls { "--controls simulated" } else { "" };
        let arguments = format!("{controls} --gangs {}", tables.display());
        let first = Node::with(RESOURCES).gpus(2).manager_arguments(&arguments).start();
        let gpu = first.socket_of_gpu(1);
        let second = Node::with(RESOURCES).on_gpu(gpu).manager_arguments(&arguments).start();
        Self { second, first }
    }

    /// A job of two ranks, one on each GPU, that are ready to begin.
    fn job(&self, client: &str, seconds: f64) -> [Tenant; 2] {
        // A path of this test, so that no other job has this name.
        let name = self.first.path().join(format!("{client}-{seconds}"));
        let start = |rank: usize| {
            let node = [&self.first, &self.second][rank];
            let arguments =
                format!("{rank} 2 {} {seconds} {STEP_US} {COLLECTIVE_US} {BUCKETS} {PARTS}", name.display());
            let mut tenant = node.tenant(client, "ddp").arguments(&arguments).start();
            tenant.expect("ready");
            tenant
        };
        [start(0), start(1)]
    }

    /// A process with both GPUs.
    fn process_with_both(&self, client: &str, program: &str, arguments: &str) -> Tenant {
        let sockets = self.first.path().join(format!("sockets-{client}"));
        std::fs::create_dir_all(&sockets).expect("a folder for the sockets");
        let simulators = [self.first.simulator().to_owned(), self.second.simulator().to_owned()];
        for (simulator, node) in simulators.iter().zip([&self.first, &self.second]) {
            let uuid = uuid_text(gpu_info(simulator).expect("the simulator answers").uuid);
            let link = sockets.join(format!("{uuid}.sock"));
            if !link.exists() {
                std::os::unix::fs::symlink(node.socket(), link).expect("a link to a socket");
            }
        }
        let both = simulators.map(|simulator| simulator.display().to_string()).join(",");
        let options = self.first.tenant(client, program).arguments(arguments);
        let options = options.without_environment("SLUICE_SOCKET").without_environment("SLUICE_SIM_SOCKET");
        options.environment("SLUICE_SOCKET_DIR", sockets).environment("SLUICE_SIM_SOCKET", both).start()
    }

    /// A job of one process with both GPUs.
    fn job_of_one_process(&self, client: &str, seconds: f64) -> Tenant {
        let name = self.first.path().join(format!("{client}-{seconds}-one"));
        let arguments =
            format!("all 2 {} {seconds} {STEP_US} {COLLECTIVE_US} {BUCKETS} {PARTS}", name.display());
        let mut tenant = self.process_with_both(client, "ddp", &arguments);
        (0..2).for_each(|_| tenant.expect("ready"));
        tenant
    }

    /// A model that is split between both GPUs, of one process that is ready to begin.
    fn pipeline(&self, client: &str, seconds: f64) -> Tenant {
        let mut tenant = self.process_with_both(client, "pipeline", &format!("{seconds} {STEP_US}"));
        tenant.expect("ready");
        tenant
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
}

/// The line that a rank prints at its end.
fn training(line: &str) -> Training {
    let figures: Vec<f64> = line.split_whitespace().filter_map(|figure| figure.parse().ok()).collect();
    let [steps_per_second, longest_step_ms, _] = figures[..] else { panic!("a rank printed {line:?}") };
    Training { steps_per_second, longest_step_ms }
}

#[test]
fn two_jobs_get_their_shares_of_two_gpus_and_lose_nothing_to_each_other() {
    let _lock = exclusive();
    let tables = tempfile::tempdir().unwrap();
    let gpus = TwoGpus::start(Sharing::Controls, tables.path());
    let alone = gpus.train(&["a"], 1.5)[0].steps_per_second;
    let trained = gpus.train(&CLIENTS, 4.0);
    let sum: f64 = trained.iter().map(|training| training.steps_per_second).sum();
    assert!(sum >= 0.9 * alone, "{trained:?}, {alone} alone");
    let part = trained[0].steps_per_second / sum;
    assert!((part - 0.3).abs() <= 0.05, "{trained:?}");
}

/// Nothing is configured: a process with two GPUs attaches to the manager of each, as the same client.
#[test]
fn one_process_with_two_gpus_gets_its_share_of_both_beside_a_job_of_two_processes() {
    let _lock = exclusive();
    let tables = tempfile::tempdir().unwrap();
    let gpus = TwoGpus::start(Sharing::Controls, tables.path());
    let alone = gpus.train(&["a"], 1.5)[0].steps_per_second;
    let mut one = gpus.job_of_one_process("a", 4.0);
    let mut two = gpus.job("b", 4.0);
    (0..2).for_each(|_| one.send("go"));
    two.iter_mut().for_each(|rank| rank.send("go"));
    let trained: Vec<Training> = [&mut one, &mut two[0]].map(|tenant| training(&tenant.line())).into();
    one.finish().expect_success();
    for rank in two {
        rank.finish().expect_success();
    }
    let sum: f64 = trained.iter().map(|training| training.steps_per_second).sum();
    println!("{trained:?}, {alone} alone");
    assert!(sum >= 0.9 * alone, "{trained:?}, {alone} alone");
    let part = trained[0].steps_per_second / sum;
    assert!((part - 0.3).abs() <= 0.05, "{trained:?}");
}

/// Each GPU of a pipeline is idle while the other one works, and the other job uses that time. Both have their slots on both GPUs.
#[test]
fn a_pipeline_of_one_process_over_two_gpus_gets_its_share_beside_a_job_of_two_processes() {
    let _lock = exclusive();
    let tables = tempfile::tempdir().unwrap();
    let gpus = TwoGpus::start(Sharing::Controls, tables.path());
    let rate_of = |tenant: &mut Tenant| -> f64 {
        let line = tenant.line();
        let rate = line.split_whitespace().next().and_then(|rate| rate.parse().ok());
        rate.unwrap_or_else(|| panic!("a tenant printed {line:?}"))
    };
    let mut alone = gpus.pipeline("a", 1.5);
    alone.send("go");
    let pipeline_alone = rate_of(&mut alone);
    alone.finish().expect_success();
    let training_alone = gpus.train(&["b"], 1.5)[0].steps_per_second;
    let mut pipeline = gpus.pipeline("a", 4.0);
    let mut training = gpus.job("b", 4.0);
    pipeline.send("go");
    training.iter_mut().for_each(|rank| rank.send("go"));
    let (a, b) = (rate_of(&mut pipeline) / pipeline_alone, rate_of(&mut training[0]) / training_alone);
    println!("the pipeline {a:.3} of its rate alone, the training {b:.3}");
    for tenant in training.into_iter().chain([pipeline]) {
        tenant.finish().expect_success();
    }
    // Of its request of 0.3 it can use half: a step at a time is on one GPU.
    assert!(a >= 0.25 && b >= 0.6, "the pipeline {a:.3} of its rate alone, the training {b:.3}");
}

/// A rank that has launched one collective more than its peer cannot return its grant before the peer has its next one.
#[test]
fn by_grants_no_job_waits_for_the_return_timeout() {
    let _lock = exclusive();
    let tables = tempfile::tempdir().unwrap();
    let gpus = TwoGpus::start(Sharing::Grants, tables.path());
    let trained = gpus.train(&CLIENTS, 3.0);
    for training in &trained {
        assert!(training.longest_step_ms < 1_000.0 && training.steps_per_second > 0.0, "{trained:?}");
    }
}
