//! Scenarios: the clients of a resource file, their work, and the GPUs that they share.

mod fields;
mod read;

pub use read::parse;

use crate::policy_name::PolicyName;
use sluice_core::resources::ClientEntry;

/// Costs of the GPU. All times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// From the decision to preempt a context with work until the next one runs.
    pub preempt_ns: u64,
    /// From the end of a context's work until the next one runs.
    pub switch_ns: u64,
    /// From the arrival of work on a GPU that executes nothing until it runs, if another context ran last.
    pub load_ns: u64,
    /// Time slice of the driver's round robin.
    pub slice_ns: u64,
}

/// When requests of a client arrive.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// One each `every_ns`, each late by up to `jitter_ns` (uniform).
    Periodic {
        /// Distance.
        every_ns: u64,
        /// Largest delay.
        jitter_ns: u64,
    },
    /// At random times with this mean distance.
    Poisson {
        /// Mean distance.
        mean_ns: u64,
    },
    /// Several requests at once, each `every_ns`.
    Bursts {
        /// Distance of two bursts.
        every_ns: u64,
        /// Requests in a burst.
        requests: u32,
    },
    /// The next one `think_ns` after the end of the last one. A training is of this kind.
    Closed {
        /// Pause.
        think_ns: u64,
    },
    /// At these times, in ascending order.
    Trace(Vec<u64>),
}

/// GPU time of one burst of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// Always the same.
    #[default]
    Constant,
    /// Exponential.
    Exponential,
}

/// What one request executes: bursts of GPU time, and a pause of the host between two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Bursts of a request.
    pub bursts: u32,
    /// GPU time of a burst, or its mean.
    pub burst_ns: u64,
    /// Distribution of that time.
    pub distribution: Distribution,
    /// Host time between two bursts.
    pub gap_ns: u64,
    /// Host times of the thread that serves one request after another.
    pub host: HostTimes,
}

/// What the thread that serves requests takes besides their work. All times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostTimes {
    /// From the arrival of a request, or the end of the one before, to its first call.
    pub before_ns: u64,
    /// From the first call, such as a copy, to the launch.
    pub prepare_ns: u64,
    /// From the end of the work until the wait for it has returned.
    pub after_ns: u64,
}

/// The work of one client.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// When its requests arrive.
    pub arrivals: Arrivals,
    /// What a request executes.
    pub service: Service,
    /// How long hold kernels stay after a wait, instead of what the hook learns.
    pub linger_ns: Option<u64>,
    /// The GPUs on which the client has a process, in ascending order. Several only for a gang.
    pub gpus: Vec<usize>,
    /// The collective at the end of each step of a gang: the time for which all of its ranks have to run together.
    pub exchange_ns: u64,
}

impl Workload {
    /// Whether its ranks on several GPUs wait for each other.
    #[must_use]
    pub fn is_gang(&self) -> bool {
        self.gpus.len() > 1
    }
}

/// A time in which no policy decides: the manager is stopped, and the client that has the GPU keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Its beginning, nanoseconds.
    pub from_ns: u64,
    /// Its end, nanoseconds.
    pub to_ns: u64,
    /// The GPU whose manager it is; `None`: all of them.
    pub gpu: Option<usize>,
}

/// One scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Simulated time, nanoseconds.
    pub span_ns: u64,
    /// The GPU, or each of them.
    pub gpu: Gpu,
    /// Policies to simulate.
    pub policies: Vec<PolicyName>,
    /// Stops of the manager, in ascending order.
    pub stalls: Vec<Stall>,
    /// The clients.
    pub clients: Vec<ClientEntry>,
    /// The work of each client, in their order.
    pub workloads: Vec<Workload>,
}

impl Scenario {
    /// Number of GPUs.
    #[must_use]
    pub fn gpus(&self) -> usize {
        self.workloads.iter().flat_map(|workload| &workload.gpus).max().map_or(1, |last| last + 1)
    }

    /// The clients of one GPU, by their numbers.
    #[must_use]
    pub fn clients_of(&self, gpu: usize) -> Vec<usize> {
        (0..self.clients.len()).filter(|client| self.workloads[*client].gpus.contains(&gpu)).collect()
    }

    /// What one GPU has of the scenario.
    pub(crate) fn of_gpu(&self, gpu: usize) -> Self {
        let clients = self.clients_of(gpu);
        let stalls = self.stalls.iter().filter(|stall| stall.gpu.is_none_or(|of| of == gpu));
        Self {
            seed: self.seed,
            span_ns: self.span_ns,
            gpu: self.gpu,
            policies: self.policies.clone(),
            stalls: stalls.copied().collect(),
            clients: clients.iter().map(|client| self.clients[*client].clone()).collect(),
            workloads: clients.iter().map(|client| self.workloads[*client].clone()).collect(),
        }
    }
}
