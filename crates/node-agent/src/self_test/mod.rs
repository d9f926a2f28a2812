//! The self-test of a GPU's driver controls: run once per GPU, driver and boot, before the GPU's first pod-manager
//! starts. The manager receives the result as a file.
//!
//! * `tester` decides whether to test, and runs the test in a process of its own (`sluice self-test`): a driver that
//!   hangs blocks only that process.
//! * `result_store` keeps the results in the node's state folder, by GPU, driver and boot.
//! * `outcome` is the outcome for metrics, the state page and events.
//!
//! The test needs an idle GPU for a moment. If the GPU is in use or cannot be tested, the pod-manager starts without a
//! result and decides by the driver's branch.

mod outcome;
mod result_store;
mod tester;

pub use outcome::Outcome;
pub use tester::{SelfTestRun, Tester, Tools};
