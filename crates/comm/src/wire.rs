//! Reading and writing packed little-endian fields at any offset, without a bounds check that could panic.

/// Bytes of a request around its name: `u64` length, NUL, `i32` id, `u32` type.
pub(crate) const HEADER: usize = 8 + 1 + 4 + 4;

/// Reads fields one after the other. Beyond the end it reads zeroes, as a frame is zero-padded.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `len` bytes, fewer at the end.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        for (slot, byte) in array.iter_mut().zip(self.bytes(N)) {
            *slot = *byte;
        }
        array
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn i32(&mut self) -> i32 {
        i32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    pub(crate) fn f64(&mut self) -> f64 {
        f64::from_le_bytes(self.array())
    }

    pub(crate) fn remaining(&self) -> usize {
        self.0.len()
    }
}

/// Writes fields one after the other into a zeroed frame of `N` bytes. What does not fit is dropped: the length of a
/// name is checked against its request's maximum before anything is written.
pub(crate) struct Writer<const N: usize> {
    frame: [u8; N],
    at: usize,
}

impl<const N: usize> Writer<N> {
    pub(crate) fn new() -> Self {
        Self { frame: [0; N], at: 0 }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> &mut Self {
        for (slot, byte) in self.frame.iter_mut().skip(self.at).zip(bytes) {
            *slot = *byte;
        }
        self.at = self.at.saturating_add(bytes.len());
        self
    }

    pub(crate) fn finish(&self) -> [u8; N] {
        self.frame
    }
}
