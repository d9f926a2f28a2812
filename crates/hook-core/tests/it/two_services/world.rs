//! All parts in one simulated time.

use super::decode::Decode;
use super::gpu::{Gpu, STEP};
use super::manager::Manager;
use super::resnet::Resnet;
use std::time::Duration;

/// What runs on the GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) resnet: bool,
    pub(super) decode: bool,
    pub(super) training: bool,
    /// The periodic service is periodic; otherwise the interval varies by 5 ms, which cannot be predicted.
    pub(super) predictable: bool,
    /// A hold kernel of the decode service spans the gaps of a request.
    pub(super) holds: bool,
    /// The manager shows urgent work.
    pub(super) deadlines: bool,
}

/// A distribution, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    pub p50: u64,
    pub p99: u64,
    pub(super) max: u64,
    pub(super) mean: u64,
}

/// What was measured.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) resnet: Times,
    /// Time per token, from the end of one to the end of the next.
    pub(super) token: Times,
    pub(super) postponed_ns: u64,
    /// Part of the time for which the training ran.
    pub(super) training: f64,
}

pub(super) struct World {
    now: u64,
    gpu: Gpu,
    resnet: Option<Resnet>,
    decode: Option<Decode>,
    manager: Option<Manager>,
}

const SECOND: u64 = 1_000_000_000;

/// Arrivals by a Poisson process of three a second, the last first.
fn arrivals(seconds: u64) -> Vec<u64> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let (mut at, mut arrivals) = (0.0, Vec::new());
    while at < seconds as f64 {
        at -= (1.0 - uniform()).ln() / 3.0;
        arrivals.push(u64::try_from(Duration::from_secs_f64(at).as_nanos()).unwrap());
    }
    arrivals.reverse();
    arrivals
}

impl World {
    pub(super) fn new(setup: Setup) -> Self {
        Self {
            now: 0,
            gpu: Gpu::new(setup.training),
            resnet: setup.resnet.then(|| Resnet::new(setup.predictable)),
            decode: setup.decode.then(|| Decode::new(arrivals(60), setup.holds)),
            manager: setup.deadlines.then(Manager::new),
        }
    }

    pub(super) fn run(&mut self, seconds: u64) {
        while self.now < seconds * SECOND {
            if let Some(resnet) = &mut self.resnet {
                resnet.step(self.now, &mut self.gpu);
            }
            if let Some(decode) = &mut self.decode {
                decode.step(self.now, &mut self.gpu);
            }
            if let Some(manager) = &mut self.manager {
                manager.step(self.now, self.resnet.as_ref(), self.decode.as_mut());
            }
            self.gpu.step(self.now);
            self.now += STEP;
        }
    }

    pub(super) fn report(&self) -> Report {
        // The first second teaches the predictors.
        let of_resnet = self.resnet.iter().flat_map(|resnet| resnet.latencies.iter().skip(100).copied());
        let of_tokens = self.decode.iter().flat_map(|decode| decode.tokens.iter().skip(400).copied());
        Report {
            resnet: times(of_resnet.collect()),
            token: times(of_tokens.collect()),
            postponed_ns: self.decode.as_ref().map_or(0, |decode| decode.postponed_ns),
            training: self.gpu.training_ns as f64 / self.now as f64,
        }
    }
}

fn times(mut values: Vec<u64>) -> Times {
    values.sort_unstable();
    let at =
        |percent: usize| values.get(values.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0);
    let mean = values.iter().sum::<u64>() / values.len().max(1) as u64;
    Times { p50: at(50), p99: at(99), max: at(100), mean }
}
