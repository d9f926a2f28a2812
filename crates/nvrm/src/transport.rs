//! How one escape gets to the driver, and what descriptors are taken for one.

mod device;
mod socket;
pub mod wire;

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use sluice_sys::kind::Kind;
use thiserror::Error;

pub use device::Device;
pub use socket::Socket;

/// Where `/dev/nvidiactl` is: its device number.
pub const CONTROL_DEVICE: (u32, u32) = (195, 255);

/// A way to the driver.
pub trait Transport: Debug + Sync {
    /// Makes one escape: function `nr` with its block and the parameters that the block points at. Both come back as the
    /// driver left them; the block's pointer is this function's affair and comes back as 0.
    ///
    /// # Errors
    /// What the system call says. The driver's own refusals are in the block.
    fn escape(&self, nr: u8, block: &mut [u8], params: &mut [u8]) -> io::Result<()>;
}

/// A descriptor that leads to no driver.
#[derive(Debug, Error)]
#[error("descriptor is {found}, expected {}", if *simulated { "the control device or a simulator's socket" } else { "the control device 195:255" })]
pub struct NotADriver {
    /// The descriptor. Closing it may take as long as whoever sent it likes.
    pub fd: OwnedFd,
    /// What it is, or why that cannot be told.
    pub found: String,
    simulated: bool,
}

/// Takes a descriptor for a way to the driver: the NVIDIA control device, or where `simulated` a simulator's socket.
///
/// # Errors
/// Anything else is refused and given back.
pub fn adopt(fd: OwnedFd, simulated: bool) -> Result<Box<dyn Transport + Send>, NotADriver> {
    let found = match sluice_sys::kind::of(fd.as_fd()) {
        Ok(Kind::Character { major, minor }) if (major, minor) == CONTROL_DEVICE => {
            return Ok(Box::new(Device::new(fd)));
        }
        Ok(Kind::Socket { domain: libc::AF_UNIX, kind: libc::SOCK_SEQPACKET }) if simulated => {
            return Ok(Box::new(Socket::new(fd)));
        }
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    };
    Err(NotADriver { fd, found, simulated })
}

/// The escape's block with the pointer of its parameters blanked; refused if it has no room for one and needs it.
fn blank_pointer(block: &mut [u8], has_params: bool) -> io::Result<()> {
    match block.get_mut(crate::abi::POINTER) {
        Some(pointer) => {
            pointer.fill(0);
            Ok(())
        }
        None if has_params => Err(io::ErrorKind::InvalidInput.into()),
        None => Ok(()),
    }
}
