//! Steering channel groups through the stock NVIDIA driver's user interface: which ioctls a process makes, what they tell of
//! its channel groups, and the controls that another process can then make over the same descriptor.
//!
//! * [`abi`] knows every offset and size, over byte slices.
//! * [`transport`] carries one escape to the driver, or to the simulated one.
//! * [`sniff`] keeps what a process has allocated, from the ioctls that it made.
//! * [`control`] makes the controls.
//! * [`outside`] finds the groups of a process that tells nobody, through its own descriptors.
//! * [`selftest`] judges whether they do anything.
//!
//! Layouts are those of driver 580 and 595, for which the same sources give the same bytes. The crate also runs inside the
//! hook: no panics, no logging, and no allocation before the driver has accepted a request that concerns it.

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("the driver's structures are read as 64-bit little-endian machines lay them out");

pub mod abi;
pub mod control;
mod driver;
pub mod outside;
pub mod selftest;
pub mod sniff;
mod status;
pub mod transport;

pub use control::{ControlError, Controls};
pub use driver::{Driver, VERSION_FILE};
pub use status::NvStatus;
