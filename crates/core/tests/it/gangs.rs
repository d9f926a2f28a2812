//! Jobs on several GPUs: a rank uses GPU time only while its peers run, because it spins in a collective otherwise.

use crate::simulated_gpu::{Arrivals, Change, MS, S, Scheduling, SimulatedGpu, TenantSpec};
use sluice_core::gangs::{GangTable, assign};
use sluice_core::ledger::Class;

/// How finely the running ranks are compared.
const STEP_NS: u64 = MS / 2;
/// How often the managers exchange tables.
const EXCHANGE_NS: u64 = 100 * MS;

/// A client of a node: its request, and the GPUs on which it has a process.
#[derive(Clone)]
struct Job {
    name: &'static str,
    request: f64,
    gpus: Vec<usize>,
    arrivals: Arrivals,
    class: Class,
}

fn job(name: &'static str, request: f64, gpus: &[usize]) -> Job {
    Job { name, request, gpus: gpus.to_vec(), arrivals: Arrivals::Saturating, class: Class::BestEffort }
}

struct Node {
    gpus: Vec<SimulatedGpu>,
    /// The jobs of each GPU, in the order of its tenants.
    jobs_of: Vec<Vec<usize>>,
    jobs: Vec<Job>,
    /// Time for which all ranks of each job ran together.
    progress_ns: Vec<u64>,
    /// The managers exchange tables.
    exchanges: bool,
    now: u64,
}

impl Node {
    fn new(gpus: usize, scheduling: Scheduling, jobs: &[Job]) -> Self {
        let jobs_on = |gpu: usize| (0..jobs.len()).filter(|job| jobs[*job].gpus.contains(&gpu)).collect();
        let jobs_of: Vec<Vec<usize>> = (0..gpus).map(jobs_on).collect();
        let tenant = |job: &usize| {
            TenantSpec::saturating(jobs[*job].request).with(jobs[*job].arrivals).of_class(jobs[*job].class)
        };
        let gpu =
            |jobs: &Vec<usize>| SimulatedGpu::new(scheduling, &jobs.iter().map(tenant).collect::<Vec<_>>());
        Self {
            gpus: jobs_of.iter().map(gpu).collect(),
            jobs_of,
            jobs: jobs.to_vec(),
            progress_ns: vec![0; jobs.len()],
            exchanges: true,
            now: 0,
        }
    }

    fn names(&self, gpu: usize) -> Vec<&'static str> {
        self.jobs_of[gpu].iter().map(|job| self.jobs[*job].name).collect()
    }

    fn exchange(&mut self) {
        let tables: Vec<GangTable> =
            (0..self.gpus.len()).map(|gpu| self.gpus[gpu].gang_table(&self.names(gpu))).collect();
        let slots = assign(&tables);
        for gpu in 0..self.gpus.len() {
            let names = self.names(gpu);
            self.gpus[gpu].set_slots(&names, &slots);
        }
    }

    /// GPU time of a job's rank on a GPU since the beginning.
    fn used_ns(&self, job: usize, gpu: usize) -> u64 {
        let tenant = self.jobs_of[gpu].iter().position(|other| *other == job).unwrap();
        self.gpus[gpu].witness.total_ns(tenant)
    }

    fn run_until(&mut self, end: u64) {
        while self.now < end {
            if self.exchanges && self.now.is_multiple_of(EXCHANGE_NS) {
                self.exchange();
            }
            let used = |node: &Self| -> Vec<Vec<u64>> {
                let of_job =
                    |job: usize| node.jobs[job].gpus.iter().map(|gpu| node.used_ns(job, *gpu)).collect();
                (0..node.jobs.len()).map(of_job).collect()
            };
            let before = used(self);
            self.now += STEP_NS;
            for gpu in &mut self.gpus {
                gpu.run_until(self.now);
            }
            for (job, after) in used(self).into_iter().enumerate() {
                let together = before[job].iter().zip(after).map(|(before, after)| after - before).min();
                self.progress_ns[job] += together.unwrap();
            }
        }
    }

    /// The parts of the time from `from` to `to` for which the ranks of each job ran together.
    fn progress(&mut self, from: u64, to: u64) -> Vec<f64> {
        self.run_until(from);
        let before = self.progress_ns.clone();
        self.run_until(to);
        let part = |(after, before): (&u64, u64)| (after - before) as f64 / (to - from) as f64;
        self.progress_ns.iter().zip(before).map(part).collect()
    }
}

/// Within a point of these parts of what they make together, and together at least 0.95 of the time.
fn assert_parts(progress: &[f64], expected: &[f64], least_sum: f64) {
    let sum: f64 = progress.iter().sum();
    assert!(sum >= least_sum, "{progress:?} add up to {sum}");
    for (part, expected) in progress.iter().zip(expected) {
        assert!((part / sum - expected).abs() <= 0.01, "{progress:?} of {sum} instead of {expected:?}");
    }
}

#[test]
fn two_jobs_get_their_shares_on_two_four_and_eight_gpus() {
    for gpus in [2, 4, 8] {
        let all: Vec<usize> = (0..gpus).collect();
        let mut node = Node::new(gpus, Scheduling::Hardware, &[job("a", 0.3, &all), job("b", 0.7, &all)]);
        let progress = node.progress(3 * S, 13 * S);
        assert_parts(&progress, &[0.3, 0.7], 0.95);
    }
}

/// What the test measures exists: without slots the phases of the GPUs drift apart once a manager has paused.
#[test]
fn without_slots_two_jobs_lose_a_quarter() {
    let mut node = Node::new(2, Scheduling::Hardware, &[job("a", 0.3, &[0, 1]), job("b", 0.7, &[0, 1])]);
    node.exchanges = false;
    node.gpus[0].schedule(S, Change::ManagerStops { until: S + 37 * MS });
    node.gpus[0].schedule(S + 37 * MS, Change::ManagerResumes);
    let progress = node.progress(3 * S, 13 * S);
    assert!(progress.iter().sum::<f64>() < 0.8, "{progress:?}");
}

#[test]
fn overlapping_gangs_and_clients_of_one_gpu_get_their_shares() {
    let jobs = [
        job("a", 0.3, &[0, 1]),
        job("b", 0.3, &[1, 2]),
        job("c", 0.3, &[0, 2]),
        job("local-0", 0.4, &[0]),
        job("local-1", 0.4, &[1]),
        job("local-2", 0.4, &[2]),
    ];
    let mut node = Node::new(3, Scheduling::Hardware, &jobs);
    let progress = node.progress(3 * S, 13 * S);
    for (part, job) in progress.iter().zip(&jobs) {
        assert!((part - job.request).abs() <= 0.02, "{progress:?}");
    }
    let on_first = progress[0] + progress[2] + progress[3];
    assert!(on_first >= 0.95, "{progress:?}");
}

#[test]
fn others_use_the_slot_of_a_gang_that_has_ended_or_pauses() {
    let mut node = Node::new(2, Scheduling::Hardware, &[job("a", 0.5, &[0, 1]), job("b", 0.5, &[0, 1])]);
    for gpu in &mut node.gpus {
        gpu.schedule(3 * S, Change::Dies(0));
        gpu.schedule(6 * S, Change::Starts(0));
    }
    let progress = node.progress(4 * S, 6 * S);
    assert!(progress[1] >= 0.98, "{progress:?}");
    let progress = node.progress(7 * S, 10 * S);
    assert_parts(&progress, &[0.5, 0.5], 0.95);
}

/// A training that waits for its input now and then: the pauses are used, and the other job's part does not suffer.
#[test]
fn a_gang_that_pauses_in_its_slot_leaves_the_time_to_the_other_and_comes_back() {
    let pausing = Arrivals::Pausing { work_ns: 40 * MS, pause_ns: 15 * MS };
    let jobs = [Job { arrivals: pausing, ..job("a", 0.5, &[0, 1]) }, job("b", 0.5, &[0, 1])];
    let mut node = Node::new(2, Scheduling::Hardware, &jobs);
    let progress = node.progress(3 * S, 13 * S);
    assert!(progress[1] >= 0.5, "{progress:?}");
    assert!(progress.iter().sum::<f64>() >= 0.9, "{progress:?}");
}

#[test]
fn a_rank_alone_on_its_gpu_does_not_hold_up_the_others() {
    let jobs = [job("a", 0.5, &[0, 1]), job("b", 0.5, &[0, 1])];
    let mut node = Node::new(2, Scheduling::Hardware, &jobs);
    // One rank ends and its peer spins for ever: the other job keeps its share.
    node.gpus[1].schedule(2 * S, Change::Dies(0));
    let progress = node.progress(4 * S, 8 * S);
    assert!(progress[1] >= 0.49, "{progress:?}");
}

#[test]
fn shares_return_within_two_seconds_after_a_manager_stopped() {
    let jobs = [job("a", 0.3, &[0, 1]), job("b", 0.7, &[0, 1])];
    let mut node = Node::new(2, Scheduling::Hardware, &jobs);
    let (stops, resumes) = (3 * S, 3 * S + 700 * MS);
    node.gpus[1].schedule(stops, Change::ManagerStops { until: resumes });
    node.gpus[1].schedule(stops + 200 * MS, Change::HooksTakeOver);
    node.gpus[1].schedule(resumes, Change::ManagerResumes);
    let progress = node.progress(resumes + 2 * S, resumes + 7 * S);
    assert_parts(&progress, &[0.3, 0.7], 0.95);
}

/// A latency-critical service on two GPUs that wants more than its request is delayed on both at the same time.
#[test]
fn a_latency_critical_gang_beyond_its_request_and_a_best_effort_one_get_their_shares() {
    let service = Job { class: Class::LatencyCritical, ..job("service", 0.45, &[0, 1]) };
    let mut node = Node::new(2, Scheduling::Hardware, &[service, job("training", 0.55, &[0, 1])]);
    node.gpus[0].schedule(S, Change::ManagerStops { until: S + 37 * MS });
    node.gpus[0].schedule(S + 37 * MS, Change::ManagerResumes);
    let progress = node.progress(3 * S, 13 * S);
    assert!(progress[0] >= 0.43 && progress[1] >= 0.45, "{progress:?}");
}

/// The gap between two slots of the gang is too short for a grant of the other client.
#[test]
fn a_client_with_a_small_share_gets_it_beside_a_gang() {
    let jobs = [job("a", 0.97, &[0, 1]), job("local", 0.03, &[0])];
    let mut node = Node::new(2, Scheduling::Hardware, &jobs);
    let progress = node.progress(20 * S, 60 * S);
    assert!(progress[1] >= 0.02 && progress[0] >= 0.93, "{progress:?}");
}

#[test]
fn a_gang_with_a_small_share_gets_it_beside_another_one() {
    let jobs = [job("a", 0.97, &[0, 1]), job("b", 0.03, &[0, 1])];
    let mut node = Node::new(2, Scheduling::Hardware, &jobs);
    let progress = node.progress(5 * S, 25 * S);
    assert!(progress[1] >= 0.02 && progress[0] >= 0.92, "{progress:?}");
}

/// The clients that are idle are entitled to most of the GPU: a gang gets more than its slot.
#[test]
fn a_gang_gets_its_share_of_what_idle_clients_leave() {
    let idle = Arrivals::Pausing { work_ns: MS, pause_ns: 3_600 * S };
    let jobs = [
        job("a", 0.2, &[0, 1]),
        Job { arrivals: idle, ..job("idle-0", 0.6, &[0]) },
        Job { arrivals: idle, ..job("idle-1", 0.6, &[1]) },
        job("local-0", 0.2, &[0]),
        job("local-1", 0.2, &[1]),
    ];
    let mut node = Node::new(2, Scheduling::Hardware, &jobs);
    let progress = node.progress(5 * S, 25 * S);
    assert!(progress[0] >= 0.35, "{progress:?}");
}
