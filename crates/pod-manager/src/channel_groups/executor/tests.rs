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
}

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
        group.switches += if group.enabled { 100 } else { 0 };
        Some(group.switches)
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
        let group =
            Arc::new(Mutex::new(FakeGroup { enabled: true, slice_us: DEFAULT_SLICE_US, switches: 0 }));
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

    /// Waits until all requests so far are served. Returns the findings since the last time.
    fn wait(&self) -> Vec<(GroupId, ViolationKind)> {
        const NO_GROUP: u64 = 99;
        self.make(NO_GROUP, ControlOp::Enable);
        let (mut findings, mut is_served, begun) = (Vec::new(), false, Instant::now());
        while !is_served {
            assert!(begun.elapsed() < Duration::from_secs(20), "the executor does not answer");
            std::thread::sleep(Duration::from_micros(50));
            for message in self.inbox.take() {
                match message {
                    Message::GroupFinding(GroupFinding { group, kind, .. }) => findings.push((group, kind)),
                    Message::Controlled(report) => is_served |= report.control.group == GroupId(NO_GROUP),
                    _ => {}
                }
            }
        }
        findings
    }

    /// The findings of a check.
    fn check(&self) -> Vec<(GroupId, ViolationKind)> {
        self.executor.request(ControlRequest::Check(Vec::new()));
        self.wait()
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
