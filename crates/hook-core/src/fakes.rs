//! Fakes of driver, manager and clock for the tests of this crate.

mod clock;
mod driver;
mod link;
mod memory;

pub(crate) use clock::ManualClock;
pub(crate) use driver::FakeDriver;
pub(crate) use link::FakeLink;
pub(crate) use memory::FakeMemory;
