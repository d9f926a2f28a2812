//! Which engine makes a request's small copies: a copy engine, or the multiprocessors by a kernel.
//!
//! A neighbour's copies, allocations and frees keep a copy engine for up to one of its time slices, and a kernel is not behind them. Without
//! such a neighbour the kernel is slower. So a benefit test decides, with the copy engine as default.

use super::benefit_test::{BenefitTest, Mechanism};
use super::request::Trigger;
use super::state::HoldKernelState;
use super::tested::Tested;

/// How long copies outside of known requests go on as the last test has decided. A neighbour that allocates and frees does not count as a
/// contender between two of its calls, and requests that begin then are not known.
const OUTSIDE_NS: u64 = 1_000_000_000;

/// How the copies of one request are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyChoice {
    /// As decided. The request is no sample, because hold kernels are being tested, or because it may have begun after its copies.
    Settled,
    /// As decided; the request's duration is recorded.
    Observed {
        /// Whether a kernel makes them.
        by_kernel: bool,
    },
    /// As a sample of the test. The tests of hold kernels learn nothing from it.
    Sample {
        /// Whether a kernel makes them.
        by_kernel: bool,
    },
}

/// The choice for the copies of one device.
#[derive(Debug)]
pub(super) struct Copies {
    test: BenefitTest,
    /// Until when a kernel makes them; 0 if a copy engine does.
    by_kernel_until_ns: u64,
    /// A kernel has made a copy of the current request.
    is_made: bool,
}

impl Copies {
    pub(super) fn new() -> Self {
        Self { test: BenefitTest::new(Mechanism::KernelCopies), by_kernel_until_ns: 0, is_made: false }
    }

    /// Until when a kernel makes copies; 0 if a copy engine does.
    pub(super) fn by_kernel_until_ns(&self) -> u64 {
        self.by_kernel_until_ns
    }

    /// Records that a kernel has made a copy.
    pub(super) fn made_by_kernel(&mut self) {
        self.is_made = true;
    }

    /// Chooses for a request that begins. `tests_holds`: the request is a sample of a test of hold kernels.
    pub(super) fn begin_request(&mut self, trigger: Trigger, tests_holds: bool, now_ns: u64) -> CopyChoice {
        let choice = if tests_holds || trigger == Trigger::Launch {
            CopyChoice::Settled
        } else if self.test.is_sampling() {
            CopyChoice::Sample { by_kernel: self.test.choose() }
        } else {
            CopyChoice::Observed { by_kernel: self.test.choose() }
        };
        let by_kernel = match choice {
            CopyChoice::Settled => self.test.settled(),
            CopyChoice::Observed { by_kernel } | CopyChoice::Sample { by_kernel } => by_kernel,
        };
        self.by_kernel_until_ns = if by_kernel { now_ns.saturating_add(OUTSIDE_NS) } else { 0 };
        self.is_made = false;
        choice
    }

    /// Records the end of a request that began at about `began_ns`. If a kernel was to make its copies and could make none, as of pageable
    /// memory, it is no sample of a kernel: soon no further one is tried. If a kernel has made one that a copy engine was to make, as while
    /// memory of others moved, it is no sample of a copy engine.
    pub(super) fn end_request(&mut self, choice: CopyChoice, began_ns: u64, lasted_ns: Option<u64>) {
        match choice {
            CopyChoice::Settled => {}
            CopyChoice::Observed { by_kernel } | CopyChoice::Sample { by_kernel } => {
                let is_as_chosen = by_kernel == self.is_made;
                self.test.learn(by_kernel, lasted_ns.filter(|_| is_as_chosen), true);
            }
        }
        self.by_kernel_until_ns = if self.test.settled() { began_ns.saturating_add(OUTSIDE_NS) } else { 0 };
    }
}

impl HoldKernelState {
    /// Chooses which engine makes the copies of a request that begins by `trigger`. `tested` is the test of hold kernels that learns from it; `None`
    /// if none does. Only one test takes a sample at a time.
    pub(super) fn choose_copies(
        &mut self,
        tested: Option<Tested>,
        trigger: Trigger,
        now_ns: u64,
    ) -> CopyChoice {
        let test = tested.map(|tested| self.benefit_tests.of(tested));
        self.copies.begin_request(trigger, test.is_some_and(BenefitTest::is_sampling), now_ns)
    }
}
