//! ioctl, on the side of a driver library and on that of the kernel.
//!
//! The control device of the simulated GPU is a socket, which has no such ioctls: the C library returns ENOTTY.
//! [`sluiceSimIoctl`] does what the kernel would have done, over the socket.

use sluice_driver_api::types::{c_int, c_void};
use sluice_nvrm::abi::{
    AllocBlock, ChannelParams, ControlBlock, GroupParams, POINTER, Request, XferBlock, class,
};
use sluice_nvrm::transport::{Transport, open_simulator, wire};
use std::ffi::c_ulong;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

type Ioctl = unsafe extern "C" fn(c_int, c_ulong, ...) -> c_int;

/// The process's `ioctl`: the first one in the order of its libraries, which may be one that observes ioctls.
fn of_process() -> Option<Ioctl> {
    // SAFETY: the handle stands for the whole process, and the name is a C string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ioctl".as_ptr()) };
    if address.is_null() {
        return None;
    }
    // SAFETY: a symbol of this name is the C library's function or replaces it.
    Some(unsafe { std::mem::transmute::<*mut c_void, Ioctl>(address) })
}

/// Makes an ioctl on the control device. It may change the block, and the parameters that the block points at.
pub(crate) fn ioctl(
    file: BorrowedFd<'_>,
    request: Request,
    block: &mut [u8],
    mut params: Option<&mut [u8]>,
) -> io::Result<()> {
    if let Some(params) = params.as_mut().filter(|params| !params.is_empty()) {
        let address = params.as_mut_ptr().expose_provenance() as u64;
        block[POINTER].copy_from_slice(&address.to_le_bytes());
    }
    let ioctl = of_process().ok_or(io::ErrorKind::NotFound)?;
    let number = c_ulong::from(request.number());
    let argument: *mut c_void = block.as_mut_ptr().cast();
    // SAFETY: the block has the size that is part of the request's number, and points at parameters of the size that goes
    // with it; both are writable and live until the call is over.
    let mut done = unsafe { ioctl(file.as_raw_fd(), number, argument) };
    if done < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOTTY) {
        // SAFETY: as above.
        done = unsafe { sluiceSimIoctl(file.as_raw_fd(), number, argument) };
    }
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Does what the kernel does for an ioctl on the control device, on a file of the simulated one. Returns 0, or -1 and sets
/// errno; ENOTTY for another file.
///
/// # Safety
/// As for ioctl: on a file of the simulated control device the argument points at a block of the size that is part of the
/// request's number, and the block at parameters of the size that goes with it. On any other file it may be anything.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sluiceSimIoctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller guarantees for the argument what the request requires.
    match unsafe { answer(fd, request, argument) } {
        Ok(()) => 0,
        Err(error) => {
            let number = error.raw_os_error().unwrap_or(libc::EIO);
            // SAFETY: the thread's own errno.
            unsafe { *libc::__errno_location() = number };
            -1
        }
    }
}

/// # Safety
/// As [`sluiceSimIoctl`].
unsafe fn answer(fd: c_int, request: c_ulong, argument: *mut c_void) -> io::Result<()> {
    let errno = io::Error::from_raw_os_error;
    let mut request = Request::of(request).ok_or_else(|| errno(libc::ENOTTY))?;
    if fd < 0 {
        return Err(errno(libc::EBADF));
    }
    // SAFETY: it is not negative, and is only duplicated: a descriptor that does not exist is an error.
    let file = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
    let over = open_simulator(file).map_err(|_| errno(libc::ENOTTY))?;
    let mut at = argument.cast::<u8>();
    if at.is_null() {
        return Err(errno(libc::EFAULT));
    }
    if request == Request::XFER {
        // SAFETY: the argument is a block of that size.
        let xfer = unsafe { std::slice::from_raw_parts(at, usize::from(request.len)) }.to_vec();
        let xfer = XferBlock::decode(&xfer).ok_or_else(|| errno(libc::EINVAL))?;
        request = xfer.request().ok_or_else(|| errno(libc::EINVAL))?;
        let address = usize::try_from(xfer.block).map_err(|_| errno(libc::EFAULT))?;
        at = std::ptr::with_exposed_provenance_mut(address);
        if at.is_null() {
            return Err(errno(libc::EFAULT));
        }
    }
    // SAFETY: the caller's block, of the size that is part of the request.
    let block = unsafe { std::slice::from_raw_parts_mut(at, usize::from(request.len)) };
    let pointer = params_of(request, block);
    if pointer.is_some_and(|(_, len)| len > wire::MAX_PARAMS) {
        return Err(errno(libc::EINVAL));
    }
    let mut copy = block.to_vec();
    let mut params = pointer.map_or(Vec::new(), |(_, len)| vec![0; len]);
    if let Some((address, len)) = pointer {
        let from: *const u8 = std::ptr::with_exposed_provenance(address);
        // SAFETY: the caller's parameters, of the size that the driver uses for them; `params` has this length.
        unsafe { std::ptr::copy_nonoverlapping(from, params.as_mut_ptr(), len) };
    }
    over.escape(request.nr, &mut copy, &mut params)?;
    if let Some((address, len)) = pointer {
        copy[POINTER].copy_from_slice(&block[POINTER]);
        let to: *mut u8 = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: as above, and writable; `params` has this length and is no memory of the caller's.
        unsafe { std::ptr::copy_nonoverlapping(params.as_ptr(), to, len) };
    }
    block.copy_from_slice(&copy);
    Ok(())
}

/// Address and size of the parameters that a block points at.
fn params_of(request: Request, block: &[u8]) -> Option<(usize, usize)> {
    let (address, len) = match request {
        Request::CONTROL => {
            let block = ControlBlock::decode(block)?;
            (block.params, usize::try_from(block.params_len).ok()?)
        }
        Request::ALLOC | Request::ALLOC_WITH_RIGHTS => {
            let block = AllocBlock::decode(block)?;
            // The driver derives the size from the class and ignores the size in the block.
            let len = match block.class {
                class::DEVICE => 56,
                class::SUBDEVICE => 4,
                class::CHANNEL_GROUP => GroupParams::LEN,
                class if class::is_channel(class) => ChannelParams::LEN,
                _ => 0,
            };
            (block.params, len)
        }
        _ => return None,
    };
    let address = usize::try_from(address).ok().filter(|address| *address != 0)?;
    (len > 0).then_some((address, len))
}
