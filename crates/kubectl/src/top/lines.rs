//! The rows as lines. The live view and `--once` show the same.

use super::{ClientRow, GpuRow, Top};
use crate::text::{Line, count, gpu, memory, or_dash, printable, share, time};

/// Columns that are left out if no client has a value.
#[derive(Debug, Clone, Copy)]
struct Shown {
    /// Waiting times: only a pod-manager's own page has them.
    waits: bool,
    /// Latencies of requests.
    latencies: bool,
    /// Where memory is that may leave the GPU.
    places: bool,
}

/// The lines of a page: headings, then each GPU with its clients.
pub(crate) fn lines(top: &Top) -> Vec<Line> {
    let clients = || top.gpus.iter().flat_map(|gpu| &gpu.clients);
    let shown = Shown {
        waits: clients().any(|one| one.wait_p50_seconds.is_some()),
        latencies: clients().any(|one| one.latency_p50_seconds.is_some()),
        places: clients().any(|one| one.movable_bytes() > 0),
    };
    let mut headings = vec!["POD", "PRIORITY", "ASKED", "LIMIT", "GOT", "MEMORY", "MEMORY LIMIT"];
    if shown.places {
        headings.extend(["ON GPU", "ON HOST"]);
    }
    if shown.waits {
        headings.extend(["WAIT P50", "WAIT P99"]);
    }
    if shown.latencies {
        headings.extend(["LATENCY P50", "LATENCY P99"]);
    }
    headings.extend(["PROCESSES", ""]);
    let mut lines = vec![Line::heading(&headings)];
    for gpu in &top.gpus {
        lines.push(Line::Section(printable(&gpu.text())));
        lines.extend(gpu.clients.iter().map(|client| Line::Cells(client.cells(shown))));
    }
    if top.gpus.is_empty() {
        lines = vec![Line::Note("No GPU of Sluice was found.".to_owned())];
    }
    if !top.waiting.is_empty() {
        let pods = count(top.waiting.len(), "pod");
        let waiting = top.waiting.join(", ");
        lines.push(Line::Note(format!("{pods} waiting (kubectl sluice explain): {waiting}")));
    }
    lines.extend(top.notes.iter().map(|note| Line::Note(printable(note))));
    lines
}

impl GpuRow {
    fn text(&self) -> String {
        let mut parts = vec![self.node.clone()];
        if self.index.is_some() || self.gpu.is_some() {
            parts.push(gpu(self.gpu.as_deref().unwrap_or_default(), self.index));
        }
        parts.extend(self.model.clone());
        if self.healthy == Some(false) {
            parts.push("UNHEALTHY".to_owned());
        }
        parts.extend(self.promised_share.map(|promised| format!("promised {}", share(promised))));
        if let (Some(promised), Some(all)) = (self.promised_memory_bytes, self.memory_bytes) {
            parts.push(format!("memory {} of {}", memory(promised), memory(all)));
        }
        let levels = self.levels.iter().map(|(level, processes)| format!("{level} {processes}"));
        let levels: Vec<String> = levels.collect();
        if !levels.is_empty() {
            parts.push(format!("levels: {}", levels.join(", ")));
        }
        parts.join("  ")
    }
}

impl ClientRow {
    /// Memory that may leave the GPU, wherever it is.
    fn movable_bytes(&self) -> u64 {
        let places = [self.memory_resident_bytes, self.memory_swapped_bytes];
        places.into_iter().flatten().fold(0, u64::saturating_add)
    }

    fn cells(&self, shown: Shown) -> Vec<String> {
        let mut cells = vec![
            format!("  {}", self.title()),
            or_dash(self.priority.clone(), |priority| priority),
            or_dash(self.asked_share, share),
            or_dash(self.limit_share, share),
            or_dash(self.got_share, share),
            or_dash(self.memory_used_bytes, memory),
            or_dash(self.memory_limit_bytes, memory),
        ];
        if shown.places {
            let is_movable = self.movable_bytes() > 0;
            let places = [self.memory_resident_bytes, self.memory_swapped_bytes];
            cells.extend(places.map(|bytes| or_dash(bytes.filter(|_| is_movable), memory)));
        }
        if shown.waits {
            cells.extend([self.wait_p50_seconds, self.wait_p99_seconds].map(|wait| or_dash(wait, time)));
        }
        if shown.latencies {
            let latencies = [self.latency_p50_seconds, self.latency_p99_seconds];
            cells.extend(latencies.map(|latency| or_dash(latency, time)));
        }
        cells.push(or_dash(self.processes, |processes| processes.to_string()));
        let violations = usize::try_from(self.violations).unwrap_or(usize::MAX);
        let mut facts = Vec::new();
        if self.suspended {
            facts.push("suspended".to_owned());
        }
        if violations > 0 {
            facts.push(count(violations, "violation"));
        }
        if self.stopped_processes > 0 {
            facts.push(format!("{} stopped", self.stopped_processes));
        }
        cells.push(facts.join(", "));
        cells.iter().map(|cell| printable(cell)).collect()
    }
}
