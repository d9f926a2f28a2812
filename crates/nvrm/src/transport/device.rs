//! The transport to the real driver: its control device.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::{Transport, blank_pointer};
use crate::abi::{AllocBlock, Command, ControlBlock, MAX_BLOCK_LEN, POINTER, Request, class};

/// An open file of the control device.
#[derive(Debug)]
pub struct Device(OwnedFd);

/// Room for any block, aligned like the driver's structures.
#[repr(C, align(8))]
struct Block([u8; MAX_BLOCK_LEN]);

impl Device {
    /// The system calls made here are harmless on any descriptor; [`super::open_transport`] checks its kind.
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl Transport for Device {
    /// Makes the system call by its number, so that an `ioctl` function interposed by the program is not called.
    ///
    /// Accepts only escapes that cannot make the driver access other memory than `block` and `params`: known controls with parameters
    /// of their size, frees, and new clients.
    fn escape(&self, nr: u8, block: &mut [u8], params: &mut [u8]) -> io::Result<()> {
        let len = u16::try_from(block.len()).unwrap_or(u16::MAX);
        let request = Request { nr, len };
        let is_safe = match request {
            Request::CONTROL => ControlBlock::decode(block).is_some_and(|control| is_safe(&control, params)),
            Request::FREE => params.is_empty(),
            Request::ALLOC => {
                let is_client =
                    |alloc: &AllocBlock| alloc.class == class::ROOT_CLIENT && alloc.params_len == 0;
                params.is_empty() && AllocBlock::decode(block).is_some_and(|alloc| is_client(&alloc))
            }
            _ => false,
        };
        if !is_safe {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        blank_pointer(block, !params.is_empty())?;
        let mut room = Block([0; MAX_BLOCK_LEN]);
        let (used, _) = room.0.split_at_mut(block.len().min(MAX_BLOCK_LEN));
        used.copy_from_slice(block);
        if !params.is_empty() {
            let address = params.as_mut_ptr().expose_provenance() as u64;
            used[POINTER].copy_from_slice(&address.to_le_bytes());
        }
        loop {
            // SAFETY: the block is writable for its length, which is part of the request's number. A control's parameters are
            // writable for the size in the block, and no known control follows other pointers.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_ioctl,
                    self.0.as_raw_fd(),
                    u64::from(request.number()),
                    room.0.as_mut_ptr(),
                )
            };
            if result >= 0 {
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        block.copy_from_slice(&room.0[..block.len()]);
        blank_pointer(block, !params.is_empty())
    }
}

/// Whether the driver reads and writes exactly `params` for this control.
fn is_safe(control: &ControlBlock, params: &[u8]) -> bool {
    let is_known =
        Command::of(control.command).is_some_and(|command| command.params_len == control.params_len);
    is_known && control.flags == 0 && usize::try_from(control.params_len).is_ok_and(|len| len == params.len())
}
