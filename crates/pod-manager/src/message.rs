//! Messages from other threads to the event loop.

use crate::channel_groups::ControlReport;
use crate::client_set::{ClientSet, Outdated};
use crate::config::Policies;
use crate::definition::Definition;
use crate::measured_memory::{MemoryReading, ReadingResult};
use crate::report::Report;
use crate::stopped_threads::ThreadsStopped;
use crate::trace::TraceBatch;
use crate::unhooked::scanning::ScanResult;
use nix::sys::eventfd::{EfdFlags, EventFd};
use sluice_core::channel_groups::GroupId;
use sluice_core::gangs::NodeGangs;
use sluice_core::processes::{GroupFinding, OwnershipProof};
use sluice_proto::control::{ReportMemoryResponse, SnapshotResponse, ViolationsResponse};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long the event loop may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// A message.
#[derive(Debug)]
pub(crate) enum Message {
    /// The resource file has changed and is valid.
    Clients(Vec<Definition>),
    /// The policy file has changed. `None`: its new text has a mistake, and what is in force stays.
    Policies(Option<Box<Policies>>),
    /// The set of clients from the node agent. The event loop answers whether it is in force.
    SetClients(ClientSet, oneshot::Sender<Result<(), Outdated>>),
    /// Asks for what every client was promised and has used.
    Snapshot(oneshot::Sender<SnapshotResponse>),
    /// Asks for the violations after this number, or for the next one.
    Violations(u64, oneshot::Sender<ViolationsResponse>),
    /// Asks for up-to-date gauges.
    Refresh(oneshot::Sender<()>),
    /// A control of a channel group has ended.
    Controlled(ControlReport),
    /// A check of a channel group has found something else than the manager has set.
    GroupFinding(GroupFinding),
    /// How often a group that is enabled beside the holder's was switched out between two checks.
    GroupSwitched(GroupId, u32),
    /// All threads of a process that is to be stopped have stopped, or why they cannot be.
    ThreadsStopped(ThreadsStopped),
    /// The result of a search for processes without the hook.
    ScanResult(ScanResult),
    /// The result of an ownership check.
    OwnershipProof(OwnershipProof),
    /// The result of a reading that the event loop has requested.
    MemoryRead(ReadingResult),
    /// A reading of the node agent's. The event loop answers which clients' limits it exceeds.
    MemoryReport(MemoryReading, oneshot::Sender<ReportMemoryResponse>),
    /// Asks for an answer as soon as a reservation waits for a reading.
    NextReading(oneshot::Sender<()>),
    /// The tables of all managers of the node have other gangs as their result.
    Gangs(NodeGangs),
    /// A reader of the trace connects: asks for the state. `None`: there are as many readers as there may be.
    TraceJoined(oneshot::Sender<Option<TraceBatch>>),
    /// Asks for the events of the trace from this number on.
    ReadTrace(u64, oneshot::Sender<Option<TraceBatch>>),
    /// A reader of the trace has left.
    TraceLeft,
    /// Stop serving.
    Stop,
}

/// The sending end: any thread.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    sender: Sender<Message>,
    wake: Arc<EventFd>,
}

impl Remote {
    /// Sends a message and wakes the event loop. Without an event loop the message is dropped.
    pub(crate) fn send(&self, message: Message) {
        if self.sender.send(message).is_ok() {
            // The counter is full only after 2^64 - 2 unread messages.
            let _ = self.wake.write(1);
        }
    }

    /// A report whose values become messages.
    pub(crate) fn report<T: 'static>(&self, message: fn(T) -> Message) -> Report<T> {
        let remote = self.clone();
        Report::new(move |value| remote.send(message(value)))
    }

    /// Sends a question. `None`: the event loop has ended, or counts as hung because it does not answer within a second.
    pub(crate) async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Message) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        self.send(question(sender));
        tokio::time::timeout(ANSWER_TIMEOUT, answer).await.ok()?.ok()
    }

    /// [`Self::ask`] on a thread without a runtime. It waits for as long as the event loop runs.
    pub(crate) fn ask_blocking<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Message) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        self.send(question(sender));
        answer.blocking_recv().ok()
    }
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Inbox {
    receiver: Receiver<Message>,
    wake: Arc<EventFd>,
}

impl Inbox {
    /// Readable when a message may be there.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// All messages, oldest first.
    pub(crate) fn take(&self) -> Vec<Message> {
        // Read before the messages are taken, so that a message sent meanwhile wakes the loop again.
        let _ = self.wake.read();
        self.receiver.try_iter().collect()
    }
}

/// A new channel.
pub(crate) fn pair() -> io::Result<(Remote, Inbox)> {
    let (sender, receiver) = channel();
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let wake = Arc::new(EventFd::from_value_and_flags(0, flags)?);
    Ok((Remote { sender, wake: Arc::clone(&wake) }, Inbox { receiver, wake }))
}
