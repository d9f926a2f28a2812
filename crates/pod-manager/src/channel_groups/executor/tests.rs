use super::checks::LEAST_BETWEEN_CHECKS;
use super::*;
use crate::message::{self, Inbox, Message};
use sluice_core::processes::{GroupFinding, ViolationKind};
use std::sync::{Arc, Mutex};

/// A channel group of the driver: whether it is enabled, its time slice, and how often it was switched out. While it is enabled it is switched
/// out before each reading.
#[derive(Debug)]
struct FakeGroup {
    enabled: bool,
    slice_us: u64,
    switches: u32,
    /// Whether the driver answers how often it was switched out.
    is_readable: bool,
}

/// How often an enabled group is switched out before each reading.
const SWITCHES: u32 = 100;

/// A way to the group.
struct FakeControl(Arc<Mutex<FakeGroup>>);

impl ChannelControl for FakeControl {
    fn make(&mut self, _: &ContextHandles, op: ControlOp) -> Result<(), ControlFailure> {
        let mut group = self.0.lock().unwrap();
        match op {
            ControlOp::SetSlice(us) => group.slice_us = us,
            ControlOp::Disable => group.enabled = false,
            ControlOp::Enable => group.enabled = true,
        }
        Ok(())
    }

    fn slice_us(&mut self, _: &ContextHandles) -> Option<u64> {
        Some(self.0.lock().unwrap().slice_us)
    }

    fn switches(&mut self, _: &ContextHandles) -> Option<u32> {
        let mut group = self.0.lock().unwrap();
        group.switches = group.switches.wrapping_add(if group.enabled { SWITCHES } else { 0 });
        group.is_readable.then_some(group.switches)
    }
}

/// One group that two processes have under control: the first one as number 1, the second one as number 2.
struct Twice {
    group: Arc<Mutex<FakeGroup>>,
    executor: ControlExecutor,
    inbox: Inbox,
}

impl Twice {
    fn new() -> Self {
        let (remote, inbox) = message::pair().unwrap();
        let switches = remote.report(|(group, count)| Message::GroupSwitched(group, count));
        let reports = (remote.report(Message::Controlled), remote.report(Message::GroupFinding), switches);
        let executor = ControlExecutor::start(reports, Closer::start().unwrap(), None, true).unwrap();
        let group = FakeGroup { enabled: true, slice_us: DEFAULT_SLICE_US, switches: 0, is_readable: true };
        let group = Arc::new(Mutex::new(group));
        let channels = vec![7];
        let handles = ContextHandles { descriptor: 0, client: 1, subdevice: 2, channel_group: 3, channels };
        for number in [1, 2] {
            let (id, control) = (ControlDescriptorId(number), Box::new(FakeControl(Arc::clone(&group))));
            executor.request(ControlRequest::Open(id, control, None));
            executor.request(ControlRequest::Add(GroupId(number), id, handles.clone()));
        }
        Self { group, executor, inbox }
    }

    fn make(&self, number: u64, op: ControlOp) {
        self.executor.request(ControlRequest::Make(Control { group: GroupId(number), op }));
    }

    /// Waits until all requests so far are served. Returns what the executor has reported since the last time.
    fn reports(&self) -> Vec<Message> {
        const NO_GROUP: u64 = 99;
        self.make(NO_GROUP, ControlOp::Enable);
        let (mut messages, mut is_served, begun) = (Vec::new(), false, Instant::now());
        while !is_served {
            assert!(begun.elapsed() < Duration::from_secs(20), "the executor does not answer");
            std::thread::sleep(Duration::from_micros(50));
            messages.extend(self.inbox.take());
            let is_last = |message: &Message| matches!(message, Message::Controlled(report) if report.control.group == GroupId(NO_GROUP));
            is_served = messages.iter().any(is_last);
        }
        messages
    }

    /// Waits until all requests so far are served. Returns the findings since the last time.
    fn wait(&self) -> Vec<(GroupId, ViolationKind)> {
        let finding = |message| match message {
            Message::GroupFinding(GroupFinding { group, kind, .. }) => Some((group, kind)),
            _ => None,
        };
        self.reports().into_iter().filter_map(finding).collect()
    }

    /// The findings of a check.
    fn check(&self) -> Vec<(GroupId, ViolationKind)> {
        self.executor.request(ControlRequest::Check(Vec::new()));
        self.wait()
    }

    /// How often the group was switched out, as a check under number 1 reports. The check is due.
    fn counted(&self) -> Option<u32> {
        std::thread::sleep(LEAST_BETWEEN_CHECKS);
        self.counted_at_once()
    }

    /// The same for a check that follows at once on what was before.
    fn counted_at_once(&self) -> Option<u32> {
        self.executor.request(ControlRequest::Check(vec![GroupId(1)]));
        let switches = |message| match message {
            Message::GroupSwitched(GroupId(1), switches) => Some(switches),
            _ => None,
        };
        self.reports().into_iter().find_map(switches)
    }
}

#[test]
fn group_that_the_manager_enables_for_another_process_is_no_finding() {
    let twice = Twice::new();
    twice.make(2, ControlOp::Disable);
    twice.make(1, ControlOp::Enable);
    assert_eq!(twice.check(), []);
}

#[test]
fn group_that_its_process_enables_is_found() {
    let twice = Twice::new();
    twice.make(2, ControlOp::Disable);
    twice.wait();
    twice.group.lock().unwrap().enabled = true;
    twice.make(1, ControlOp::Enable);
    assert_eq!(twice.check(), [(GroupId(2), ViolationKind::StoppedGroupRan)], "it ran before it was enabled");
}

#[test]
fn slice_that_the_manager_sets_for_another_process_is_no_finding() {
    let twice = Twice::new();
    twice.make(2, ControlOp::SetSlice(1));
    twice.make(1, ControlOp::SetSlice(DEFAULT_SLICE_US));
    assert_eq!(twice.check(), []);
}

#[test]
fn slice_that_its_process_sets_is_found() {
    let twice = Twice::new();
    twice.make(2, ControlOp::SetSlice(1));
    twice.make(1, ControlOp::SetSlice(1));
    twice.wait();
    twice.group.lock().unwrap().slice_us = 5000;
    assert_eq!(twice.check(), [(GroupId(1), ViolationKind::TimeSlice)]);
}

/// A count that could not be read separates the counts before it from those after it: they are about more than one interval.
#[test]
fn switches_are_counted_from_the_first_reading_after_one_that_failed() {
    let twice = Twice::new();
    assert_eq!(twice.counted(), None, "the first reading");
    assert_eq!(twice.counted(), Some(SWITCHES));
    twice.group.lock().unwrap().is_readable = false;
    assert_eq!(twice.counted(), None, "the driver does not answer");
    twice.group.lock().unwrap().is_readable = true;
    assert_eq!(twice.counted(), None, "the first reading after that");
    assert_eq!(twice.counted(), Some(SWITCHES));
}

#[test]
fn switches_are_counted_across_the_wrap_of_the_drivers_count() {
    let twice = Twice::new();
    twice.group.lock().unwrap().switches = u32::MAX - SWITCHES - SWITCHES / 2;
    assert_eq!(twice.counted(), None);
    assert_eq!(twice.counted(), Some(SWITCHES));
    assert!(twice.group.lock().unwrap().switches < SWITCHES, "the count has wrapped");
}

#[test]
fn group_whose_process_leaves_between_two_readings_has_no_count() {
    let twice = Twice::new();
    assert_eq!(twice.counted(), None);
    twice.executor.request(ControlRequest::Forget(GroupId(1)));
    assert_eq!(twice.counted(), None);
}

/// The driver was slow, and two checks are served one after the other. The event loop counts what its grants explain from check to check.
#[test]
fn check_that_is_skipped_ends_the_interval() {
    let twice = Twice::new();
    assert_eq!(twice.counted(), None);
    assert_eq!(twice.counted_at_once(), None, "too early");
    assert_eq!(
        twice.counted(),
        None,
        "its grants since the skipped check do not explain the switches before"
    );
    assert_eq!(twice.counted(), Some(SWITCHES));
}
