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
pub(super) struct Trial {
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

impl Trial {
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
mod tests {
    use super::*;

    /// Lets `requests` requests go by; returns how many were held.
    fn run(trial: &mut Trial, requests: usize, held_ns: u64, plain_ns: u64) -> usize {
        (0..requests)
            .map(|at| {
                let held = trial.choose();
                // A hiccup now and then, on both sides.
                let hiccup = if at % 7 == 3 { 900_000 } else { 0 };
                trial.learn(held, Some(hiccup + if held { held_ns } else { plain_ns }), true);
                usize::from(held)
            })
            .sum()
    }

    #[test]
    fn holds_that_pay_are_kept_and_few_requests_go_without() {
        let mut trial = Trial::new(true);
        run(&mut trial, 100, 990_000, 1_030_000);
        let held = run(&mut trial, 10_000, 990_000, 1_030_000);
        assert!(held >= 9_970, "{held}");
    }

    #[test]
    fn later_trials_take_a_request_now_and_then() {
        let mut trial = Trial::new(true);
        run(&mut trial, 100, 990_000, 1_030_000);
        for minute in 0..100 {
            let held = run(&mut trial, 600, 990_000, 1_030_000);
            assert!(held >= 598, "{held} of 600 in minute {minute}");
        }
    }

    #[test]
    fn holds_that_pay_no_more_end() {
        let mut trial = Trial::new(true);
        run(&mut trial, 100, 990_000, 1_030_000);
        let spread = EACH * (APART as usize + 1);
        run(&mut trial, KEPT.0 as usize + spread + 4 * EACH, 1_200_000, 1_030_000);
        assert_eq!(run(&mut trial, 150, 1_200_000, 1_030_000), 0);
    }

    #[test]
    fn holds_that_do_not_pay_end() {
        let mut trial = Trial::new(true);
        run(&mut trial, 100, 1_200_000, 1_030_000);
        assert_eq!(run(&mut trial, 150, 1_200_000, 1_030_000), 0);
    }

    #[test]
    fn what_did_not_pay_is_tried_again_and_kept_once_it_does() {
        let mut trial = Trial::new(true);
        run(&mut trial, 100, 1_200_000, 1_030_000);
        run(&mut trial, 300, 900_000, 1_030_000);
        assert_eq!(run(&mut trial, 1000, 900_000, 1_030_000), 1000);
    }

    #[test]
    fn one_trial_alone_does_not_turn_it() {
        let mut trial = Trial::new(true);
        run(&mut trial, 2 * EACH, 1_200_000, 1_030_000);
        run(&mut trial, 2 * EACH, 1_000_000, 1_030_000);
        assert_eq!(run(&mut trial, 100, 1_000_000, 1_030_000), 100);
    }

    #[test]
    fn in_doubt_it_is_the_usual_way() {
        for usually in [true, false] {
            let mut trial = Trial::new(usually);
            run(&mut trial, 2 * EACH, 1_000_000, 1_000_000);
            assert_eq!(trial.choose(), usually);
        }
    }

    #[test]
    fn while_nobody_contests_the_gpu_nothing_is_proven_against_holds() {
        let mut trial = Trial::new(true);
        for _ in 0..4 * EACH {
            let held = trial.choose();
            trial.learn(held, Some(if held { 1_200_000 } else { 1_030_000 }), false);
        }
        assert!((0..100).all(|_| trial.choose()));
    }

    #[test]
    fn requests_whose_end_nobody_sees_are_not_tried_upon_for_ever() {
        for usually in [true, false] {
            let mut trial = Trial::new(usually);
            for _ in 0..UNOBSERVED {
                let held = trial.choose();
                trial.learn(held, None, true);
            }
            assert!((0..1000).all(|_| trial.choose() == usually));
        }
    }
}
