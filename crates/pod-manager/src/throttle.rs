//! Keeps the log readable when somebody does the same wrong thing again and again.

use std::collections::HashMap;

/// Messages of one kind in a span.
const MOST: u32 = 10;
/// The span, nanoseconds.
const SPAN_NS: u64 = 10_000_000_000;

/// Decides which messages are written, by their kind.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    kinds: HashMap<&'static str, Kind>,
}

#[derive(Debug)]
struct Kind {
    since: u64,
    written: u32,
    dropped: u64,
}

impl Throttle {
    /// `Some` if a message of this kind may be written now: how many were dropped since the last one that was.
    pub(crate) fn pass(&mut self, kind: &'static str, now: u64) -> Option<u64> {
        let kind = self.kinds.entry(kind).or_insert(Kind { since: now, written: 0, dropped: 0 });
        if now.saturating_sub(kind.since) >= SPAN_NS {
            (kind.since, kind.written) = (now, 0);
        }
        if kind.written >= MOST {
            kind.dropped += 1;
            return None;
        }
        kind.written += 1;
        Some(std::mem::take(&mut kind.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_of_a_kind_pass_and_the_next_span_says_how_many_did_not() {
        let mut throttle = Throttle::default();
        let passed = (0..25).filter(|at| throttle.pass("a", 5 + at) == Some(0)).count();
        assert_eq!(passed, 10);
        assert_eq!(throttle.pass("b", 30), Some(0), "another kind has its own ten");
        assert_eq!(throttle.pass("a", SPAN_NS + 4), None);
        assert_eq!(throttle.pass("a", SPAN_NS + 5), Some(16));
        assert_eq!(throttle.pass("a", SPAN_NS + 6), Some(0));
    }
}
