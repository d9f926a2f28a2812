//! Adds what a page of metrics reports: a node agent's, which has all GPUs of its node, or a pod-manager's, which has one.

use super::{ClientRow, GpuRow, Top};
use crate::metrics_text::{Sample, samples};

/// All series of Sluice begin so.
const PREFIX: &str = "sluice_";

/// Where a page comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// The node agent of this node. Samples of other nodes' GPUs are ignored.
    Node(&'a str),
    /// An address that the user named.
    Address(&'a str),
}

impl<'a> Origin<'a> {
    fn name(self) -> &'a str {
        match self {
            Self::Node(name) | Self::Address(name) => name,
        }
    }
}

impl Top {
    /// Adds the samples of a page. [`finish`](Self::finish) follows the last page.
    ///
    /// # Errors
    /// The page has no sample of Sluice.
    pub(crate) fn add_page(&mut self, origin: Origin<'_>, page: &str) -> Result<(), String> {
        let mut is_ours = false;
        for sample in samples(page).filter(|sample| sample.name.starts_with(PREFIX)) {
            is_ours = true;
            self.add_sample(origin, &sample);
        }
        if !is_ours {
            return Err(format!("{} serves no metrics of Sluice", origin.name()));
        }
        Ok(())
    }

    /// `None` for a sample that is not shown.
    fn add_sample(&mut self, origin: Origin<'_>, sample: &Sample<'_>) -> Option<()> {
        // Where the pod-manager and the agent name the same figure differently, both names are here.
        match sample.name {
            "sluice_gpu_info" => {
                let gpu = self.gpu(origin, sample)?;
                gpu.model = sample.label("model").map(str::to_owned).or(gpu.model.take());
                gpu.index = sample.label("index").and_then(|index| index.parse().ok()).or(gpu.index);
            }
            "sluice_gpu_healthy" => self.gpu(origin, sample)?.healthy = Some(sample.value > 0.0),
            "sluice_gpu_memory_usable_bytes" => {
                self.gpu(origin, sample)?.memory_bytes.get_or_insert(whole(sample.value));
            }
            // The pods' annotations are the first source: an agent may not have read the latest ones yet.
            "sluice_gpu_quota_assigned_ratio" => {
                self.gpu(origin, sample)?.promised_share.get_or_insert(sample.value);
            }
            "sluice_gpu_memory_assigned_bytes" => {
                self.gpu(origin, sample)?.promised_memory_bytes.get_or_insert(whole(sample.value));
            }
            "sluice_level" => {
                if let Some(level) = sample.label("level").filter(|_| sample.value > 0.0) {
                    let levels = &mut self.gpu(origin, sample)?.levels;
                    levels.insert(level.to_owned(), whole(sample.value));
                }
            }
            _ => {
                self.client(origin, sample)?.add_sample(sample);
            }
        }
        Some(())
    }

    /// The GPU of a sample. A pod-manager's samples name none: they all belong to the GPU of its page. `None` for a GPU that is not
    /// on the page's node.
    fn gpu(&mut self, origin: Origin<'_>, sample: &Sample<'_>) -> Option<&mut GpuRow> {
        let named = sample.label("node").unwrap_or(origin.name());
        let is_own = |node: &str| match origin {
            Origin::Node(own) => node == own,
            Origin::Address(_) => true,
        };
        if !is_own(named) {
            return None;
        }
        let uuid = sample.label("gpu");
        let key = uuid.unwrap_or(origin.name());
        let position = self.positions.get(key).copied().unwrap_or_else(|| {
            self.gpus.push(GpuRow {
                node: named.to_owned(),
                gpu: uuid.map(str::to_owned),
                ..GpuRow::default()
            });
            self.positions.insert(key.to_owned(), self.gpus.len() - 1);
            self.gpus.len() - 1
        });
        self.gpus.get_mut(position).filter(|gpu| is_own(&gpu.node))
    }

    /// The client of a sample; `None` for a series that belongs to no client, or is not shown.
    fn client(&mut self, origin: Origin<'_>, sample: &Sample<'_>) -> Option<&mut ClientRow> {
        if !ClientRow::shows(sample.name) {
            return None;
        }
        let namespace = sample.label("namespace");
        let name = sample.label("pod").or_else(|| sample.label("client"))?;
        let clients = &mut self.gpu(origin, sample)?.clients;
        let is_it = |client: &ClientRow| client.key() == (namespace, name);
        let position = clients.iter().position(is_it).unwrap_or_else(|| {
            let namespace = namespace.map(str::to_owned);
            clients.push(ClientRow { namespace, name: name.to_owned(), ..ClientRow::default() });
            clients.len() - 1
        });
        clients.get_mut(position)
    }
}

impl ClientRow {
    /// Whether a row has a field for this series. The list of series is that of [`add`](Self::add).
    fn shows(series: &str) -> bool {
        Self::default().add(series, |_| None, 0.0)
    }

    fn add_sample(&mut self, sample: &Sample<'_>) {
        self.add(sample.name, |label| sample.label(label), sample.value);
    }

    /// Returns whether the row shows this series.
    fn add<'s>(&mut self, series: &str, label: impl Fn(&str) -> Option<&'s str>, value: f64) -> bool {
        match series {
            "sluice_client_gpu_share_ratio" | "sluice_share" => self.got_share = Some(value),
            "sluice_client_quota_ratio" | "sluice_quota_ratio" => self.asked_share = Some(value),
            "sluice_client_limit_ratio" | "sluice_limit_ratio" => self.limit_share = Some(value),
            // The driver counts both: what programs reserved, and what it takes beyond.
            "sluice_client_memory_used_bytes"
            | "sluice_memory_used_bytes"
            | "sluice_client_memory_overhead_bytes"
            | "sluice_memory_overhead_bytes" => add(&mut self.memory_used_bytes, value),
            "sluice_client_memory_limit_bytes" | "sluice_memory_limit_bytes" => {
                self.memory_limit_bytes = Some(whole(value));
            }
            "sluice_client_memory_resident_bytes" | "sluice_memory_resident_bytes" => {
                add(&mut self.memory_resident_bytes, value);
            }
            "sluice_client_memory_swapped_bytes" | "sluice_memory_swapped_bytes" => {
                add(&mut self.memory_swapped_bytes, value);
            }
            "sluice_client_suspended" => self.suspended |= value > 0.0,
            // One sample for each container.
            "sluice_client_processes" | "sluice_processes" => add(&mut self.processes, value),
            // One sample for each kind.
            "sluice_client_violations_total" | "sluice_violations_total" => self.violations += whole(value),
            "sluice_client_stopped_processes" | "sluice_stopped_processes" => {
                self.stopped_processes = whole(value);
            }
            "sluice_client_info" => {
                let known = label("priority").filter(|priority| *priority != "unknown").map(str::to_owned);
                self.priority = known.or(self.priority.take());
            }
            "sluice_token_wait_seconds_bucket" => {
                self.wait_buckets.add(label("le").and_then(|bound| bound.parse().ok()), value);
            }
            // Not a number if there was no request.
            "sluice_client_request_quantile_seconds" | "sluice_request_quantile_seconds" => {
                let known = Some(value).filter(|value| value.is_finite());
                match label("quantile") {
                    Some("0.5") => self.latency_p50_seconds = known,
                    Some("0.99") => self.latency_p99_seconds = known,
                    _ => {}
                }
            }
            _ => return false,
        }
        true
    }
}

fn add(sum: &mut Option<u64>, value: f64) {
    *sum = Some(sum.unwrap_or(0).saturating_add(whole(value)));
}

/// A count or an amount of bytes; Prometheus has only floating-point numbers.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn whole(value: f64) -> u64 {
    value as u64
}
