//! One event while it is being applied.

use super::event::Effect;
use crate::ledger::TokenLedger;

/// One event being applied: the ledger that it concerns, its time, and its effects so far.
pub(super) struct Step<'a, D> {
    pub(super) ledger: &'a mut TokenLedger,
    pub(super) now: u64,
    pub(super) effects: Vec<Effect<D>>,
}
