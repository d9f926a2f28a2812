//! What a GPU's controls do under this driver: tried once per GPU, driver and boot, before the GPU's first pod-manager is
//! started, and handed to that as a file.
//!
//! * [`tester`] decides whether to try, and has it tried by a process of its own (`sluice self-test`): a driver that hangs
//!   hangs that one.
//! * [`records`] keeps the verdicts in the node's state folder, by what they hold for.
//! * [`outcome`] is what came of it, for metrics, the state page and events.
//!
//! The test needs an idle GPU for a moment. Where somebody uses it, or it cannot be tried, the pod-manager starts without a
//! verdict and decides by the driver's branch.

mod outcome;
mod records;
mod tester;

pub use outcome::Outcome;
pub use tester::{Tester, Tools, Tried};
