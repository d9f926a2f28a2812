//! Which benefit test a request belongs to.

use super::benefit_test::{BenefitTest, Mechanism};
use super::request::Trigger;
use super::state::HoldKernelState;

/// The requests of one benefit test of hold kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tested {
    /// Begun by a copy.
    ByCopy,
    /// Of one burst of work, begun by a launch: there is no time before the launch in which a hold kernel could switch the GPU.
    ByLaunch,
    /// Begun by a launch, with a hold kernel that stays over the gaps that follow. The samples of [`Self::ByLaunch`] tell nothing about these:
    /// a process has some before it has learned its gaps, and no hold kernel shortens them.
    WholeByLaunch,
    /// Predicted.
    Predicted,
}

impl Tested {
    /// The test of requests that this begins, with hold kernels that linger for this time.
    pub(super) fn of(trigger: Trigger, linger_ns: u64) -> Option<Self> {
        match trigger {
            Trigger::Copy => Some(Self::ByCopy),
            Trigger::Launch if linger_ns > 0 => Some(Self::WholeByLaunch),
            Trigger::Launch => Some(Self::ByLaunch),
            Trigger::Predicted => Some(Self::Predicted),
            Trigger::Hint => None,
        }
    }
}

/// The benefit tests of hold kernels.
#[derive(Debug)]
pub(super) struct BenefitTests([BenefitTest; 4]);

impl BenefitTests {
    pub(super) fn new() -> Self {
        let is_default = [true, false, true, true];
        Self(is_default.map(|default| BenefitTest::new(Mechanism::HoldKernels { default })))
    }

    pub(super) fn of(&self, tested: Tested) -> &BenefitTest {
        &self.0[tested as usize]
    }

    pub(super) fn of_mut(&mut self, tested: Tested) -> &mut BenefitTest {
        &mut self.0[tested as usize]
    }
}

impl HoldKernelState {
    /// Whether a request that the program's calls begin gets a hold kernel.
    pub(super) fn chooses_hold(&mut self, trigger: Trigger) -> bool {
        let lingers_shortly = self.lingers_shortly();
        let Some(tested) = Tested::of(trigger, self.linger_ns()) else { return true };
        let test = self.benefit_tests.of_mut(tested);
        let is_sample = test.is_sampling();
        // The test compares medians, in which the few requests that follow another one at once do not show.
        test.choose() || (lingers_shortly && !is_sample)
    }
}
