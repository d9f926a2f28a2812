//! Whether holds pay: requests with and without one are timed in turn, then the better way is kept for a long while.
//!
//! What is timed is the request as its program sees it, from its first copy or launch to the end of the wait for it. That
//! takes two readings of the host's clock, and it counts what a hold costs (its own launches) with what it saves. Times on
//! the GPU would need events in the program's streams and would leave the cost out.

/// Requests of each kind in a trial. Compared are their medians: a hiccup is nobody's doing.
const EACH: usize = 7;

/// How much better the less usual way has to be. A hold that is of no use costs less than this.
const WORTH: f64 = 0.03;

/// Requests until the next trial: at first, and at most.
const KEPT: (u32, u32) = (4_096, 32_768);

/// Requests between those of a later trial that go without a hold. They are slower, so they are to be far fewer than one in a
/// hundred of any minute's, which is what a 99th percentile forgives.
const APART: u32 = 512;

/// Requests until the next trial after a less usual verdict.
const DOUBTED: u32 = 256;

/// Requests of a trial that ended unobserved before it is given up.
const UNOBSERVED: u32 = 8;

/// One decision: to hold or not.
#[derive(Debug, Clone)]
pub(super) struct BenefitTest {
    usually: bool,
    held: Vec<u64>,
    plain: Vec<u64>,
    unobserved: u32,
    /// Requests until one goes the less usual way.
    apart: u32,
    /// The decision and for how many requests it is kept; `None` during a trial.
    settled: Option<(bool, u32)>,
    /// The last trial went against the usual way, which a second one has to confirm.
    doubted: bool,
    /// The last decision and for how many requests it was to be kept.
    settled_before: Option<(bool, u32)>,
}

impl BenefitTest {
    /// A trial that holds in case of doubt, or does not.
    pub(super) fn new(usually: bool) -> Self {
        Self {
            usually,
            held: Vec::with_capacity(EACH),
            plain: Vec::with_capacity(EACH),
            unobserved: 0,
            apart: 0,
            settled: None,
            doubted: false,
            settled_before: None,
        }
    }

    /// Whether to hold for the request that begins.
    pub(super) fn choose(&mut self) -> bool {
        match &mut self.settled {
            Some((choice, left)) => {
                let choice = *choice;
                *left -= 1;
                if *left == 0 {
                    self.settled = None;
                }
                choice
            }
            None if self.apart > 0 => {
                self.apart -= 1;
                self.usually
            }
            None => self.held.len() <= self.plain.len(),
        }
    }

    /// A request is over; `lasted_ns` is `None` if nobody saw when. Unless others were `contesting` the GPU, times prove
    /// nothing against holds.
    pub(super) fn learn(&mut self, held: bool, lasted_ns: Option<u64>, contesting: bool) {
        if self.settled.is_some() {
            return;
        }
        let Some(lasted_ns) = lasted_ns else {
            self.unobserved += 1;
            if self.unobserved >= UNOBSERVED {
                self.settle(self.usually);
            }
            return;
        };
        self.unobserved = 0;
        let (kind, other) =
            if held { (&mut self.held, self.plain.len()) } else { (&mut self.plain, self.held.len()) };
        // In pairs, so that both ways are compared at the same times.
        if kind.len() < EACH && kind.len() <= other {
            kind.push(lasted_ns);
            let as_usual = self.settled_before.is_some_and(|(choice, _)| choice == self.usually);
            if held != self.usually && as_usual && !self.doubted {
                self.apart = APART;
            }
        }
        if self.held.len() == EACH && self.plain.len() == EACH {
            let (held, plain) = (median(&mut self.held), median(&mut self.plain));
            let handicap = if self.usually { 1.0 + WORTH } else { 1.0 - WORTH };
            let unproven = self.usually && !contesting;
            let choice = held <= plain * handicap || unproven;
            let decided = choice == self.usually || self.doubted;
            self.doubted = !decided;
            self.clear();
            if decided {
                self.settle(choice);
            }
        }
    }

    fn settle(&mut self, choice: bool) {
        let as_usual = choice == self.usually;
        let keep = match self.settled_before {
            Some((before, kept)) if before == choice => (kept * 2).min(KEPT.1),
            _ if as_usual => KEPT.0,
            _ => DOUBTED,
        };
        self.settled_before = Some((choice, keep));
        self.settled = Some((choice, keep));
        self.clear();
    }

    fn clear(&mut self) {
        self.held.clear();
        self.plain.clear();
        self.unobserved = 0;
        self.apart = 0;
    }
}

fn median(times: &mut [u64]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |median| *median as f64)
}

#[cfg(test)]
#[path = "benefit_test_tests.rs"]
mod tests;
