//! `sluice._native`: the task queue of `sluice-tasks` for Python. Its types are described in `sluice/_native.pyi`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sluice_tasks::{Class, Metrics, Outcome, StreamAction, Task, TaskId};

/// The module `sluice._native`.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::TaskQueue;
}

/// The queue, which any thread may use.
#[pyclass(module = "sluice._native", frozen)]
struct TaskQueue {
    queue: Mutex<sluice_tasks::TaskQueue>,
}

impl TaskQueue {
    fn lock(&self) -> MutexGuard<'_, sluice_tasks::TaskQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn class(critical: bool) -> Class {
    if critical { Class::LatencyCritical } else { Class::BestEffort }
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::LatencyCritical => "latency-critical",
        Class::BestEffort => "best-effort",
    }
}

#[pymethods]
impl TaskQueue {
    #[new]
    fn new(now_ns: u64) -> Self {
        Self { queue: Mutex::new(sluice_tasks::TaskQueue::new(now_ns)) }
    }

    fn submit(&self, name: String, critical: bool, priority: i32, slo_ns: Option<u64>, now_ns: u64) -> u64 {
        self.lock().submit(Task { name, class: class(critical), priority, slo_ns }, now_ns).0
    }

    fn cancel(&self, task: u64) -> bool {
        self.lock().cancel(TaskId(task))
    }

    fn start(&self, critical: bool, now_ns: u64) -> Option<u64> {
        self.lock().start(class(critical), now_ns).map(|id| id.0)
    }

    #[pyo3(signature = (task, now_ns, *, failed = false, cancelled = false))]
    fn finish(&self, task: u64, now_ns: u64, failed: bool, cancelled: bool) -> bool {
        let outcome = match (failed, cancelled) {
            (_, true) => Outcome::Cancelled,
            (true, false) => Outcome::Failed,
            (false, false) => Outcome::Completed,
        };
        self.lock().finish(TaskId(task), outcome, now_ns)
    }

    fn stream_action(&self) -> Option<&'static str> {
        self.lock().stream_action().map(|action| match action {
            StreamAction::Preempt => "preempt",
            StreamAction::Restore => "restore",
        })
    }

    fn preemption_failed(&self) {
        self.lock().preemption_failed();
    }

    fn waiting(&self) -> usize {
        self.lock().waiting()
    }

    fn running(&self) -> usize {
        self.lock().running()
    }

    fn metrics<'py>(&self, py: Python<'py>, now_ns: u64) -> PyResult<Bound<'py, PyDict>> {
        let metrics = self.lock().metrics(now_ns);
        as_dict(py, &metrics)
    }
}

fn as_dict<'py>(py: Python<'py>, metrics: &Metrics) -> PyResult<Bound<'py, PyDict>> {
    let tasks = PyDict::new(py);
    for (name, seen) in &metrics.tasks {
        let of_name = PyDict::new(py);
        of_name.set_item("class", class_name(seen.class))?;
        of_name.set_item("count", seen.count)?;
        of_name.set_item("failed", seen.failed)?;
        of_name.set_item("cancelled", seen.cancelled)?;
        of_name.set_item("slo_violations", seen.slo_violations)?;
        of_name.set_item("p50_us", seen.p50_ns.map(|ns| ns as f64 / 1e3))?;
        of_name.set_item("p99_us", seen.p99_ns.map(|ns| ns as f64 / 1e3))?;
        tasks.set_item(name, of_name)?;
    }
    let all = PyDict::new(py);
    all.set_item("preemptions", metrics.preemptions)?;
    all.set_item("slo_violations", metrics.slo_violations)?;
    all.set_item("utilisation", metrics.utilisation)?;
    all.set_item("tasks", tasks)?;
    Ok(all)
}
