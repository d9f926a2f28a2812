//! The simulation's own account of GPU time: which tenant ran when. The ledger under test has no part in it.

use std::fmt;

/// Resolution of the account.
const STEP_NS: u64 = 10_000_000;

/// GPU time of each tenant in steps of 10 ms.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witness {
    steps: Vec<Vec<u64>>,
    totals: Vec<u64>,
    /// Time lost to context switches.
    pub(crate) switching_ns: u64,
}

/// The 1 s window in which a tenant's share differs most from the expected one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deviation {
    pub(crate) tenant: usize,
    pub(crate) from: u64,
    pub(crate) share: f64,
    pub(crate) expected: f64,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, from, share, expected } = self;
        let seconds = *from as f64 / 1e9;
        write!(
            f,
            "tenant {tenant} got {share:.3} instead of {expected:.3} in the window from {seconds:.2} s on"
        )
    }
}

impl Deviation {
    pub(crate) fn size(&self) -> f64 {
        (self.share - self.expected).abs()
    }
}

impl Witness {
    /// A tenant used `ns` of GPU time, evenly between `from` and `to`.
    pub(crate) fn ran(&mut self, tenant: usize, from: u64, to: u64, ns: u64) {
        if self.steps.len() <= tenant {
            self.steps.resize(tenant + 1, Vec::new());
            self.totals.resize(tenant + 1, 0);
        }
        self.totals[tenant] += ns;
        let steps = &mut self.steps[tenant];
        let last = usize::try_from((to - 1) / STEP_NS).unwrap();
        if steps.len() <= last {
            steps.resize(last + 1, 0);
        }
        let mut begin = from;
        while begin < to {
            let end = (begin / STEP_NS + 1) * STEP_NS;
            let part = end.min(to) - begin;
            steps[usize::try_from(begin / STEP_NS).unwrap()] += ns * part / (to - from);
            begin = end;
        }
    }

    /// GPU time of a tenant since the beginning.
    pub(crate) fn total_ns(&self, tenant: usize) -> u64 {
        self.totals.get(tenant).copied().unwrap_or(0)
    }

    /// GPU time of a tenant between two multiples of 10 ms.
    pub(crate) fn used_ns(&self, tenant: usize, from: u64, to: u64) -> u64 {
        let Some(steps) = self.steps.get(tenant) else { return 0 };
        let bound = |at: u64| usize::try_from(at / STEP_NS).unwrap().min(steps.len());
        steps[bound(from)..bound(to)].iter().sum()
    }

    pub(crate) fn share(&self, tenant: usize, from: u64, to: u64) -> f64 {
        self.used_ns(tenant, from, to) as f64 / (to - from) as f64
    }

    /// The largest deviation of a tenant in any window of this length between `from` and `to`.
    pub(crate) fn largest_deviation(
        &self,
        tenant: usize,
        expected: f64,
        window_ns: u64,
        (from, to): (u64, u64),
    ) -> Deviation {
        let starts = (from.div_ceil(STEP_NS)..).map(|step| step * STEP_NS);
        let deviation = |from: u64| Deviation {
            tenant,
            from,
            share: self.share(tenant, from, from + window_ns),
            expected,
        };
        starts
            .take_while(|from| from + window_ns <= to)
            .map(deviation)
            .max_by(|a, b| a.size().total_cmp(&b.size()))
            .unwrap()
    }
}
