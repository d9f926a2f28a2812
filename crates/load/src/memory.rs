//! Device memory and pinned host memory of a session.

use std::ffi::c_void;
use std::ptr;

use sluice_driver_api::types::CUdeviceptr;

use crate::driver::{Error, call};
use crate::kernel;
use crate::session::{Session, Stream};

/// Device memory from `cuMemAlloc`.
#[derive(Debug)]
pub struct DeviceBuffer<'s> {
    session: &'s Session,
    address: CUdeviceptr,
    bytes: usize,
}

impl<'s> DeviceBuffer<'s> {
    /// Allocates `bytes` (at least one).
    pub fn new(session: &'s Session, bytes: u64) -> Result<Self, Error> {
        let bytes = usize::try_from(bytes).map_err(|_| Error::TooLarge(bytes))?;
        let mut address: CUdeviceptr = 0;
        // SAFETY: the driver writes one address to a local.
        unsafe { call!(session.driver(), cuMemAlloc_v2(&raw mut address, bytes))? };
        Ok(Self { session, address, bytes })
    }

    /// Allocates `words` words and fills them with [`kernel::initial`].
    pub fn with_initial_words(session: &'s Session, words: u32) -> Result<Self, Error> {
        let buffer = Self::new(session, u64::from(words) * size_of::<u64>() as u64)?;
        buffer.fill_with_initial_words()?;
        Ok(buffer)
    }

    /// Fills it with [`kernel::initial`], after everything submitted on blocking streams.
    pub fn fill_with_initial_words(&self) -> Result<(), Error> {
        self.fill(kernel::initial)
    }

    /// Fills it with a function of the index of each word, after everything submitted on blocking streams.
    pub fn fill(&self, word: impl Fn(u64) -> u64) -> Result<(), Error> {
        let words = self.bytes / size_of::<u64>();
        let host: Vec<u64> = (0..words as u64).map(word).collect();
        // SAFETY: the source has whole words of a buffer of `self.bytes` and outlives the call, which returns when the copy has been taken.
        unsafe {
            call!(
                self.session.driver(),
                cuMemcpyHtoD_v2(self.address, host.as_ptr().cast(), size_of_val(host.as_slice()))
            )
        }
    }

    /// Reads the whole buffer back as words, after everything submitted on blocking streams.
    pub fn words(&self) -> Result<Vec<u64>, Error> {
        let mut host = vec![0_u64; self.bytes / size_of::<u64>()];
        // SAFETY: the destination is at least as long as the bytes copied, whole words of a buffer of `self.bytes`.
        unsafe {
            call!(
                self.session.driver(),
                cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), self.address, size_of_val(host.as_slice()))
            )?
        };
        Ok(host)
    }

    /// Device address.
    pub fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

impl Drop for DeviceBuffer<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated by this session and freed only here.
        let _ = unsafe { call!(self.session.driver(), cuMemFree_v2(self.address)) };
    }
}

/// Page-locked host memory, so that copies are asynchronous.
#[derive(Debug)]
pub struct PinnedBuffer<'s> {
    session: &'s Session,
    pointer: *mut c_void,
    bytes: usize,
}

impl<'s> PinnedBuffer<'s> {
    /// Allocates and zeroes `bytes` (at least one).
    pub fn new(session: &'s Session, bytes: usize) -> Result<Self, Error> {
        let mut pointer: *mut c_void = ptr::null_mut();
        // SAFETY: the driver writes one address to a local.
        unsafe { call!(session.driver(), cuMemHostAlloc(&raw mut pointer, bytes, 0))? };
        // SAFETY: the driver just gave us `bytes` writable bytes there.
        unsafe { ptr::write_bytes(pointer.cast::<u8>(), 0, bytes) };
        Ok(Self { session, pointer, bytes })
    }

    /// Copies to the start of `target`, in stream order. The caller waits for the stream before it writes this buffer.
    /// Returns [`Error::TooLarge`] if `target` is smaller.
    pub fn copy_to(&self, target: &DeviceBuffer<'_>, stream: &Stream<'_>) -> Result<(), Error> {
        if self.bytes > target.bytes {
            return Err(Error::TooLarge(self.bytes as u64));
        }
        // SAFETY: both sides are at least `self.bytes` long, and both are freed by the driver, which waits for the copy.
        unsafe {
            call!(
                self.session.driver(),
                cuMemcpyHtoDAsync_v2(target.address, self.pointer, self.bytes, stream.handle())
            )
        }
    }

    /// Fills this buffer from the start of `source`, in stream order.
    /// Returns [`Error::TooLarge`] if `source` is smaller.
    pub fn copy_from(&self, source: &DeviceBuffer<'_>, stream: &Stream<'_>) -> Result<(), Error> {
        if self.bytes > source.bytes {
            return Err(Error::TooLarge(self.bytes as u64));
        }
        // SAFETY: both sides are at least `self.bytes` long, and both are freed by the driver, which waits for the copy.
        unsafe {
            call!(
                self.session.driver(),
                cuMemcpyDtoHAsync_v2(self.pointer, source.address, self.bytes, stream.handle())
            )
        }
    }
}

impl Drop for PinnedBuffer<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated by this session and freed only here.
        let _ = unsafe { call!(self.session.driver(), cuMemFreeHost(self.pointer)) };
    }
}
