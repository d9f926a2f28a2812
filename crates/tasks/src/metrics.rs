//! The figures of a task queue.

use std::collections::{BTreeMap, VecDeque};

use crate::task_queue::{Class, Task};

/// Number of latencies that are kept per name; percentiles are those of the last ones.
const KEPT_LATENCIES: usize = 4096;

/// The figures of the tasks of one name. Latencies count from submission to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskMetrics {
    /// The class of the last task of this name.
    pub class: Class,
    /// Tasks that ended, with a result or an error.
    pub count: u64,
    /// Those of them that ended with an error.
    pub failed: u64,
    /// Tasks that were cancelled; they are in no other figure.
    pub cancelled: u64,
    /// Ended tasks with a latency above their goal.
    pub slo_violations: u64,
    /// Median of the last 4,096 latencies; `None` without one.
    pub p50_ns: Option<u64>,
    /// The latency that 1 % of the last 4,096 tasks exceed; `None` without one.
    pub p99_ns: Option<u64>,
}

/// All figures of a queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    /// Times that the best-effort stream was stopped.
    pub preemptions: u64,
    /// Sum over all tasks.
    pub slo_violations: u64,
    /// The part of the time, 0 to 1, in which a task ran.
    pub utilisation: f64,
    /// By name.
    pub tasks: BTreeMap<String, TaskMetrics>,
}

#[derive(Debug)]
struct OfName {
    class: Class,
    count: u64,
    failed: u64,
    cancelled: u64,
    slo_violations: u64,
    latencies_ns: VecDeque<u64>,
}

/// Collects what [`Metrics`] reports.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) preemptions: u64,
    began_ns: u64,
    busy_ns: u64,
    /// Since when a task runs.
    busy_from_ns: Option<u64>,
    names: BTreeMap<String, OfName>,
}

impl Recorder {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self { preemptions: 0, began_ns: now_ns, busy_ns: 0, busy_from_ns: None, names: BTreeMap::new() }
    }

    pub(crate) fn busy_from(&mut self, now_ns: u64) {
        self.busy_from_ns = Some(now_ns);
    }

    pub(crate) fn busy_until(&mut self, now_ns: u64) {
        self.busy_ns += self.busy_from_ns.take().map_or(0, |from| now_ns.saturating_sub(from));
    }

    pub(crate) fn cancelled(&mut self, task: &Task) {
        self.of(task).cancelled += 1;
    }

    pub(crate) fn ended(&mut self, task: &Task, failed: bool, latency_ns: u64) {
        let of_name = self.of(task);
        of_name.count += 1;
        of_name.failed += u64::from(failed);
        of_name.slo_violations += u64::from(task.slo_ns.is_some_and(|slo_ns| latency_ns > slo_ns));
        if of_name.latencies_ns.len() == KEPT_LATENCIES {
            of_name.latencies_ns.pop_front();
        }
        of_name.latencies_ns.push_back(latency_ns);
    }

    fn of(&mut self, task: &Task) -> &mut OfName {
        if !self.names.contains_key(&task.name) {
            let none = OfName {
                class: task.class,
                count: 0,
                failed: 0,
                cancelled: 0,
                slo_violations: 0,
                latencies_ns: VecDeque::new(),
            };
            self.names.insert(task.name.clone(), none);
        }
        let of_name = self.names.get_mut(&task.name).expect("inserted above");
        of_name.class = task.class;
        of_name
    }

    pub(crate) fn metrics(&self, now_ns: u64) -> Metrics {
        let running_ns = self.busy_from_ns.map_or(0, |from| now_ns.saturating_sub(from));
        let lived_ns = now_ns.saturating_sub(self.began_ns).max(1);
        Metrics {
            preemptions: self.preemptions,
            slo_violations: self.names.values().map(|of_name| of_name.slo_violations).sum(),
            utilisation: ((self.busy_ns + running_ns) as f64 / lived_ns as f64).min(1.0),
            tasks: self.names.iter().map(|(name, of_name)| (name.clone(), of_name.metrics())).collect(),
        }
    }
}

impl OfName {
    fn metrics(&self) -> TaskMetrics {
        let mut sorted: Vec<u64> = self.latencies_ns.iter().copied().collect();
        sorted.sort_unstable();
        TaskMetrics {
            class: self.class,
            count: self.count,
            failed: self.failed,
            cancelled: self.cancelled,
            slo_violations: self.slo_violations,
            p50_ns: percentile(&sorted, 50),
            p99_ns: percentile(&sorted, 99),
        }
    }
}

/// The nearest-rank percentile of sorted values.
fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_by_nearest_rank() {
        let values: Vec<u64> = (1..=200).collect();
        assert_eq!((percentile(&values, 50), percentile(&values, 99)), (Some(100), Some(198)));
        assert_eq!((percentile(&[7], 50), percentile(&[7], 99)), (Some(7), Some(7)));
        assert_eq!(percentile(&[], 99), None);
    }

    #[test]
    fn only_the_last_latencies_count() {
        let (mut recorder, task) = (Recorder::new(0), Task::new("a", Class::BestEffort));
        recorder.ended(&task, false, 1_000_000);
        for _ in 0..KEPT_LATENCIES {
            recorder.ended(&task, false, 5);
        }
        let seen = &recorder.metrics(1).tasks["a"];
        assert_eq!((seen.p99_ns, seen.count), (Some(5), KEPT_LATENCIES as u64 + 1));
    }
}
