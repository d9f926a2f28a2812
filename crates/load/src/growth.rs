//! How a generator fills its memory limit to the byte: large chunks first, half as large after each refusal.

/// The largest chunk, bytes.
pub const FIRST_CHUNK: u64 = 64 << 20;

/// What to ask for next. Sizes only shrink; when one byte is refused, the limit is reached exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth {
    /// Size of the next request, bytes; zero when the limit is reached.
    next: u64,
}

impl Default for Growth {
    fn default() -> Self {
        Self { next: FIRST_CHUNK }
    }
}

impl Growth {
    /// Bytes to ask for, or `None` when the limit is reached.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        (self.next > 0).then_some(self.next)
    }

    /// The request of [`Growth::next`] was refused.
    pub fn refused(&mut self) {
        self.next /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grows against a limit; returns (bytes held, refusals).
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
    fn it_stops_exactly_at_the_limit_and_was_refused_on_the_way() {
        for limit in [0, 1, (1 << 30) + 12_345, FIRST_CHUNK - 1, FIRST_CHUNK, FIRST_CHUNK + 1] {
            let (held, refused) = grow(limit);
            assert_eq!(held, limit);
            assert_eq!(refused, 27);
        }
    }
}
