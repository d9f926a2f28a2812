//! The control executor: a thread that makes the controls, because the driver may take long over each.
//!
//! It owns the control descriptors and closes them. One control is in flight at a time: the event loop requests the next one after the
//! report of the last.

mod checks;

use super::group_check::DisabledGroups;
use super::{ChannelControl, ControlFailure, EscrowClient, EscrowCopy};
use crate::closer::Closer;
use crate::report::Report;
use sluice_comm::attach::ContextHandles;
use sluice_comm::escrow::EscrowMessage;
use sluice_core::channel_groups::{
    Control, ControlOp, DEFAULT_SLICE_US, GroupId, KnownSetting, ReleaseSequence, TINY_SLICE_US,
};
use sluice_core::processes::{ControlDescriptorId, GroupFinding};
use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// What the thread is to do.
pub(crate) enum ControlRequest {
    /// Keep a control descriptor, for the groups that follow, and escrow a copy.
    Open(ControlDescriptorId, Box<dyn ChannelControl>, Option<EscrowCopy>),
    /// Control a group through this descriptor. A group that is known already is controlled through it from now on.
    Add(GroupId, ControlDescriptorId, ContextHandles),
    /// No more groups follow: close the descriptor unless a group is controlled through it.
    Close(ControlDescriptorId),
    /// Make a control and report.
    Make(Control),
    /// Compare time slices and counts of switches with what was set. Findings are reported, and how often these groups were switched out since
    /// the last check.
    Check(Vec<GroupId>),
    /// Other processes have made controls: what was read before does not count.
    ForgetChecks,
    /// Control a group no longer. With the last group of a descriptor the descriptor is closed.
    Forget(GroupId),
    /// Return every group to the driver's defaults, as far as the time allows, report that and end.
    Restore(Duration, Sender<()>),
}

/// The outcome of a control.
#[derive(Debug)]
pub(crate) struct ControlReport {
    pub(crate) control: Control,
    pub(crate) result: Result<(), ControlFailure>,
    pub(crate) took: Duration,
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct ControlExecutor {
    requests: Sender<ControlRequest>,
    /// Copies of control descriptors are escrowed.
    pub(crate) wants_copies: bool,
}

impl ControlExecutor {
    /// Starts the thread, which reports the ends of controls and what its checks find. Time slices are set only if `sets_slices`.
    pub(crate) fn start(
        (reports, findings, switches): (Report<ControlReport>, Report<GroupFinding>, Report<(GroupId, u32)>),
        closer: Closer,
        escrow: Option<EscrowClient>,
        sets_slices: bool,
    ) -> io::Result<Self> {
        let (sender, requests) = channel();
        let wants_copies = escrow.is_some();
        let (descriptors, groups) = (HashMap::new(), HashMap::new());
        let disabled = DisabledGroups::new();
        let (checked, last_slice_read) = (None, GroupId(0));
        let worker = Worker {
            descriptors,
            groups,
            reports,
            findings,
            switches,
            alternating: HashMap::new(),
            closer,
            escrow,
            sets_slices,
            disabled,
            checked,
            last_slice_read,
            checks: 0,
        };
        std::thread::Builder::new().name("sluice-controls".into()).spawn(move || worker.serve(&requests))?;
        Ok(Self { requests: sender, wants_copies })
    }

    pub(crate) fn request(&self, request: ControlRequest) {
        // The thread ends no earlier than this.
        let _ = self.requests.send(request);
    }

    /// Returns every group to the driver's defaults. `false` if that took longer than `timeout`: the driver may never answer the
    /// thread.
    pub(crate) fn restore(self, timeout: Duration) -> bool {
        let (done, restored) = channel();
        self.request(ControlRequest::Restore(timeout, done));
        restored.recv_timeout(timeout) != Err(RecvTimeoutError::Timeout)
    }
}

/// A group, its control descriptor, and the state in which the controls have left it.
struct ControlledGroup {
    descriptor: ControlDescriptorId,
    handles: ContextHandles,
    known: KnownSetting,
    /// The check that last read back its time slice; for a new group the last one before it came.
    slice_read_in: u64,
}

impl ControlledGroup {
    /// Records the end of a control. One that failed may have had its effect.
    fn record(&mut self, op: ControlOp, succeeded: bool) {
        let KnownSetting { enabled, slice_us } = &mut self.known;
        let harmless = |us: u64| us >= TINY_SLICE_US;
        match op {
            ControlOp::SetSlice(us) if succeeded => *slice_us = Some(us),
            ControlOp::SetSlice(us) => {
                *slice_us = slice_us.filter(|before| harmless(*before) && harmless(us))
            }
            ControlOp::Disable | ControlOp::Enable => *enabled = succeeded.then_some(op == ControlOp::Enable),
        }
    }
}

/// The thread's state.
struct Worker {
    descriptors: HashMap<ControlDescriptorId, Box<dyn ChannelControl>>,
    groups: HashMap<GroupId, ControlledGroup>,
    reports: Report<ControlReport>,
    findings: Report<GroupFinding>,
    switches: Report<(GroupId, u32)>,
    /// The counts of switches at the last check of the groups that it was about.
    alternating: HashMap<GroupId, u32>,
    /// Closing the last descriptor of a driver's client can take long.
    closer: Closer,
    /// `None`: copies are not escrowed.
    escrow: Option<EscrowClient>,
    sets_slices: bool,
    disabled: DisabledGroups,
    /// When the last check ended. Checks that were requested while the thread waited for the driver are not made up for.
    checked: Option<Instant>,
    /// The group whose time slice was read back last.
    last_slice_read: GroupId,
    /// Checks so far.
    checks: u64,
}

impl Worker {
    fn serve(mut self, requests: &Receiver<ControlRequest>) {
        for request in requests {
            self.escrow(EscrowClient::flush);
            match request {
                ControlRequest::Open(id, control, copy) => {
                    if let Some(copy) = copy {
                        self.escrow(|escrow| escrow.send(EscrowMessage::Descriptor(id.0), Some(copy)));
                    }
                    self.descriptors.insert(id, control);
                }
                ControlRequest::Add(group, id, handles) => self.add(group, id, handles),
                ControlRequest::Close(id) => self.close_if_unused(id),
                ControlRequest::Make(control) => {
                    let begun = Instant::now();
                    let result = self.make(control.group, control.op);
                    let report = ControlReport { control, result, took: begun.elapsed() };
                    self.reports.send(report);
                }
                ControlRequest::Check(alternating) => self.check(&alternating),
                ControlRequest::ForgetChecks => self.disabled = DisabledGroups::new(),
                ControlRequest::Forget(group) => self.forget(group),
                ControlRequest::Restore(timeout, done) => {
                    self.restore(timeout);
                    // The receiver may have stopped waiting.
                    let _ = done.send(());
                    return;
                }
            }
        }
    }

    fn add(&mut self, group: GroupId, descriptor: ControlDescriptorId, handles: ContextHandles) {
        // A process that is held by the driver's lock has no channels to escrow.
        if !handles.channels.is_empty() {
            let (group, descriptor, handles) = (group.0, descriptor.0, handles.clone());
            self.escrow(|escrow| escrow.send(EscrowMessage::Group { group, descriptor, handles }, None));
        }
        // Its process may have enabled it itself while it was not connected.
        self.disabled.forget(group, false);
        // Where slices are not set every group has the driver's default.
        let slice_us = (!self.sets_slices).then_some(DEFAULT_SLICE_US);
        let known = KnownSetting { enabled: None, slice_us };
        let group_of = ControlledGroup { descriptor, handles, known, slice_read_in: self.checks };
        if let Some(before) = self.groups.insert(group, group_of) {
            self.close_if_unused(before.descriptor);
        }
    }

    /// Sends to the escrow, if there is one; copies that come back are closed on the closing thread.
    fn escrow(&mut self, send: impl FnOnce(&mut EscrowClient) -> Vec<EscrowCopy>) {
        let unneeded = self.escrow.as_mut().map(send).unwrap_or_default();
        if !unneeded.is_empty() {
            self.closer.close(unneeded);
        }
    }

    fn make(&mut self, id: GroupId, op: ControlOp) -> Result<(), ControlFailure> {
        if op == ControlOp::Enable {
            self.end_watch(id);
        }
        let group = self.groups.get_mut(&id).ok_or(ControlFailure::Gone)?;
        let control = self.descriptors.get_mut(&group.descriptor).ok_or(ControlFailure::Gone)?;
        let made = control.make(&group.handles, op);
        group.record(op, made.is_ok());
        if op == ControlOp::Disable && made.is_ok() && !group.handles.channels.is_empty() {
            self.disabled.disabled(id, || control.switches(&group.handles));
        }
        made
    }

    fn forget(&mut self, group: GroupId) {
        self.disabled.forget(group, true);
        if let Some(ControlledGroup { descriptor, .. }) = self.groups.remove(&group) {
            self.escrow(|escrow| escrow.send(EscrowMessage::Forget(group.0), None));
            self.close_if_unused(descriptor);
        }
    }

    fn close_if_unused(&mut self, id: ControlDescriptorId) {
        if !self.groups.values().any(|group| group.descriptor == id) {
            self.escrow(|escrow| escrow.send(EscrowMessage::Close(id.0), None));
            self.closer.close(self.descriptors.remove(&id));
        }
    }

    /// Returns groups to the driver's defaults until the time is up. The rest is left to their own processes, or to the node agent.
    fn restore(&mut self, timeout: Duration) {
        let until = Instant::now() + timeout;
        let mut release = ReleaseSequence::new(self.groups.iter().map(|(id, group)| (*id, group.known)));
        while Instant::now() < until
            && let Some((group, op)) = release.begin()
        {
            release.done(self.make(group, op).is_ok());
        }
        for group in release.free() {
            self.forget(group);
        }
    }
}

#[cfg(test)]
mod tests;
