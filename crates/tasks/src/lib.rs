//! The task queue of one process: which task starts next, when the best-effort stream has to stand, and what was measured.
//!
//! * [`TaskQueue`]: the order of waiting tasks, and the two that run.
//! * [`Metrics`]: its figures, per task name and in total.
//!
//! The Python package `sluice` wraps it. This crate makes no GPU calls, starts no thread and reads no clock: times are `u64` nanoseconds
//! of any monotonic clock.
//!
//! ```
//! use sluice_tasks::{Class, Outcome, StreamAction, Task, TaskQueue};
//!
//! let mut queue = TaskQueue::new(0);
//! let training = queue.submit(Task::new("training", Class::BestEffort), 0);
//! assert_eq!(queue.start(Class::BestEffort, 0), Some(training));
//!
//! let inference = queue.submit(Task::new("inference", Class::LatencyCritical), 10);
//! assert_eq!(queue.stream_action(), Some(StreamAction::Preempt));
//! assert_eq!(queue.start(Class::LatencyCritical, 10), Some(inference));
//! assert!(queue.finish(inference, Outcome::Completed, 20));
//! assert_eq!(queue.stream_action(), Some(StreamAction::Restore));
//! ```
#![forbid(unsafe_code)]

mod metrics;
mod task_queue;

pub use metrics::{Metrics, TaskMetrics};
pub use task_queue::{Class, Outcome, StreamAction, Task, TaskId, TaskQueue};
