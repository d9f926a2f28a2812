//! One scrape of the pod-manager's `/metrics`, as Prometheus makes it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::http;

/// The samples of one scrape.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    samples: Vec<Sample>,
}

#[derive(Debug, Clone, PartialEq)]
struct Sample {
    metric: String,
    /// The text between the braces.
    labels: String,
    value: f64,
}

impl Metrics {
    /// Fetches `http://address/metrics`; fails as [`http::get`].
    pub fn scrape(address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self::parse(&http::get(&address.to_string(), "/metrics")?))
    }

    /// The same as [`Metrics::scrape`] with another `timeout`.
    pub fn scrape_within(timeout: Duration, address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self::parse(&http::get_within(timeout, &address.to_string(), "/metrics")?))
    }

    /// Reads Prometheus's text format. Comments and lines that are no samples are skipped.
    pub fn parse(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (metric, labels) = series.split_once('{').unwrap_or((series, ""));
            Some(Sample {
                metric: metric.to_owned(),
                labels: labels.trim_end_matches('}').to_owned(),
                value: value.parse().ok()?,
            })
        });
        Self { samples: samples.collect() }
    }

    /// The sum of all samples of `metric` whose labels contain every one of `labels`, each written `key="value"`.
    pub fn sum(&self, metric: &str, labels: &[&str]) -> Option<f64> {
        let values: Vec<f64> = self
            .of(metric)
            .filter(|sample| labels.iter().all(|label| sample.labels.contains(label)))
            .map(|sample| sample.value)
            .collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// The value of a metric for a client, if it is exported.
    pub fn of_client(&self, metric: &str, client: &str) -> Option<f64> {
        self.sum(metric, &[&format!("client=\"{client}\"")])
    }

    /// The samples of a metric by the value of `label`.
    pub fn by_label(&self, metric: &str, label: &str) -> BTreeMap<String, f64> {
        let begin = format!("{label}=\"");
        let values = self.of(metric).filter_map(|sample| {
            let (_, rest) = sample.labels.split_once(&begin)?;
            Some((rest.split_once('"')?.0.to_owned(), sample.value))
        });
        values.collect()
    }

    fn of(&self, metric: &str) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.metric == metric)
    }
}

#[cfg(test)]
mod tests;
