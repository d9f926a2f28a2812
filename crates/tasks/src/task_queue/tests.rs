use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const CLASSES: [Class; 2] = [Class::LatencyCritical, Class::BestEffort];

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![Just(Class::LatencyCritical), Just(Class::BestEffort)]
}

#[derive(Debug, Clone)]
enum Step {
    Submit(Class, i32),
    Cancel(usize),
    Start(Class),
    Finish(Class, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (class(), -2..3i32).prop_map(|(class, priority)| Step::Submit(class, priority)),
        1 => any::<usize>().prop_map(Step::Cancel),
        4 => class().prop_map(Step::Start),
        4 => (class(), any::<bool>()).prop_map(|(class, failed)| Step::Finish(class, failed)),
    ]
}

/// What a queue has to do, from a plain list.
#[derive(Default)]
struct Model {
    /// Class, priority and number of each waiting task, in the order of submission.
    waiting: Vec<(Class, i32, TaskId)>,
    running: Vec<(Class, TaskId)>,
    /// Tasks that ran, or were cancelled.
    ran: Vec<TaskId>,
    cancelled: Vec<TaskId>,
    is_preempted: bool,
}

impl Model {
    fn runs(&self, class: Class) -> bool {
        self.running.iter().any(|task| task.0 == class)
    }

    fn is_critical(&self) -> bool {
        self.runs(Class::LatencyCritical) || self.waiting.iter().any(|task| task.0 == Class::LatencyCritical)
    }

    fn next(&self, class: Class) -> Option<TaskId> {
        let blocked = self.runs(class) || (class == Class::BestEffort && self.is_critical());
        let of_class = self.waiting.iter().filter(|task| task.0 == class && !blocked);
        of_class.min_by_key(|task| (-task.1, task.2)).map(|task| task.2)
    }

    fn apply(&mut self, queue: &mut TaskQueue, step: &Step, now_ns: u64) {
        match *step {
            Step::Submit(class, priority) => {
                let id = queue.submit(Task { priority, ..Task::new("task", class) }, now_ns);
                self.waiting.push((class, priority, id));
            }
            Step::Cancel(number) => {
                let id = TaskId(number as u64 % (queue.next_id + 1));
                let waits = self.waiting.iter().position(|task| task.2 == id);
                assert_eq!(queue.cancel(id), waits.is_some());
                self.cancelled.extend(waits.map(|index| self.waiting.remove(index).2));
            }
            Step::Start(class) => {
                let next = self.next(class);
                assert_eq!(queue.start(class, now_ns), next);
                if let Some(id) = next {
                    self.waiting.retain(|task| task.2 != id);
                    self.running.push((class, id));
                }
            }
            Step::Finish(class, failed) => {
                if let Some(index) = self.running.iter().position(|task| task.0 == class) {
                    let (_, id) = self.running.remove(index);
                    let outcome = if failed { Outcome::Failed } else { Outcome::Completed };
                    assert!(queue.finish(id, outcome, now_ns));
                    assert!(!queue.finish(id, outcome, now_ns), "a task ends once");
                    self.ran.push(id);
                }
            }
        }
    }

    fn check_stream(&mut self, queue: &mut TaskQueue) {
        let wanted = self.is_critical() && self.runs(Class::BestEffort);
        let action = (wanted != self.is_preempted).then_some(if wanted {
            StreamAction::Preempt
        } else {
            StreamAction::Restore
        });
        assert_eq!(queue.stream_action(), action);
        assert_eq!(queue.stream_action(), None, "each action is given once");
        self.is_preempted = wanted;
    }
}

proptest! {
    #[test]
    fn tasks_start_by_class_priority_and_submission_and_each_ends_once(steps in prop::collection::vec(step(), 1..200)) {
        let (mut queue, mut model) = (TaskQueue::new(0), Model::default());
        let drain = CLASSES.into_iter().flat_map(|class| [Step::Finish(class, false), Step::Start(class)]);
        let drains = steps.len() * 2;
        for (now_ns, step) in (1..).zip(steps.iter().cloned().chain(drain.cycle().take(drains * 4))) {
            model.apply(&mut queue, &step, now_ns);
            model.check_stream(&mut queue);
        }
        for class in CLASSES {
            model.apply(&mut queue, &Step::Finish(class, false), 10_000);
        }
        model.check_stream(&mut queue);
        prop_assert_eq!((queue.waiting(), queue.running(), model.is_preempted), (0, 0, false));
        let ended: BTreeSet<TaskId> = model.ran.iter().chain(&model.cancelled).copied().collect();
        prop_assert_eq!(ended.len(), model.ran.len() + model.cancelled.len());
        prop_assert_eq!(ended.len() as u64, queue.next_id);
        let metrics = queue.metrics(10_000);
        let of_name = metrics.tasks.get("task").map_or((0, 0), |seen| (seen.count, seen.cancelled));
        prop_assert_eq!(of_name, (model.ran.len() as u64, model.cancelled.len() as u64));
    }
}

#[test]
fn best_effort_task_waits_while_a_critical_one_waits_or_runs() {
    let mut queue = TaskQueue::new(0);
    queue.submit(Task { priority: 9, ..Task::new("be", Class::BestEffort) }, 0);
    let critical = queue.submit(Task::new("lc", Class::LatencyCritical), 0);
    assert_eq!(queue.start(Class::BestEffort, 0), None);
    assert_eq!(queue.start(Class::LatencyCritical, 0), Some(critical));
    assert_eq!(queue.start(Class::BestEffort, 0), None);
    queue.finish(critical, Outcome::Completed, 1);
    assert!(queue.start(Class::BestEffort, 1).is_some());
}

#[test]
fn cancelling_the_last_critical_task_restores_the_stream() {
    let mut queue = TaskQueue::new(0);
    queue.submit(Task::new("be", Class::BestEffort), 0);
    queue.start(Class::BestEffort, 0);
    let critical = queue.submit(Task::new("lc", Class::LatencyCritical), 0);
    assert_eq!(queue.stream_action(), Some(StreamAction::Preempt));
    assert!(queue.cancel(critical));
    assert_eq!(queue.stream_action(), Some(StreamAction::Restore));
}

#[test]
fn failed_preemption_is_not_counted_and_is_tried_again() {
    let mut queue = TaskQueue::new(0);
    queue.submit(Task::new("be", Class::BestEffort), 0);
    queue.start(Class::BestEffort, 0);
    queue.submit(Task::new("lc", Class::LatencyCritical), 0);
    assert_eq!(queue.stream_action(), Some(StreamAction::Preempt));
    queue.preemption_failed();
    assert_eq!(queue.metrics(0).preemptions, 0);
    assert_eq!(queue.stream_action(), Some(StreamAction::Preempt));
    assert_eq!(queue.metrics(0).preemptions, 1);
}

#[test]
fn latencies_count_from_submission_and_violations_from_the_goal() {
    let mut queue = TaskQueue::new(0);
    for (submitted_ns, ended_ns) in [(0, 10), (10, 21)] {
        let goal = Task { slo_ns: Some(10), ..Task::new("lc", Class::LatencyCritical) };
        let id = queue.submit(goal, submitted_ns);
        queue.start(Class::LatencyCritical, submitted_ns + 5);
        queue.finish(id, Outcome::Failed, ended_ns);
    }
    let metrics = queue.metrics(22);
    let seen = &metrics.tasks["lc"];
    assert_eq!((seen.count, seen.failed, seen.slo_violations, metrics.slo_violations), (2, 2, 1, 1));
    assert_eq!((seen.p50_ns, seen.p99_ns), (Some(10), Some(11)));
    assert!((metrics.utilisation - 11.0 / 22.0).abs() < 1e-9, "{}", metrics.utilisation);
}
