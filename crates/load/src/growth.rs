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
mod tests {
    use super::*;

    /// Allocates up to a limit; returns (bytes allocated, refusals).
    fn grow(limit: u64) -> (u64, u32) {
        let (mut growth, mut held, mut refused) = (Growth::default(), 0, 0);
        while let Some(bytes) = growth.next() {
            if held + bytes <= limit {
                held += bytes;
            } else {
                refused += 1;
                growth.refused();
            }
        }
        (held, refused)
    }

    #[test]
    fn growth_ends_exactly_at_the_limit_after_27_refusals() {
        for limit in [0, 1, (1 << 30) + 12_345, FIRST_CHUNK - 1, FIRST_CHUNK, FIRST_CHUNK + 1] {
            let (held, refused) = grow(limit);
            assert_eq!(held, limit);
            assert_eq!(refused, 27);
        }
    }
}
