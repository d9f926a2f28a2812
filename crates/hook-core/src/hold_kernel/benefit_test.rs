//! Tests whether a mechanism, hold kernels or copies by a kernel, shortens requests: times requests alternately with and without it, then
//! keeps the better choice.
//!
//! The timed interval is the request as the program sees it: from its first copy or launch to the end of the wait for it. That costs two
//! readings of the host's clock, and includes the cost of the mechanism's own launches. Times on the GPU would need events in the
//! program's streams and would leave that cost out.

/// Samples of each kind in a test. Their medians are compared, so that single delays do not count.
const SAMPLES: usize = 7;

/// Relative gain that the choice other than the default needs. A useless hold kernel costs less than this.
const MIN_GAIN: f64 = 0.03;

/// Requests until the next test: at first, and at most.
const VALID_REQUESTS: (u32, u32) = (4_096, 32_768);

/// In later tests, requests between two that go against the present choice. Those are slower, so they have to be far fewer than one in a
/// hundred of any minute: they must not show in a 99th percentile.
const SAMPLE_SPACING: u32 = 512;

/// Requests until the next test after a choice other than the default: at first.
const CONTRARY_VALID_REQUESTS: u32 = 256;

/// Requests whose end was not observed, after which a test is given up.
const MAX_UNOBSERVED: u32 = 8;

/// A request is slower than usual from this multiple of the median in the last test on.
const SLOWER: f64 = 1.1;

/// Successive slower requests that stand for the first of the two tests that contradict the default.
const SLOWER_REQUESTS: u32 = 8;

/// The part of the requests until the next test before which slower ones begin none: a load that changes all the time must not be tested
/// all the time.
const SLOWER_AFTER: u32 = 16;

/// What is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mechanism {
    /// Hold kernels. Without them a service is as slow as before, so returning to them may take a while, and they may cost what a sample costs.
    HoldKernels {
        /// Whether they are used by default.
        default: bool,
    },
    /// Copies by a kernel, by default not. While they gain, each sample without them may be delayed by a whole time slice of a copy engine,
    /// so these are spaced. A neighbour that begins to copy has to be noticed within some requests.
    KernelCopies,
}

impl Mechanism {
    const fn default(self) -> bool {
        match self {
            Self::HoldKernels { default } => default,
            Self::KernelCopies => false,
        }
    }
}

/// The test for one mechanism, and of hold kernels for one trigger.
#[derive(Debug, Clone)]
pub(super) struct BenefitTest {
    mechanism: Mechanism,
    /// Durations of the samples with the mechanism.
    with: Vec<u64>,
    without: Vec<u64>,
    unobserved: u32,
    /// Requests until the next sample of the choice other than the present one.
    spacing_left: u32,
    /// The current choice and for how many requests it stays; `None` during a test.
    current_choice: Option<(bool, u32)>,
    /// The last test, or slower requests, contradicted the default as the present choice. A second test has to confirm that.
    contradicted: bool,
    /// The last choice and for how many requests it was to stay.
    last_choice: Option<(bool, u32)>,
    /// Median duration without the mechanism in the last test.
    usual_ns: Option<f64>,
    /// Successive requests that were slower than that.
    slower: u32,
}

impl BenefitTest {
    /// A test that has timed nothing.
    pub(super) fn new(mechanism: Mechanism) -> Self {
        Self {
            mechanism,
            with: Vec::with_capacity(SAMPLES),
            without: Vec::with_capacity(SAMPLES),
            unobserved: 0,
            spacing_left: 0,
            current_choice: None,
            contradicted: false,
            last_choice: None,
            usual_ns: None,
            slower: 0,
        }
    }

    /// The last choice; the default before the first test.
    pub(super) fn settled(&self) -> bool {
        self.last_choice.map_or(self.mechanism.default(), |(choice, _)| choice)
    }

    /// Whether the request that begins, or the last one that began, may be a sample of a choice other than the present one.
    pub(super) fn is_sampling(&self) -> bool {
        self.current_choice.is_none() && self.spacing_left == 0
    }

    /// Whether to use the mechanism for the request that begins.
    pub(super) fn choose(&mut self) -> bool {
        match &mut self.current_choice {
            Some((choice, left)) => {
                let choice = *choice;
                *left -= 1;
                if *left == 0 {
                    self.current_choice = None;
                }
                choice
            }
            None if self.spacing_left > 0 => {
                self.spacing_left -= 1;
                self.settled()
            }
            None => self.with.len() <= self.without.len(),
        }
    }

    /// Records the end of a request; `lasted_ns` is `None` if its end was not observed. Unless other clients were `contesting` the GPU, the
    /// times do not count against a mechanism that is used by default.
    pub(super) fn learn(&mut self, with: bool, lasted_ns: Option<u64>, contesting: bool) {
        if self.current_choice.is_some() {
            return self.watch_for_slower_requests(lasted_ns);
        }
        let default = self.mechanism.default();
        let Some(lasted_ns) = lasted_ns else {
            self.unobserved += 1;
            if self.unobserved >= MAX_UNOBSERVED {
                self.set_choice(default);
            }
            return;
        };
        self.unobserved = 0;
        let (kind, other) =
            if with { (&mut self.with, self.without.len()) } else { (&mut self.without, self.with.len()) };
        // In pairs, so that both choices are timed under the same conditions.
        if kind.len() < SAMPLES && kind.len() <= other {
            kind.push(lasted_ns);
            if self.spaces_samples() && with != self.settled() {
                self.spacing_left = SAMPLE_SPACING;
            }
        }
        if self.with.len() == SAMPLES && self.without.len() == SAMPLES {
            let (with, without) = (median(&mut self.with), median(&mut self.without));
            let threshold = if default { 1.0 + MIN_GAIN } else { 1.0 - MIN_GAIN };
            let not_contested = default && !contesting;
            let choice = with <= without * threshold || not_contested;
            let decided = choice == default || choice == self.settled() || self.contradicted;
            self.contradicted = !decided;
            self.usual_ns = Some(without);
            self.clear();
            if decided {
                self.set_choice(choice);
            }
        }
    }

    /// Whether the samples that go against the present choice are spaced.
    fn spaces_samples(&self) -> bool {
        let costs = match self.mechanism {
            Mechanism::HoldKernels { default } => self.settled() == default,
            Mechanism::KernelCopies => true,
        };
        costs && self.last_choice.is_some() && !self.contradicted
    }

    /// Begins a test if requests without copies by a kernel have become slower.
    fn watch_for_slower_requests(&mut self, lasted_ns: Option<u64>) {
        let (Mechanism::KernelCopies, Some(usual_ns)) = (self.mechanism, self.usual_ns) else { return };
        let (Some((false, left)), Some((_, kept))) = (self.current_choice, self.last_choice) else { return };
        let Some(lasted_ns) = lasted_ns else { return };
        self.slower = if lasted_ns as f64 > usual_ns * SLOWER { self.slower + 1 } else { 0 };
        if self.slower >= SLOWER_REQUESTS && kept - left >= kept / SLOWER_AFTER {
            self.clear();
            (self.current_choice, self.contradicted) = (None, true);
        }
    }

    fn set_choice(&mut self, choice: bool) {
        let is_default = choice == self.mechanism.default();
        let keep = match self.last_choice {
            _ if !is_default && self.mechanism == Mechanism::KernelCopies => CONTRARY_VALID_REQUESTS,
            Some((before, kept)) if before == choice => (kept * 2).min(VALID_REQUESTS.1),
            _ if is_default => VALID_REQUESTS.0,
            _ => CONTRARY_VALID_REQUESTS,
        };
        self.last_choice = Some((choice, keep));
        self.current_choice = Some((choice, keep));
        self.contradicted = false;
        self.clear();
    }

    fn clear(&mut self) {
        self.with.clear();
        self.without.clear();
        self.unobserved = 0;
        self.spacing_left = 0;
        self.slower = 0;
    }
}

fn median(times: &mut [u64]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |median| *median as f64)
}

#[cfg(test)]
mod tests;
