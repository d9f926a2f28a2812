//! Watches PodDisruptionBudgets, which the choice of victims respects.

use std::collections::HashMap;

use kube::api::Api;
use kube::runtime::watcher;

use super::extender::Extender;
use super::leadership::WatchedKind;
use super::objects::Budget;
use super::watch_loop::{Sink, run_watch};

pub(crate) async fn follow(extender: &Extender) {
    let api: Api<Budget> = Api::all(extender.client.clone());
    run_watch(extender, api, watcher::Config::default(), Budgets { extender, listed: None }).await;
}

struct Budgets<'a> {
    extender: &'a Extender,
    /// The budgets of a list that is not complete yet.
    listed: Option<HashMap<String, Budget>>,
}

impl Sink for Budgets<'_> {
    type Object = Budget;
    const KIND: WatchedKind = WatchedKind::Budgets;

    fn begin(&mut self) {
        self.listed = Some(HashMap::new());
    }

    fn apply(&mut self, budget: &Budget) {
        let mut state = self.extender.state();
        if let Some(budgets) = self.listed.as_mut().or(state.budgets.as_mut()) {
            budgets.insert(budget.key(), budget.clone());
        }
    }

    fn delete(&mut self, budget: &Budget) {
        if let Some(budgets) = &mut self.extender.state().budgets {
            budgets.remove(&budget.key());
        }
    }

    fn complete(&mut self) {
        self.extender.state().budgets = self.listed.take();
    }
}
