//! Random calls of the ledger, replayed against `tests/bounds/rules.smt2`: the rules from which the bounds of docs/design/bounds.md are proved.

mod checker;
mod formula;
mod random;
mod record;
mod world;

use proptest::prelude::*;
use world::{Kind, World};

/// Calls of one case. 256 cases of [`Kind::ALL`] make more than a million.
const CALLS: u64 = 4_000;

fn replay(kind: Kind, seed: u64) {
    assert!(World::new(kind, seed).run(CALLS) >= CALLS);
}

proptest! {
    // A seed is no input that gets simpler.
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 0, ..ProptestConfig::default() })]

    /// 256 cases of 4,000 calls.
    #[test]
    fn every_call_keeps_the_rules(seed in any::<u64>(), kind in prop::sample::select(Kind::ALL.to_vec())) {
        replay(kind, seed);
    }
}

#[test]
fn every_rule_belongs_to_a_kind_of_record() {
    let scopes = ["client-", "added-", "ended-", "grant-", "ledger-", "critical-"];
    for name in formula::names() {
        assert!(scopes.iter().any(|scope| name.starts_with(scope)), "{name} is checked nowhere");
    }
    assert!(formula::names().len() >= 25);
}
