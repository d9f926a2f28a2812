//! A client's work: requests that arrive, bursts that wait for the GPU, and pauses of its host.

use crate::policies::{Demand, HostPhase};
use crate::random::Random;
use crate::report::Finished;
use crate::scenario::{Arrivals, Distribution, Workload};
use std::collections::VecDeque;

/// What the oldest request of a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is none.
    Idle,
    /// The thread has taken it and makes its first call then.
    Taken { until: u64 },
    /// The thread has made its first call and launches then.
    Called { until: u64 },
    /// A burst waits for the GPU or runs; so much of it is left.
    Burst { left_ns: u64 },
    /// A rank of a gang spins on the GPU until its peers have come to the collective, and the collective ends.
    Collective,
    /// The host works until then.
    Host { until: u64 },
    /// Its work has ended, and the wait for it returns then.
    Returning { until: u64 },
}

#[derive(Clone, Debug)]
pub(crate) struct Client<'a> {
    workload: &'a Workload,
    times: Random,
    sizes: Random,
    /// Arrivals so far.
    arrived: u64,
    next_arrival: Option<u64>,
    queue: VecDeque<u64>,
    stage: Stage,
    /// Bursts of the oldest request after the present one.
    bursts_left: u32,
    pub(crate) demand: Demand,
    pub(crate) finished: Vec<Finished>,
}

impl<'a> Client<'a> {
    pub(crate) fn new(workload: &'a Workload, seed: u64, number: usize) -> Self {
        let mut client = Self {
            workload,
            times: Random::new(seed, number, 1),
            sizes: Random::new(seed, number, 2),
            arrived: 0,
            next_arrival: None,
            queue: VecDeque::new(),
            stage: Stage::Idle,
            bursts_left: 0,
            demand: Demand::default(),
            finished: Vec::new(),
        };
        client.next_arrival = match &workload.arrivals {
            Arrivals::Closed { .. } => Some(0),
            _ => client.arrival(),
        };
        client
    }

    /// The time of the next arrival, if it does not depend on the end of a request.
    fn arrival(&mut self) -> Option<u64> {
        let (number, last) = (self.arrived, self.next_arrival.unwrap_or(0));
        match &self.workload.arrivals {
            Arrivals::Periodic { every_ns, jitter_ns } => {
                let late = self.times.up_to(*jitter_ns);
                Some(last.max((number + 1).saturating_mul(*every_ns).saturating_add(late)))
            }
            Arrivals::Poisson { mean_ns } => Some(last.saturating_add(self.times.exponential(*mean_ns))),
            Arrivals::Bursts { every_ns, requests } => {
                Some((number / u64::from(*requests) + 1).saturating_mul(*every_ns))
            }
            Arrivals::Closed { .. } => None,
            Arrivals::Trace(times) => {
                usize::try_from(number).ok().and_then(|number| times.get(number).copied())
            }
        }
    }

    /// The next event of its own: an arrival, or the end of a pause.
    pub(crate) fn next_event(&self) -> u64 {
        let host = match self.stage {
            Stage::Idle | Stage::Burst { .. } | Stage::Collective => u64::MAX,
            Stage::Taken { until }
            | Stage::Called { until }
            | Stage::Host { until }
            | Stage::Returning { until } => until,
        };
        self.next_arrival.unwrap_or(u64::MAX).min(host)
    }

    /// Takes note of the events up to `now`. Returns how many there were.
    pub(crate) fn update(&mut self, now: u64) -> u64 {
        let mut events = 0;
        loop {
            while let Some(at) = self.next_arrival.filter(|at| *at <= now) {
                self.queue.push_back(at);
                self.arrived += 1;
                self.next_arrival = self.arrival();
                events += 1;
            }
            let pauses = matches!(self.stage, Stage::Host { .. });
            if !self.pass_stage(now) {
                return events;
            }
            events += u64::from(pauses);
        }
    }

    /// Ends the stage of the oldest request if it is over at `now`.
    fn pass_stage(&mut self, now: u64) -> bool {
        let host = self.workload.service.host;
        match self.stage {
            Stage::Idle if !self.queue.is_empty() => {
                self.stage = Stage::Taken { until: now.saturating_add(host.before_ns) };
            }
            Stage::Taken { until } if until <= now => {
                self.demand.arrived = self.queue.front().copied().unwrap_or(now);
                self.demand.calls = (self.demand.calls.0 + 1, now);
                self.demand.host = HostPhase::Preparing;
                self.bursts_left = self.workload.service.bursts;
                self.stage = Stage::Called { until: now.saturating_add(host.prepare_ns) };
            }
            Stage::Called { until } | Stage::Host { until } if until <= now => self.begin_burst(now),
            Stage::Returning { until } if until <= now => {
                self.stage = Stage::Idle;
                self.demand.returns = (self.demand.returns.0 + 1, now);
                self.demand.host = HostPhase::Away;
                let arrived = self.queue.pop_front();
                self.finished
                    .extend(arrived.map(|arrived| Finished { at_ns: now, lasted_ns: now - arrived }));
                if let Arrivals::Closed { think_ns } = self.workload.arrivals {
                    self.next_arrival = Some(now.saturating_add(think_ns));
                }
            }
            _ => return false,
        }
        true
    }

    fn begin_burst(&mut self, now: u64) {
        let service = &self.workload.service;
        let left_ns = match service.distribution {
            Distribution::Constant => service.burst_ns,
            Distribution::Exponential => self.sizes.exponential(service.burst_ns),
        };
        self.bursts_left -= 1;
        self.stage = Stage::Burst { left_ns };
        (self.demand.started, self.demand.host) = (false, HostPhase::Working);
        if !self.demand.ready {
            (self.demand.ready, self.demand.since) = (true, now);
        }
    }

    /// GPU time until its burst ends.
    pub(crate) fn left_ns(&self) -> u64 {
        if let Stage::Burst { left_ns } = self.stage { left_ns } else { u64::MAX }
    }

    /// The GPU has executed its burst for `ns` until `now`. Returns whether the burst ended.
    pub(crate) fn ran(&mut self, ns: u64, now: u64) -> bool {
        let Stage::Burst { left_ns } = &mut self.stage else { return false };
        self.demand.started = true;
        *left_ns -= ns;
        if *left_ns > 0 {
            return false;
        }
        if self.bursts_left > 0 {
            self.stage = Stage::Host { until: now.saturating_add(self.workload.service.gap_ns) };
        } else if self.workload.is_gang() {
            self.stage = Stage::Collective;
            return true;
        } else {
            self.end_work(now);
        }
        self.follow(now);
        true
    }

    fn end_work(&mut self, now: u64) {
        self.stage = Stage::Returning { until: now.saturating_add(self.workload.service.host.after_ns) };
        self.demand.host = HostPhase::Returning;
    }

    /// Work that follows at the same time continues the old one.
    fn follow(&mut self, now: u64) {
        self.update(now);
        if self.left_ns() == u64::MAX {
            (self.demand.ready, self.demand.since) = (false, now);
        }
    }

    /// Whether it is a rank that has come to the collective of its step.
    pub(crate) fn is_at_collective(&self) -> bool {
        self.stage == Stage::Collective
    }

    /// The collective ends, and the step with it.
    pub(crate) fn end_collective(&mut self, now: u64) {
        self.end_work(now);
        self.follow(now);
    }

    /// Requests that have arrived and not finished.
    pub(crate) fn unfinished(&self) -> usize {
        self.queue.len()
    }
}
