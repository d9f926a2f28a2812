//! Control of channel groups (TSGs) through the user interface of the stock NVIDIA driver.
//!
//! A process opens the control device (`/dev/nvidiactl`) and makes ioctls on it. A second process that has a copy of that descriptor
//! can make controls on the first one's channel groups: set the time slice, disable and enable channels, read counters.
//!
//! * [`abi`] knows every offset and size, over byte slices.
//! * [`transport`] carries one escape (ioctl) to the driver, or to the simulated driver.
//! * [`ioctl_observation`] records the channel groups that this process allocates, from its own ioctls.
//! * [`discovery`] finds the channel groups of an unhooked process through copies of its descriptors.
//! * [`control`] makes the controls: [`Controls`].
//! * [`self_test`] evaluates whether the controls of this driver have an effect.
//!
//! ```
//! use sluice_nvrm::Controls;
//! use std::os::fd::OwnedFd;
//!
//! # fn example(descriptor: OwnedFd) -> Result<(), Box<dyn std::error::Error>> {
//! // `descriptor` was sent by the process that owns the group.
//! let controls = Controls::from_descriptor(descriptor, false)?;
//! let (client, subdevice, group) = (0xc1d0_0007, 0x5c00_0003, 0x5c00_0015);
//! controls.set_timeslice(client, group, 2_000)?;
//! controls.disable(client, subdevice, &[0x5c00_001c])?;
//! # Ok(())
//! # }
//! ```
//!
//! Layouts are those of driver 580 and 595, which give the same bytes for the same sources. The crate also runs inside the hook:
//! it does not panic, it does not log, and it allocates only after the driver has accepted a request that concerns it.

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("the driver's structures are read with the layout of 64-bit little-endian machines");

pub mod abi;
pub mod control;
pub mod discovery;
mod driver;
pub mod ioctl_observation;
pub mod self_test;
mod status;
pub mod transport;

pub use control::{ControlError, Controls};
pub use driver::{DriverVersion, VERSION_FILE};
pub use status::NvStatus;
