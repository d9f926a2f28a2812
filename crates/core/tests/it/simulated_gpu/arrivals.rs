//! When a tenant has work for the GPU.

use std::collections::VecDeque;

/// Requests that a tenant accepts at most before it drops further ones.
const QUEUE: usize = 4;

/// Arrival pattern of a tenant's work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arrivals {
    /// Work without a pause.
    Saturating,
    /// A request of `work_ns` GPU time every `period_ns`.
    Periodic { period_ns: u64, work_ns: u64 },
    /// Uses the GPU for `work_ns`, then pauses for `pause_ns`.
    Pausing { work_ns: u64, pause_ns: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Request {
    arrived: u64,
    left_ns: u64,
}

/// The work that a tenant has at present.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    arrivals: Arrivals,
    queue: VecDeque<Request>,
    next: Option<u64>,
    /// GPU time of the kernel in progress. It ends only when this has run, also without a grant.
    pub(crate) kernel_left_ns: u64,
    /// Arrival and duration of each finished request.
    pub(crate) finished: Vec<(u64, u64)>,
}

impl Workload {
    pub(crate) fn new(arrivals: Arrivals, now: u64) -> Self {
        let next = match arrivals {
            Arrivals::Saturating => None,
            Arrivals::Periodic { .. } | Arrivals::Pausing { .. } => Some(now),
        };
        Self { arrivals, queue: VecDeque::new(), next, kernel_left_ns: 0, finished: Vec::new() }
    }

    pub(crate) const fn next_arrival(&self) -> Option<u64> {
        self.next
    }

    /// Adds the requests that have arrived until `now`.
    pub(crate) fn arrive(&mut self, now: u64) {
        while let Some(arrived) = self.next.filter(|next| *next <= now) {
            let (work_ns, next) = match self.arrivals {
                Arrivals::Saturating => (0, None),
                Arrivals::Periodic { period_ns, work_ns } => (work_ns, Some(arrived + period_ns)),
                Arrivals::Pausing { work_ns, .. } => (work_ns, None),
            };
            self.next = next;
            if work_ns > 0 && self.queue.len() < QUEUE {
                self.queue.push_back(Request { arrived, left_ns: work_ns });
            }
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.arrivals == Arrivals::Saturating || !self.queue.is_empty() || self.kernel_left_ns > 0
    }

    /// GPU time until the present request or kernel ends.
    pub(crate) fn left_ns(&self) -> u64 {
        match (self.kernel_left_ns, self.queue.front()) {
            (0, Some(request)) => request.left_ns,
            (0, None) => u64::MAX,
            (kernel, _) => kernel,
        }
    }

    /// The tenant ran for `ns` until `now`.
    pub(crate) fn ran(&mut self, ns: u64, now: u64) {
        self.kernel_left_ns = self.kernel_left_ns.saturating_sub(ns);
        let Some(request) = self.queue.front_mut() else { return };
        request.left_ns = request.left_ns.saturating_sub(ns);
        if request.left_ns == 0 {
            self.finished.push((request.arrived, now - request.arrived));
            self.queue.pop_front();
            if let Arrivals::Pausing { pause_ns, .. } = self.arrivals {
                self.next = Some(now + pause_ns);
            }
        }
    }
}
