//! The order of waiting clients: a strict weak ordering, by which `TokenLedger::choose` (`advance.rs`) picks the next.
//!
//! 1. Clients below their request, by relative shortfall: the one with the smallest part of its entitlement goes first.
//! 2. All others, by GPU time charged in proportion to their weight (weight × request, at least 1 %), counted as a
//!    level. A client that returns from a pause starts at the others' level, so a pause earns nothing here. Clients
//!    without a request are always in this group: they share the time that remains when all others have their requests.
//!
//! A client exactly at its request is in the second group. Ties go to the client that waits longest, then to the older
//! one.

use crate::ids::ClientId;
use std::cmp::Ordering;

/// A client that could be granted, as the ordering sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The client.
    pub client: ClientId,
    /// GPU time its request entitles it to over the window, ns.
    pub entitled: u64,
    /// GPU time it had over the window, ns.
    pub had: u64,
    /// GPU time charged per unit of weight.
    pub level: u64,
    /// Since when it waits, ns.
    pub waiting_since: u64,
}

impl Candidate {
    /// Whether it has less than its request.
    #[must_use]
    pub fn is_below_request(&self) -> bool {
        self.had < self.entitled
    }

    /// `Less` when `self` goes before `other`.
    #[must_use]
    pub fn precedence(&self, other: &Self) -> Ordering {
        let by_need = match (self.is_below_request(), other.is_below_request()) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // had / entitled compared without division; entitled is above zero for both.
            (true, true) => (u128::from(self.had) * u128::from(other.entitled))
                .cmp(&(u128::from(other.had) * u128::from(self.entitled))),
            (false, false) => self.level.cmp(&other.level),
        };
        by_need.then(self.waiting_since.cmp(&other.waiting_since)).then(self.client.cmp(&other.client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(client: u64, entitled: u64, had: u64, level: u64) -> Candidate {
        Candidate { client: ClientId(client), entitled, had, level, waiting_since: 0 }
    }

    #[test]
    fn larger_relative_shortfall_goes_first() {
        let small = candidate(1, 100, 50, 0);
        let large = candidate(2, 1_000, 900, 0);
        assert_eq!(small.precedence(&large), Ordering::Less);
    }

    #[test]
    fn client_below_request_goes_first_and_one_exactly_at_it_does_not() {
        let below = candidate(2, 100, 99, u64::MAX);
        let exact = candidate(1, 100, 100, 0);
        assert!(!exact.is_below_request());
        assert_eq!(below.precedence(&exact), Ordering::Less);
    }

    prop_compose! {
        fn any_candidate()(client in 0u64..4, entitled in 0u64..4, had in 0u64..4, level in 0u64..3, since in 0u64..3)
            -> Candidate {
            Candidate { client: ClientId(client), entitled, had, level, waiting_since: since }
        }
    }

    proptest! {
        #[test]
        fn precedence_is_a_strict_weak_ordering(a in any_candidate(), b in any_candidate(), c in any_candidate()) {
            prop_assert_eq!(a.precedence(&a), Ordering::Equal);
            prop_assert_eq!(a.precedence(&b), b.precedence(&a).reverse());
            if a.precedence(&b) == Ordering::Less && b.precedence(&c) == Ordering::Less {
                prop_assert_eq!(a.precedence(&c), Ordering::Less);
            }
            if a.precedence(&b) == Ordering::Equal && b.precedence(&c) == Ordering::Equal {
                prop_assert_eq!(a.precedence(&c), Ordering::Equal);
            }
        }
    }
}
