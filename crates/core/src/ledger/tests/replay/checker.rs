//! A ledger of which each call is checked against the rules.

use super::super::*;
use super::formula::{self, Rule};
use super::record::{Call, Fields, Limited, View};
use std::collections::BTreeMap;

/// The rules about one kind of record.
struct RuleSet {
    scope: &'static str,
    /// Bound to the fields of the first record.
    rules: Option<Vec<Rule>>,
}

impl RuleSet {
    const fn new(scope: &'static str) -> Self {
        Self { scope, rules: None }
    }

    fn check<const N: usize>(&mut self, record: &Fields<N>, call: u64) {
        let bind = || formula::rules(self.scope, &record.map(|(name, _)| name));
        let rules = self.rules.get_or_insert_with(bind);
        let values = record.map(|(_, value)| value);
        if let Some(rule) = rules.iter().find(|rule| !rule.holds(&values)) {
            panic!("{} does not hold after call {call}: {record:?}", rule.name);
        }
    }
}

pub(super) struct Checker {
    pub(super) ledger: TokenLedger,
    /// How many calls it has checked.
    pub(super) calls: u64,
    plain: bool,
    view: View,
    /// Which latency-critical clients were delayed after the last decision.
    delayed: BTreeMap<ClientId, bool>,
    limited: BTreeMap<ClientId, Limited>,
    rules: [RuleSet; 6],
}

impl Checker {
    /// `plain`: see `rules.smt2`.
    pub(super) fn new(ledger: TokenLedger, plain: bool) -> Self {
        let rules = ["client-", "added-", "ended-", "grant-", "ledger-", "critical-"].map(RuleSet::new);
        let (delayed, limited) = (BTreeMap::new(), BTreeMap::new());
        Self { ledger, calls: 0, plain, view: View::default(), delayed, limited, rules }
    }

    /// A call that decides nothing.
    pub(super) fn call<T>(&mut self, call: impl FnOnce(&mut TokenLedger) -> T) -> T {
        let earlier = self.ledger.actions.len();
        let result = call(&mut self.ledger);
        let actions = self.ledger.actions[earlier..].to_vec();
        self.check(&actions, false);
        result
    }

    /// Sets the specification of a client. What its limit allows counts from now on.
    pub(super) fn set_client(&mut self, id: ClientId, spec: ClientSpec, now: u64) {
        self.limited.insert(id, Limited::new(now));
        self.call(|ledger| ledger.set_client(id, spec, now));
    }

    /// A decision.
    pub(super) fn advance(&mut self, now: u64) -> Vec<Action> {
        let earlier = self.ledger.actions.len();
        let actions = self.ledger.advance(now);
        self.check(&actions[earlier..], true);
        actions
    }

    fn check(&mut self, actions: &[Action], decides: bool) {
        self.calls += 1;
        let (after, number) = (View::of(&self.ledger, &self.view), self.calls);
        let call =
            Call { before: &self.view, after: &after, ledger: &self.ledger, actions, plain: self.plain };
        let [client, added, ended, grant, whole, critical] = &mut self.rules;
        call.clients(&mut self.limited).iter().for_each(|record| client.check(record, number));
        after.added(&self.view).for_each(|record| added.check(&record, number));
        call.ends().for_each(|record| ended.check(&record, number));
        if decides {
            call.grants().for_each(|record| grant.check(&record, number));
            whole.check(&call.whole(), number);
            call.critical(&self.delayed).iter().for_each(|record| critical.check(record, number));
            self.delayed.clone_from(&after.delayed);
        }
        self.view = after;
    }
}
