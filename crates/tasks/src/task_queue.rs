//! The order of tasks, and the state of the best-effort stream.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::metrics::{Metrics, Recorder};

#[cfg(test)]
mod tests;

/// The class of a task. Each class has one stream, which runs one task at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Starts before all best-effort tasks and preempts the running one.
    LatencyCritical,
    /// Starts while no latency-critical task waits or runs.
    BestEffort,
}

/// A task to submit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Tasks of one name share their figures.
    pub name: String,
    /// The class.
    pub class: Class,
    /// Within a class, a greater priority starts first.
    pub priority: i32,
    /// Longest latency, from submission to end, that is no violation.
    pub slo_ns: Option<u64>,
}

impl Task {
    /// A task of priority 0 without a latency goal.
    pub fn new(name: impl Into<String>, class: Class) -> Self {
        Self { name: name.into(), class, priority: 0, slo_ns: None }
    }
}

/// The number of a submission: ascending, and never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// How a started task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With a result.
    Completed,
    /// With an error.
    Failed,
    /// It was cancelled between its start and its first step, so it did nothing.
    Cancelled,
}

/// What has to happen to the best-effort stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamAction {
    /// Stop it: latency-critical work has come while a best-effort task runs.
    Preempt,
    /// Let it continue.
    Restore,
}

/// The position in the queue: smaller starts first.
type Position = (Class, Reverse<i32>, TaskId);

#[derive(Debug)]
struct Submission {
    task: Task,
    submitted_ns: u64,
}

/// Waiting and running tasks. A task starts in the order of class, then priority, then submission.
#[derive(Debug)]
pub struct TaskQueue {
    waiting: BTreeMap<Position, Submission>,
    /// The positions of the waiting tasks.
    positions: HashMap<TaskId, Position>,
    /// At most one task per class.
    running: BTreeMap<Class, (TaskId, Submission)>,
    next_id: u64,
    is_preempted: bool,
    recorder: Recorder,
}

impl TaskQueue {
    /// An empty queue. Utilisation counts from `now_ns`.
    pub fn new(now_ns: u64) -> Self {
        Self {
            waiting: BTreeMap::new(),
            positions: HashMap::new(),
            running: BTreeMap::new(),
            next_id: 0,
            is_preempted: false,
            recorder: Recorder::new(now_ns),
        }
    }

    /// Appends a task behind those of its class and priority.
    pub fn submit(&mut self, task: Task, now_ns: u64) -> TaskId {
        let id = TaskId(self.next_id);
        self.next_id += 1;
        let position = (task.class, Reverse(task.priority), id);
        self.waiting.insert(position, Submission { task, submitted_ns: now_ns });
        self.positions.insert(id, position);
        id
    }

    /// Removes a waiting task. `false` if it has started, has ended or was cancelled before.
    pub fn cancel(&mut self, id: TaskId) -> bool {
        let removed = self.positions.remove(&id).and_then(|position| self.waiting.remove(&position));
        if let Some(submission) = &removed {
            self.recorder.cancelled(&submission.task);
        }
        removed.is_some()
    }

    /// Starts the next task of a class. `None` if none waits, if one of the class runs, or if a best-effort task has to wait for
    /// latency-critical ones.
    pub fn start(&mut self, class: Class, now_ns: u64) -> Option<TaskId> {
        if self.running.contains_key(&class) || (class == Class::BestEffort && self.is_critical()) {
            return None;
        }
        let next = self.waiting.first_entry().filter(|next| next.key().0 == class)?;
        let ((_, _, id), submission) = next.remove_entry();
        self.positions.remove(&id);
        if self.running.is_empty() {
            self.recorder.busy_from(now_ns);
        }
        self.running.insert(class, (id, submission));
        Some(id)
    }

    /// Ends a running task. `false` if it does not run.
    pub fn finish(&mut self, id: TaskId, outcome: Outcome, now_ns: u64) -> bool {
        let Some(class) = self.running.iter().find(|(_, (running, _))| *running == id).map(|found| *found.0)
        else {
            return false;
        };
        if let Some((_, submission)) = self.running.remove(&class) {
            match outcome {
                Outcome::Cancelled => self.recorder.cancelled(&submission.task),
                Outcome::Completed | Outcome::Failed => {
                    let latency_ns = now_ns.saturating_sub(submission.submitted_ns);
                    self.recorder.ended(&submission.task, outcome == Outcome::Failed, latency_ns);
                }
            }
        }
        if self.running.is_empty() {
            self.recorder.busy_until(now_ns);
        }
        true
    }

    /// The change that the best-effort stream needs now, once. Call it after each change of the queue.
    pub fn stream_action(&mut self) -> Option<StreamAction> {
        let wanted = self.is_critical() && self.running.contains_key(&Class::BestEffort);
        if wanted == self.is_preempted {
            return None;
        }
        self.is_preempted = wanted;
        if wanted {
            self.recorder.preemptions += 1;
        }
        Some(if wanted { StreamAction::Preempt } else { StreamAction::Restore })
    }

    /// Takes back the last [`StreamAction::Preempt`], which could not be carried out.
    pub fn preemption_failed(&mut self) {
        if std::mem::take(&mut self.is_preempted) {
            self.recorder.preemptions -= 1;
        }
    }

    /// Number of waiting tasks.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Number of running tasks, at most two.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The figures since the beginning.
    pub fn metrics(&self, now_ns: u64) -> Metrics {
        self.recorder.metrics(now_ns)
    }

    /// Whether a latency-critical task waits or runs.
    fn is_critical(&self) -> bool {
        self.running.contains_key(&Class::LatencyCritical)
            || self.waiting.keys().next().is_some_and(|first| first.0 == Class::LatencyCritical)
    }
}
