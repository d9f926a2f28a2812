//! Transports: how one escape (ioctl) reaches the driver, and which descriptors are accepted as one.

mod device;
mod socket;
pub mod wire;

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use sluice_sys::file_kind::Kind;
use thiserror::Error;

pub use device::Device;
pub use socket::Socket;

/// Device number (major, minor) of `/dev/nvidiactl`.
pub const CONTROL_DEVICE: (u32, u32) = (195, 255);

/// A connection to the driver.
pub trait Transport: Debug + Sync {
    /// Makes one escape: function `nr` with its block and the parameters that the block points at. Afterwards both hold what the
    /// driver wrote. This function sets the block's pointer itself, and returns it as 0.
    /// Errors: the error of the system call. The driver's own errors are in the block.
    fn escape(&self, nr: u8, block: &mut [u8], params: &mut [u8]) -> io::Result<()>;
}

/// A descriptor that leads to no driver.
#[derive(Debug, Error)]
#[error("descriptor is {found}, expected {}", if *simulated { "the control device or a simulator's socket" } else { "the control device 195:255" })]
pub struct NotADriver {
    /// The descriptor. Its sender can delay its close without limit.
    pub fd: OwnedFd,
    /// Its kind, or the error of reading it.
    pub found: String,
    simulated: bool,
}

/// Accepts a descriptor of the NVIDIA control device, or if `simulated` of a simulator's socket.
/// Errors: every other descriptor is refused and returned.
pub fn open_transport(fd: OwnedFd, simulated: bool) -> Result<Box<dyn Transport + Send>, NotADriver> {
    let found = match sluice_sys::file_kind::of(fd.as_fd()) {
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

/// Accepts a simulator's socket for the simulated driver's own library, whose escapes have no time limit: an ioctl has none.
/// Errors: every other descriptor is refused and returned.
pub fn open_simulator(fd: OwnedFd) -> Result<Socket, NotADriver> {
    let found = match sluice_sys::file_kind::of(fd.as_fd()) {
        Ok(Kind::Socket { domain: libc::AF_UNIX, kind: libc::SOCK_SEQPACKET }) => {
            return Ok(Socket::without_limit(fd));
        }
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    };
    Err(NotADriver { fd, found, simulated: true })
}

/// Sets the parameter pointer of a block to 0. Fails if there are parameters and the block has no pointer.
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
