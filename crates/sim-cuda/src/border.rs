//! Conversion of arguments from C: pointers become [`Ptr`], all other types are unchanged.
//!
//! A caller of the driver API guarantees that each pointer is null, or valid as the function's documentation
//! requires. [`CArgument::convert`] relies on that guarantee; from there on the code is safe.

use sluice_driver_api::types::*;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The result of a driver function.
pub(crate) type Status = Result<(), CUresult>;

/// An argument of a C function.
pub(crate) trait CArgument {
    /// The type after the conversion.
    type Safe;
    /// Converts the argument.
    ///
    /// # Safety
    /// The argument is what the function's documentation requires: a pointer is null, or valid for reads and writes of
    /// what the function reads and writes through it, also by commands of a stream until they have completed.
    unsafe fn convert(self) -> Self::Safe;
}

/// A pointer argument: null, or valid for what the function does with it.
pub(crate) struct Ptr<T>(*mut T);

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> CArgument for *mut T {
    type Safe = Ptr<T>;
    unsafe fn convert(self) -> Ptr<T> {
        Ptr(self)
    }
}

impl<T> CArgument for *const T {
    type Safe = Ptr<T>;
    unsafe fn convert(self) -> Ptr<T> {
        Ptr(self.cast_mut())
    }
}

macro_rules! unchanged {
    ($($kind:ty)*) => { $(
        impl CArgument for $kind {
            type Safe = $kind;
            unsafe fn convert(self) -> $kind {
                self
            }
        }
    )* };
}
unchanged!(i8 u8 i16 u16 i32 u32 i64 u64 usize f32 f64);
unchanged!(CUresult CUuuid CUipcMemHandle CUipcEventHandle CUmemLocation CUeglFrame CUhostFn CUstreamCallback);

#[cfg(test)]
impl<T> Ptr<T> {
    pub(crate) fn of(value: &mut T) -> Self {
        Ptr(value)
    }

    pub(crate) fn first_of(values: &mut [T]) -> Self {
        Ptr(values.as_mut_ptr())
    }
}

impl<T> Ptr<T> {
    pub(crate) fn null() -> Self {
        Ptr(std::ptr::null_mut())
    }

    /// Memory of the program at an address that it passed as a number, under the same guarantee.
    pub(crate) fn to_address(address: usize) -> Self {
        Ptr(std::ptr::with_exposed_provenance_mut(address))
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// A null pointer is INVALID_VALUE. For functions that must refuse it before they have an effect.
    pub(crate) fn required(self) -> Status {
        if self.is_null() { Err(CUresult::ERROR_INVALID_VALUE) } else { Ok(()) }
    }

    /// The address; for a handle, the handle.
    pub(crate) fn address(self) -> usize {
        self.0.expose_provenance()
    }

    pub(crate) fn cast<U>(self) -> Ptr<U> {
        Ptr(self.0.cast())
    }

    pub(crate) fn at(self, count: usize) -> Ptr<T> {
        Ptr(self.0.wrapping_add(count))
    }
}

impl<T: Copy> Ptr<T> {
    /// Writes a result; a null pointer is INVALID_VALUE.
    pub(crate) fn write(self, value: T) -> Status {
        if self.0.is_null() {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        self.write_if_wanted(value);
        Ok(())
    }

    /// Writes a result that the caller may not want.
    pub(crate) fn write_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so valid for a write by the guarantee of `convert`; unaligned because some callers'
            // pointers are.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Reads an argument; a null pointer is INVALID_VALUE.
    pub(crate) fn read(self) -> Result<T, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so valid for a read by the guarantee of `convert`.
        Ok(unsafe { self.0.read_unaligned() })
    }

    pub(crate) fn read_all(self, count: usize) -> Result<Vec<T>, CUresult> {
        (0..count).map(|index| self.at(index).read()).collect()
    }
}

impl<T> Ptr<*mut T> {
    pub(crate) fn read_pointer(self) -> Result<Ptr<T>, CUresult> {
        self.read().map(Ptr)
    }

    pub(crate) fn write_handle(self, handle: usize) -> Status {
        self.write(std::ptr::with_exposed_provenance_mut(handle))
    }
}

impl Ptr<c_char> {
    /// The text up to its NUL; a null pointer or a text that is not UTF-8 is INVALID_VALUE.
    pub(crate) fn text(self) -> Result<String, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so a C string by the guarantee of `convert`.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| CUresult::ERROR_INVALID_VALUE)
    }

    /// Writes a text with its NUL into a buffer of `size` bytes, truncated if necessary.
    pub(crate) fn write_text(self, text: &str, size: usize) -> Status {
        if self.0.is_null() || size == 0 {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        let bytes = text.bytes().take(size - 1).chain([0]);
        for (index, byte) in bytes.enumerate() {
            self.at(index).write(c_char::from_ne_bytes([byte]))?;
        }
        Ok(())
    }
}

/// A range of bytes in this process: host memory that the caller passed, or device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    address: usize,
    len: usize,
}

impl Span {
    /// Memory that the caller passed and guarantees to be valid.
    pub(crate) fn host<T>(pointer: Ptr<T>, len: usize) -> Result<Self, CUresult> {
        if pointer.is_null() && len > 0 {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        Ok(Self { address: pointer.address(), len })
    }

    /// Memory that [`crate::state::memory::Memory`] has found to be allocated.
    pub(crate) fn found(address: usize, len: usize) -> Self {
        Self { address, len }
    }

    pub(crate) fn address(self) -> usize {
        self.address
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Copies the span to the beginning of `to`, as many bytes as both have.
    pub(crate) fn copy_to(self, to: Span) {
        let len = self.len.min(to.len);
        let from: *const u8 = std::ptr::with_exposed_provenance(self.address);
        let to: *mut u8 = std::ptr::with_exposed_provenance_mut(to.address);
        // SAFETY: the caller guarantees both spans until the command has completed, or they are device memory, which
        // is unmapped only after the commands that use it; `copy` allows overlap.
        unsafe { std::ptr::copy(from, to, len) };
    }

    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0u8; self.len];
        let from: *const u8 = std::ptr::with_exposed_provenance(self.address);
        // SAFETY: as in `copy_to`; the vector has this length and no other owner.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), self.len) };
        bytes
    }

    /// Overwrites the beginning of the span with the bytes, as many as fit.
    pub(crate) fn overwrite(self, bytes: &[u8]) {
        let to: *mut u8 = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: as in `copy_to`; the slice is no device memory of this library, so the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len().min(self.len)) };
    }

    /// The span's value if it is one word of 4 or 8 bytes; any other span reads as 0.
    pub(crate) fn load(self) -> u64 {
        let at: *mut u8 = std::ptr::with_exposed_provenance_mut(self.address);
        match self.len {
            // SAFETY: aligned memory that the caller guarantees or that is allocated. The program may change it
            // concurrently, with stores that are as atomic as the machine's.
            4 if self.address.is_multiple_of(4) => unsafe {
                AtomicU32::from_ptr(at.cast()).load(Ordering::Acquire).into()
            },
            // SAFETY: as above.
            8 if self.address.is_multiple_of(8) => unsafe {
                AtomicU64::from_ptr(at.cast()).load(Ordering::Acquire)
            },
            _ => 0,
        }
    }

    /// Stores a value if the span is one word of 4 or 8 bytes.
    pub(crate) fn store(self, value: u64) {
        let at: *mut u8 = std::ptr::with_exposed_provenance_mut(self.address);
        match self.len {
            // SAFETY: as in `load`; the caller has checked that the word may be written.
            4 if self.address.is_multiple_of(4) => unsafe {
                let low = u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0);
                AtomicU32::from_ptr(at.cast()).store(low, Ordering::Release);
            },
            // SAFETY: as above.
            8 if self.address.is_multiple_of(8) => unsafe {
                AtomicU64::from_ptr(at.cast()).store(value, Ordering::Release);
            },
            _ => {}
        }
    }

    /// Runs a kernel's effect on the span as 64-bit words. `None` if the span is not aligned.
    pub(crate) fn with_words(self, work: impl FnOnce(&mut [u64])) -> Option<()> {
        if !self.address.is_multiple_of(8) {
            return None;
        }
        let words: *mut u64 = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: device memory (see `copy_to`) or pinned host memory, aligned for u64, of at least `len` bytes. Effects run
        // one at a time, under the lock of `Effects` (`Gpu::apply_effects`). A program that touches the memory at the same
        // time races with its own kernel, as on a GPU.
        work(unsafe { std::slice::from_raw_parts_mut(words, self.len / 8) });
        Some(())
    }

    /// Fills the span with a pattern of 1, 2 or 4 bytes.
    pub(crate) fn fill(self, pattern: &[u8]) {
        let to: *mut u8 = std::ptr::with_exposed_provenance_mut(self.address);
        for offset in (0..self.len.saturating_sub(pattern.len() - 1)).step_by(pattern.len()) {
            // SAFETY: as in `copy_to`; the offset leaves room for the pattern.
            unsafe { std::ptr::copy_nonoverlapping(pattern.as_ptr(), to.add(offset), pattern.len()) };
        }
    }
}
