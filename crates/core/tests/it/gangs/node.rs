//! A node with several simulated GPUs, whose jobs have a rank on each of their GPUs.

use crate::simulated_gpu::{Arrivals, Lock, MS, Scheduling, SimulatedGpu, TenantSpec};
use sluice_core::gangs::{GangTable, assign};
use sluice_core::ledger::Class;

/// How finely the running ranks are compared.
const STEP_NS: u64 = MS / 2;
/// How often the managers exchange tables: a manager writes its table at most once in this time.
const EXCHANGE_NS: u64 = 500 * MS;

/// A client of a node: its request, and the GPUs on which it has a process.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) name: &'static str,
    pub(super) request: f64,
    pub(super) gpus: Vec<usize>,
    pub(super) arrivals: Arrivals,
    pub(super) class: Class,
}

pub(super) fn job(name: &'static str, request: f64, gpus: &[usize]) -> Job {
    Job { name, request, gpus: gpus.to_vec(), arrivals: Arrivals::Saturating, class: Class::BestEffort }
}

pub(super) struct Node {
    pub(super) gpus: Vec<SimulatedGpu>,
    /// The jobs of each GPU, in the order of its tenants.
    pub(super) jobs_of: Vec<Vec<usize>>,
    pub(super) jobs: Vec<Job>,
    /// Time for which all ranks of each job ran together.
    progress_ns: Vec<u64>,
    /// The managers exchange tables.
    pub(super) exchanges: bool,
    /// How finely the running ranks are compared.
    pub(super) step_ns: u64,
    pub(super) now: u64,
}

impl Node {
    pub(super) fn new(gpus: usize, scheduling: Scheduling, jobs: &[Job]) -> Self {
        let jobs_on = |gpu: usize| (0..jobs.len()).filter(|job| jobs[*job].gpus.contains(&gpu)).collect();
        let jobs_of: Vec<Vec<usize>> = (0..gpus).map(jobs_on).collect();
        let tenant = |job: &usize| {
            TenantSpec::saturating(jobs[*job].request).with(jobs[*job].arrivals).of_class(jobs[*job].class)
        };
        let gpu =
            |jobs: &Vec<usize>| SimulatedGpu::new(scheduling, &jobs.iter().map(tenant).collect::<Vec<_>>());
        let mut gpus: Vec<SimulatedGpu> = jobs_of.iter().map(gpu).collect();
        let lock = Lock::default();
        gpus.iter_mut().for_each(|gpu| gpu.share_driver(&lock));
        let progress_ns = vec![0; jobs.len()];
        Self { gpus, jobs_of, jobs: jobs.to_vec(), progress_ns, exchanges: true, step_ns: STEP_NS, now: 0 }
    }

    /// The number of a job among the tenants of a GPU.
    pub(super) fn tenant(&self, job: usize, gpu: usize) -> usize {
        self.jobs_of[gpu].iter().position(|other| *other == job).unwrap()
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
    pub(super) fn used_ns(&self, job: usize, gpu: usize) -> u64 {
        self.gpus[gpu].witness.total_ns(self.tenant(job, gpu))
    }

    pub(super) fn run_until(&mut self, end: u64) {
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
            self.now += self.step_ns;
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
    pub(super) fn progress(&mut self, from: u64, to: u64) -> Vec<f64> {
        self.run_until(from);
        let before = self.progress_ns.clone();
        self.run_until(to);
        let part = |(after, before): (&u64, u64)| (after - before) as f64 / (to - from) as f64;
        self.progress_ns.iter().zip(before).map(part).collect()
    }
}
