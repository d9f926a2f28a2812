//! The order of waiting clients: a strict weak ordering, by which `TokenLedger::choose` (`advance.rs`) picks the next.
//!
//! 1. Clients below their request, by relative shortfall: the one with the smallest part of its entitlement goes first.
//! 2. All others, by GPU time charged in proportion to their weight (their request, at least 1 %), counted as a level. A client that returns from a pause starts at the others' level, so a pause earns nothing here. Clients
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
mod tests;
