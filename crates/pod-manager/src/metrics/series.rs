//! Makes collectors and keeps a copy of each, so that they can be registered together.

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{Counter, IntCounter, IntCounterVec, IntGauge, Opts, Result};
use std::collections::HashMap;

/// Collectors with common labels.
#[derive(Default)]
pub(super) struct Series {
    pub(super) labels: HashMap<String, String>,
    pub(super) collectors: Vec<Box<dyn Collector>>,
}

impl Series {
    pub(super) fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).const_labels(self.labels.clone())
    }

    /// Keeps a copy of a collector.
    pub(super) fn keep<C: Collector + Clone + 'static>(&mut self, made: Result<C>) -> Result<C> {
        made.inspect(|made| self.collectors.push(Box::new(made.clone())))
    }

    pub(super) fn seconds(&mut self, name: &str, help: &str) -> Result<Counter> {
        self.keep(Counter::with_opts(self.opts(name, help)))
    }

    pub(super) fn counter(&mut self, name: &str, help: &str) -> Result<IntCounter> {
        self.keep(IntCounter::with_opts(self.opts(name, help)))
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str) -> Result<IntGauge> {
        self.keep(IntGauge::with_opts(self.opts(name, help)))
    }

    /// A metric of this family for each value of its label.
    pub(super) fn by_value<B: MetricVecBuilder + 'static, const N: usize>(
        &mut self,
        family: Result<MetricVec<B>>,
        values: [&str; N],
    ) -> Result<[B::M; N]> {
        let family = self.keep(family)?;
        Ok(values.map(|value| family.with_label_values(&[value])))
    }

    /// A counter for each value of a label and each outcome.
    pub(super) fn outcomes<const N: usize, const M: usize>(
        &mut self,
        (name, help): (&str, &str),
        (label, values): (&str, [&str; N]),
        outcomes: [&str; M],
    ) -> Result<[[IntCounter; M]; N]> {
        let family = self.keep(IntCounterVec::new(self.opts(name, help), &[label, "outcome"]))?;
        Ok(values.map(|value| outcomes.map(|outcome| family.with_label_values(&[value, outcome]))))
    }
}
