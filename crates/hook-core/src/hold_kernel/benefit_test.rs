//! Tests whether hold kernels shorten requests: times requests alternately with and without one, then keeps the better choice.
//!
//! The timed interval is the request as the program sees it: from its first copy or launch to the end of the wait for it. That costs two
//! readings of the host's clock, and includes the cost of the hold kernel's own launches. Times on the GPU would need events in the
//! program's streams and would leave that cost out.

/// Samples of each kind in a test. Their medians are compared, so that single delays do not count.
const SAMPLES: usize = 7;

/// Relative gain that the choice other than the default needs. A useless hold kernel costs less than this.
const MIN_GAIN: f64 = 0.03;

/// Requests until the next test: at first, and at most.
const VALID_REQUESTS: (u32, u32) = (4_096, 32_768);

/// In later tests, requests between two that go without a hold kernel. Those are slower, so they have to be far fewer than one in a
/// hundred of any minute: they must not show in a 99th percentile.
const SAMPLE_SPACING: u32 = 512;

/// Requests until the next test after a choice other than the default.
const CONTRARY_VALID_REQUESTS: u32 = 256;

/// Requests whose end was not observed, after which a test is given up.
const MAX_UNOBSERVED: u32 = 8;

/// The test for one trigger.
#[derive(Debug, Clone)]
pub(super) struct BenefitTest {
    default: bool,
    with_hold: Vec<u64>,
    without: Vec<u64>,
    unobserved: u32,
    /// Requests until the next sample of the choice other than the default.
    spacing_left: u32,
    /// The current choice and for how many requests it stays; `None` during a test.
    current_choice: Option<(bool, u32)>,
    /// The last test contradicted the default. A second test has to confirm that.
    contradicted: bool,
    /// The last choice and for how many requests it was to stay.
    last_choice: Option<(bool, u32)>,
}

impl BenefitTest {
    /// A test whose default is to use hold kernels, or not to.
    pub(super) fn new(default: bool) -> Self {
        Self {
            default,
            with_hold: Vec::with_capacity(SAMPLES),
            without: Vec::with_capacity(SAMPLES),
            unobserved: 0,
            spacing_left: 0,
            current_choice: None,
            contradicted: false,
            last_choice: None,
        }
    }

    /// Whether to use a hold kernel for the request that begins.
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
                self.default
            }
            None => self.with_hold.len() <= self.without.len(),
        }
    }

    /// The choice without a sample for a test.
    pub(super) fn present_choice(&self) -> bool {
        self.current_choice.map_or(self.default, |(choice, _)| choice)
    }

    /// Records the end of a request; `lasted_ns` is `None` if its end was not observed. Unless other clients were `contesting` the GPU, the
    /// times do not count against hold kernels.
    pub(super) fn learn(&mut self, with_hold: bool, lasted_ns: Option<u64>, contesting: bool) {
        if self.current_choice.is_some() {
            return;
        }
        let Some(lasted_ns) = lasted_ns else {
            self.unobserved += 1;
            if self.unobserved >= MAX_UNOBSERVED {
                self.set_choice(self.default);
            }
            return;
        };
        self.unobserved = 0;
        let (kind, other) = if with_hold {
            (&mut self.with_hold, self.without.len())
        } else {
            (&mut self.without, self.with_hold.len())
        };
        // In pairs, so that both choices are timed under the same conditions.
        if kind.len() < SAMPLES && kind.len() <= other {
            kind.push(lasted_ns);
            let is_default = self.last_choice.is_some_and(|(choice, _)| choice == self.default);
            if with_hold != self.default && is_default && !self.contradicted {
                self.spacing_left = SAMPLE_SPACING;
            }
        }
        if self.with_hold.len() == SAMPLES && self.without.len() == SAMPLES {
            let (with_hold, without) = (median(&mut self.with_hold), median(&mut self.without));
            let threshold = if self.default { 1.0 + MIN_GAIN } else { 1.0 - MIN_GAIN };
            let not_contested = self.default && !contesting;
            let choice = with_hold <= without * threshold || not_contested;
            let decided = choice == self.default || self.contradicted;
            self.contradicted = !decided;
            self.clear();
            if decided {
                self.set_choice(choice);
            }
        }
    }

    fn set_choice(&mut self, choice: bool) {
        let is_default = choice == self.default;
        let keep = match self.last_choice {
            Some((before, kept)) if before == choice => (kept * 2).min(VALID_REQUESTS.1),
            _ if is_default => VALID_REQUESTS.0,
            _ => CONTRARY_VALID_REQUESTS,
        };
        self.last_choice = Some((choice, keep));
        self.current_choice = Some((choice, keep));
        self.clear();
    }

    fn clear(&mut self) {
        self.with_hold.clear();
        self.without.clear();
        self.unobserved = 0;
        self.spacing_left = 0;
    }
}

fn median(times: &mut [u64]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |median| *median as f64)
}

#[cfg(test)]
mod tests;
