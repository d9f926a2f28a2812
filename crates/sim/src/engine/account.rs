//! The engine's accounts: use per process, memory, and the timeline of the GPU's use.

use super::OwnerId;
use super::reported_memory::ReportedMemory;
use crate::ledger::{GpuLedger, Interval, LabelLedger, Ledger, ProcessLedger, Window};
use crate::params;
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
struct Name {
    text: String,
    completed: u64,
}

#[derive(Debug, Default)]
struct Owner {
    row: ProcessLedger,
    names: Vec<Name>,
    reported: ReportedMemory,
}

/// The accounts.
#[derive(Debug, Default)]
pub struct Account {
    owners: Vec<Owner>,
    gpu: GpuLedger,
    /// Bytes allocated now and at most, by label.
    memory: BTreeMap<String, (u64, u64)>,
    intervals: VecDeque<Interval>,
    /// By how much NVML's report lags behind.
    report_lag_ns: u64,
}

impl Account {
    pub(super) fn new(memory_total: u64) -> Self {
        Self { gpu: GpuLedger { memory_total, ..GpuLedger::default() }, ..Self::default() }
    }

    /// Adds a process.
    pub fn open(&mut self, pid: i32, label: &str) -> OwnerId {
        let row = ProcessLedger { pid, label: label.to_owned(), ..ProcessLedger::default() };
        self.owners.push(Owner { row, ..Owner::default() });
        OwnerId(self.owners.len() - 1)
    }

    /// From here on NVML reports the memory of processes as it was this long ago.
    pub fn set_report_lag(&mut self, ns: u64) {
        self.report_lag_ns = ns;
    }

    /// Applies a change of an owner's memory to what NVML reports.
    fn report(&mut self, owner: OwnerId, change: impl FnOnce(&mut ReportedMemory)) {
        let Owner { row, reported, .. } = &mut self.owners[owner.0];
        change(reported);
        reported.record(row.context_bytes, self.gpu.now_ns, self.report_lag_ns);
    }

    /// Marks a process as ended. Its row is kept, and its memory until [`release`](Self::release).
    pub(super) fn end(&mut self, owner: OwnerId) {
        self.owners[owner.0].row.ended = true;
    }

    /// Frees all memory of an owner.
    pub fn release(&mut self, owner: OwnerId) {
        let row = &mut self.owners[owner.0].row;
        self.gpu.memory_used -= row.memory_bytes + row.context_bytes;
        let (now, _) = self.memory.entry(row.label.clone()).or_default();
        *now -= row.memory_bytes;
        (row.memory_bytes, row.context_bytes) = (0, 0);
        self.report(owner, ReportedMemory::clear);
    }

    pub(super) fn pid(&self, owner: OwnerId) -> i32 {
        self.owners[owner.0].row.pid
    }

    /// Index of a kernel name in the owner's table, for [`super::Work::Kernel`].
    pub fn name(&mut self, owner: OwnerId, text: &str) -> usize {
        let names = &mut self.owners[owner.0].names;
        names.iter().position(|name| name.text == text).unwrap_or_else(|| {
            names.push(Name { text: text.to_owned(), completed: 0 });
            names.len() - 1
        })
    }

    /// Number of kernel names that the owner has.
    pub fn names(&self, owner: OwnerId) -> usize {
        self.owners[owner.0].names.len()
    }

    /// Allocates device memory. Returns `false`, and allocates nothing, if not enough is left.
    #[must_use]
    pub fn allocate(&mut self, owner: OwnerId, bytes: u64) -> bool {
        if bytes > self.free_bytes() {
            return false;
        }
        self.gpu.memory_used += bytes;
        let row = &mut self.owners[owner.0].row;
        row.memory_bytes += bytes;
        row.memory_peak_bytes = row.memory_peak_bytes.max(row.memory_bytes);
        let (now, peak) = self.memory.entry(row.label.clone()).or_default();
        *now += bytes;
        *peak = (*peak).max(*now);
        self.report(owner, |reported| reported.allocate(bytes));
        true
    }

    /// Frees device memory, at most what the owner has.
    pub fn free(&mut self, owner: OwnerId, bytes: u64) {
        let row = &mut self.owners[owner.0].row;
        let bytes = bytes.min(row.memory_bytes);
        row.memory_bytes -= bytes;
        self.gpu.memory_used -= bytes;
        let (now, _) = self.memory.entry(row.label.clone()).or_default();
        *now -= bytes;
        self.report(owner, |reported| reported.free(bytes));
    }

    /// Allocates the memory of a context or of a module in it. Returns `false` if not enough is left.
    #[must_use]
    pub fn open_context(&mut self, owner: OwnerId, bytes: u64) -> bool {
        if bytes > self.free_bytes() {
            return false;
        }
        self.gpu.memory_used += bytes;
        self.owners[owner.0].row.context_bytes += bytes;
        self.report(owner, |_| {});
        true
    }

    /// Frees the memory of a context or of a module in it.
    pub fn close_context(&mut self, owner: OwnerId, bytes: u64) {
        let row = &mut self.owners[owner.0].row;
        let bytes = bytes.min(row.context_bytes);
        row.context_bytes -= bytes;
        self.gpu.memory_used -= bytes;
        self.report(owner, |_| {});
    }

    /// Device memory that is free, in bytes.
    pub fn free_bytes(&self) -> u64 {
        self.gpu.memory_total - self.gpu.memory_used
    }

    pub(super) fn submitted(&mut self, owner: OwnerId, kernels: u64) {
        self.owners[owner.0].row.kernels_submitted += kernels;
    }

    pub(super) fn began(&mut self, owner: OwnerId, at: u64) {
        self.owners[owner.0].row.first_kernel_ns.get_or_insert(at);
    }

    pub(super) fn completed(&mut self, owner: OwnerId, name: usize, ns: u64, at: u64) {
        let owner = &mut self.owners[owner.0];
        owner.row.kernels_completed += 1;
        owner.row.kernel_ns += ns;
        owner.row.last_kernel_ns = Some(at);
        if let Some(name) = owner.names.get_mut(name) {
            name.completed += 1;
        }
    }

    pub(super) fn copied(&mut self, owner: OwnerId, ns: u64) {
        self.owners[owner.0].row.copy_ns += ns;
    }

    pub(super) fn switched(&mut self) {
        self.gpu.switches += 1;
    }

    pub(super) fn switching(&mut self, ns: u64) {
        self.gpu.switch_ns += ns;
    }

    /// Records that the owner's kernels ran from `from` to `to`.
    pub(super) fn ran(&mut self, owner: OwnerId, from: u64, to: u64) {
        if from == to {
            return;
        }
        let row = &mut self.owners[owner.0].row;
        row.gpu_ns += to - from;
        self.gpu.busy_ns += to - from;
        match self.intervals.back_mut() {
            Some(last) if last.pid == row.pid && from - last.end_ns <= params::MERGE_GAP_NS => {
                last.end_ns = to;
                last.busy_ns += to - from;
            }
            _ => {
                if self.intervals.len() == params::TIMELINE_INTERVALS {
                    self.intervals.pop_front();
                }
                let (pid, busy_ns) = (row.pid, to - from);
                self.intervals.push_back(Interval { start_ns: from, end_ns: to, pid, busy_ns });
            }
        }
    }

    /// Adds time in which the owner's kernels could have run and did not.
    pub(super) fn waited(&mut self, owner: OwnerId, ns: u64) {
        self.owners[owner.0].row.waited_ns += ns;
    }

    pub(super) fn at(&mut self, now: u64) {
        self.gpu.now_ns = now;
    }

    /// A copy of all counters.
    pub fn ledger(&self) -> Ledger {
        let processes = self.owners.iter().map(|owner| {
            let counted = owner.names.iter().filter(|name| name.completed > 0);
            let kernels = counted.map(|name| (name.text.clone(), name.completed)).collect();
            let reported_bytes = owner.reported.at(self.gpu.now_ns.saturating_sub(self.report_lag_ns));
            ProcessLedger { kernels, reported_bytes, ..owner.row.clone() }
        });
        let (gpu, processes) = (self.gpu.clone(), processes.collect());
        Ledger { gpu, processes, labels: self.labels(), groups: Vec::new() }
    }

    fn labels(&self) -> BTreeMap<String, LabelLedger> {
        let mut labels: BTreeMap<String, LabelLedger> = BTreeMap::new();
        for Owner { row, .. } in &self.owners {
            let label = labels.entry(row.label.clone()).or_default();
            label.processes += 1;
            label.alive += u64::from(!row.ended);
            label.gpu_ns += row.gpu_ns;
            label.kernel_ns += row.kernel_ns;
            label.kernels_completed += row.kernels_completed;
            let (now, peak) = self.memory.get(&row.label).copied().unwrap_or_default();
            (label.memory_bytes, label.memory_peak_bytes) = (now, peak);
        }
        labels
    }

    /// The intervals in which each process had the GPU, cut at `from` and `to`.
    pub fn timeline(&self, from: u64, to: u64) -> Vec<Interval> {
        let begin = self.intervals.partition_point(|interval| interval.end_ns <= from);
        let inside = self.intervals.range(begin..).take_while(|interval| interval.start_ns < to);
        inside.map(|interval| cut(*interval, from, to)).collect()
    }

    /// Use from `from` to `to`.
    pub fn window(&self, from: u64, to: u64) -> Window {
        let mut window = Window { from_ns: from, to_ns: to, ..Window::default() };
        for interval in self.timeline(from, to) {
            window.busy_ns += interval.busy_ns;
            *window.gpu_ns.entry(interval.pid).or_default() += interval.busy_ns;
        }
        window
    }
}

fn cut(interval: Interval, from: u64, to: u64) -> Interval {
    let (start_ns, end_ns) = (interval.start_ns.max(from), interval.end_ns.min(to));
    let whole = u128::from(interval.end_ns - interval.start_ns);
    let busy = u128::from(interval.busy_ns) * u128::from(end_ns - start_ns) / whole;
    Interval { start_ns, end_ns, pid: interval.pid, busy_ns: u64::try_from(busy).unwrap_or(u64::MAX) }
}
