//! Adds what a page of metrics reports: a node agent's, which has all GPUs of its node, or a pod-manager's, which has one.

use super::{ClientRow, GpuRow, Top};
use crate::metrics_text::{Sample, samples};

/// All series of Sluice begin so.
const PREFIX: &str = "sluice_";

impl Top {
    /// Adds the samples of a page. `origin` is the node, or the address, that the page comes from.
    ///
    /// # Errors
    /// The page has no sample of Sluice.
    pub(crate) fn add_page(&mut self, origin: &str, page: &str) -> Result<(), String> {
        let mut is_ours = false;
        for sample in samples(page).filter(|sample| sample.name.starts_with(PREFIX)) {
            is_ours = true;
            self.add_sample(origin, &sample);
        }
        if !is_ours {
            return Err(format!("{origin} serves no metrics of Sluice"));
        }
        for client in self.gpus.iter_mut().flat_map(|gpu| &mut gpu.clients) {
            client.wait_p50_seconds = client.wait_buckets.quantile(0.5);
            client.wait_p99_seconds = client.wait_buckets.quantile(0.99);
        }
        self.sort();
        Ok(())
    }

    fn add_sample(&mut self, origin: &str, sample: &Sample<'_>) {
        // Where the pod-manager and the agent name the same figure differently, both names are here.
        match sample.name {
            "sluice_gpu_info" => {
                let gpu = self.gpu(origin, sample);
                gpu.model = sample.label("model").map(str::to_owned).or(gpu.model.take());
                gpu.index = sample.label("index").and_then(|index| index.parse().ok()).or(gpu.index);
            }
            "sluice_gpu_healthy" => self.gpu(origin, sample).healthy = Some(sample.value > 0.0),
            "sluice_gpu_memory_usable_bytes" => {
                self.gpu(origin, sample).memory_bytes.get_or_insert(whole(sample.value));
            }
            // The pods' annotations are the first source: an agent may not have read the latest ones yet.
            "sluice_gpu_quota_assigned_ratio" => {
                self.gpu(origin, sample).promised_share.get_or_insert(sample.value);
            }
            "sluice_gpu_memory_assigned_bytes" => {
                self.gpu(origin, sample).promised_memory_bytes.get_or_insert(whole(sample.value));
            }
            "sluice_level" => {
                if let Some(level) = sample.label("level").filter(|_| sample.value > 0.0) {
                    let levels = &mut self.gpu(origin, sample).levels;
                    levels.insert(level.to_owned(), whole(sample.value));
                }
            }
            _ => {
                if let Some(client) = self.client(origin, sample) {
                    client.add_sample(sample);
                }
            }
        }
    }

    /// The GPU of a sample. A pod-manager's samples name none: they all belong to the GPU of its page.
    fn gpu(&mut self, origin: &str, sample: &Sample<'_>) -> &mut GpuRow {
        let uuid = sample.label("gpu");
        let is_it = |gpu: &GpuRow| match uuid {
            Some(uuid) => gpu.gpu.as_deref() == Some(uuid),
            None => gpu.gpu.is_none() && gpu.node == origin,
        };
        let position = self.gpus.iter().position(is_it).unwrap_or_else(|| {
            let node = sample.label("node").unwrap_or(origin).to_owned();
            self.gpus.push(GpuRow { node, gpu: uuid.map(str::to_owned), ..GpuRow::default() });
            self.gpus.len() - 1
        });
        &mut self.gpus[position]
    }

    /// The client of a sample; `None` for a series that belongs to no client, or is not shown.
    fn client(&mut self, origin: &str, sample: &Sample<'_>) -> Option<&mut ClientRow> {
        if !ClientRow::shows(sample.name) {
            return None;
        }
        let namespace = sample.label("namespace");
        let name = sample.label("pod").or_else(|| sample.label("client"))?;
        let clients = &mut self.gpu(origin, sample).clients;
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
        Self::default().add(series, None, None, 0.0)
    }

    fn add_sample(&mut self, sample: &Sample<'_>) {
        self.add(sample.name, sample.label("le"), sample.label("priority"), sample.value);
    }

    /// Returns whether the row shows this series.
    fn add(&mut self, series: &str, bound: Option<&str>, priority: Option<&str>, value: f64) -> bool {
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
            // One sample for each container.
            "sluice_client_processes" | "sluice_processes" => add(&mut self.processes, value),
            // One sample for each kind.
            "sluice_client_violations_total" | "sluice_violations_total" => self.violations += whole(value),
            "sluice_client_stopped_processes" | "sluice_stopped_processes" => {
                self.stopped_processes = whole(value);
            }
            "sluice_client_info" => {
                let known = priority.filter(|priority| *priority != "unknown").map(str::to_owned);
                self.priority = known.or(self.priority.take());
            }
            "sluice_token_wait_seconds_bucket" => {
                self.wait_buckets.add(bound.and_then(|bound| bound.parse().ok()), value);
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
