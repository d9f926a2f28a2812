//! Allocation sizes that fill a memory limit to the byte: large chunks first, half the size after each refusal.

/// The largest chunk, bytes.
pub const FIRST_CHUNK: u64 = 64 << 20;

/// The size of the next allocation. Sizes only shrink; when one byte is refused, the limit is reached exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth {
    /// Size in bytes; zero when the limit is reached.
    next: u64,
}

impl Default for Growth {
    fn default() -> Self {
        Self { next: FIRST_CHUNK }
    }
}

impl Growth {
    /// Bytes to allocate next, or `None` when the limit is reached.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        (self.next > 0).then_some(self.next)
    }

    /// Records that the allocation of [`Growth::next`] was refused.
    pub fn refused(&mut self) {
        self.next /= 2;
    }
}

#[cfg(test)]
mod tests;
