//! The Prometheus series, built from the facts of one moment.
//!
//! Counters of a client start at 0 with its manager's process. Prometheus handles such resets as it does for any
//! restarted program.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};

use prometheus::core::{MetricVec, MetricVecBuilder};
use prometheus::proto::{Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Counter, CounterVec, Gauge, GaugeVec, Opts, Registry};
use sluice_units::WHOLE_PPM;

use super::{Facts, client_families, gpu_families, manager_families};

/// Name and value of each label of a series.
pub(super) type Labels<'a> = [(&'a str, &'a str)];

/// Name, help and value of a series.
pub(super) type Series = (&'static str, &'static str, f64);

/// The families of one scrape. A family begins with its first series; all of its series have the same label names.
#[derive(Default)]
pub(super) struct Families {
    registry: Registry,
    gauges: BTreeMap<String, GaugeVec>,
    counters: BTreeMap<String, CounterVec>,
    /// Those that another process has counted.
    histograms: BTreeMap<String, MetricFamily>,
}

impl Families {
    pub(super) fn gauge(&mut self, name: &str, help: &str, labels: &Labels<'_>) -> prometheus::Result<Gauge> {
        series(&self.registry, &mut self.gauges, name, labels, |names| {
            GaugeVec::new(Opts::new(name, help), names)
        })
    }

    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        labels: &Labels<'_>,
    ) -> prometheus::Result<Counter> {
        series(&self.registry, &mut self.counters, name, labels, |names| {
            CounterVec::new(Opts::new(name, help), names)
        })
    }

    /// Adds a histogram that another process has counted.
    pub(super) fn add_histogram(&mut self, name: &str, help: &str, labels: &Labels<'_>, counted: Histogram) {
        let family = self.histograms.entry(name.to_owned()).or_insert_with(|| {
            let mut family = MetricFamily::default();
            family.set_name(name.to_owned());
            family.set_help(help.to_owned());
            family.set_field_type(MetricType::HISTOGRAM);
            family
        });
        let label = |(name, value): &(&str, &str)| {
            let mut label = LabelPair::default();
            label.set_name((*name).to_owned());
            label.set_value((*value).to_owned());
            label
        };
        let mut metric = Metric::from_label(labels.iter().map(label).collect());
        metric.set_histogram(counted);
        family.mut_metric().push(metric);
    }

    /// All families.
    fn gather(self) -> Vec<MetricFamily> {
        self.registry.gather().into_iter().chain(self.histograms.into_values()).collect()
    }

    pub(super) fn set_gauges(&mut self, labels: &Labels<'_>, series: &[Series]) -> prometheus::Result<()> {
        for (name, help, value) in series {
            self.gauge(name, help, labels)?.set(*value);
        }
        Ok(())
    }

    pub(super) fn add_counters(&mut self, labels: &Labels<'_>, series: &[Series]) -> prometheus::Result<()> {
        for (name, help, value) in series {
            self.counter(name, help, labels)?.inc_by(*value);
        }
        Ok(())
    }
}

/// The series of a family with these labels. The first series of the family creates it. Fails if the label names are not those of the
/// family; their order does not matter.
fn series<B: MetricVecBuilder + 'static>(
    registry: &Registry,
    families: &mut BTreeMap<String, MetricVec<B>>,
    name: &str,
    labels: &Labels<'_>,
    create: impl FnOnce(&[&str]) -> prometheus::Result<MetricVec<B>>,
) -> prometheus::Result<B::M> {
    let family = match families.entry(name.to_owned()) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(first) => {
            let names: Vec<&str> = labels.iter().map(|(name, _)| *name).collect();
            let family = create(&names)?;
            registry.register(Box::new(family.clone()))?;
            first.insert(family)
        }
    };
    family.get_metric_with(&labels.iter().copied().collect::<HashMap<_, _>>())
}

pub(super) fn gather(facts: &Facts) -> prometheus::Result<Vec<MetricFamily>> {
    let mut families = Families::default();
    let build = [("version", env!("CARGO_PKG_VERSION")), ("component", "node-agent")];
    families.set_gauges(&build, &[("sluice_build_info", "Version of the running component", 1.0)])?;
    let refused = facts.assignments.refused.len() as f64;
    let help = "Pods of this node that request a GPU and get none; their events contain the reason";
    families.set_gauges(&[("node", &facts.node)], &[("sluice_refused_pods", help, refused)])?;
    if let Some(path) = facts.injection {
        let help =
            "How containers get their GPUs: 1 for one of the paths (nri, runtime, claims, closed, none)";
        families.set_gauges(&[("node", &facts.node), ("path", path)], &[("sluice_injection", help, 1.0)])?;
    }
    let help = "Whether a container is known to have got a GPU by that path: 1 for one of the outcomes";
    let labels = [("node", facts.node.as_str()), ("outcome", facts.proof.label())];
    families.set_gauges(&labels, &[("sluice_injection_proof", help, 1.0)])?;
    for (gpu, lost) in &facts.lost {
        let help =
            "Pods that have a GPU on which no program can work until it is reset, repaired or replaced";
        let labels = [("gpu", gpu.as_str()), ("node", facts.node.as_str())];
        families.set_gauges(&labels, &[("sluice_gpu_lost_pods", help, lost.pods.len() as f64)])?;
    }
    for gpu in facts.inventory.iter().flat_map(|inventory| &inventory.gpus) {
        gpu_families::add(&mut families, gpu, facts)?;
    }
    for (gpu, figures) in &facts.manager_processes {
        manager_families::add(&mut families, gpu, figures, facts)?;
    }
    for (gpu, snapshot) in &facts.snapshots {
        for usage in snapshot.iter().flat_map(|snapshot| &snapshot.clients) {
            // A client that was removed has no limits any more, and its processes are about to be disconnected.
            if let Some(client) = usage.client.as_ref().filter(|_| !usage.left_out) {
                client_families::add(&mut families, gpu, client, usage, facts)?;
            }
        }
    }
    Ok(families.gather())
}

pub(super) fn ratio(ppm: u32) -> f64 {
    f64::from(ppm) / f64::from(WHOLE_PPM)
}

pub(super) fn seconds(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

#[cfg(test)]
mod tests;
