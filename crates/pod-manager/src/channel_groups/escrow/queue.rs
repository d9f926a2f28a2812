//! Messages for the node agent that were not sent yet, in order. The queue is never longer than what is controlled: a message that is
//! revoked before it was sent is dropped.

use super::EscrowCopy;
use sluice_comm::escrow::EscrowMessage;
use std::collections::{HashSet, VecDeque};

/// The queue, and what the node agent keeps already.
#[derive(Default)]
pub(super) struct EscrowQueue {
    waiting: VecDeque<(EscrowMessage, Option<EscrowCopy>)>,
    /// Control descriptors that the node agent keeps, so that they have to be revoked.
    descriptors: HashSet<u64>,
    /// Groups that the node agent keeps.
    groups: HashSet<u64>,
}

impl EscrowQueue {
    /// Queues a message. Returns a copy that is not needed any more.
    pub(super) fn push(&mut self, message: EscrowMessage, copy: Option<EscrowCopy>) -> Option<EscrowCopy> {
        let mut unneeded = None;
        match &message {
            EscrowMessage::Descriptor(_) => {}
            EscrowMessage::Group { group, .. } => self.remove_group(*group),
            EscrowMessage::Forget(group) => {
                self.remove_group(*group);
                if !self.groups.contains(group) {
                    return None;
                }
            }
            EscrowMessage::Close(line) => {
                let concerns = |message: &EscrowMessage| match message {
                    EscrowMessage::Descriptor(number) => number == line,
                    EscrowMessage::Group { descriptor: of_group, .. } => of_group == line,
                    EscrowMessage::Forget(_) | EscrowMessage::Close(_) => false,
                };
                self.waiting.retain_mut(|(message, copy)| {
                    let revoked = concerns(message);
                    if revoked && copy.is_some() {
                        unneeded = copy.take();
                    }
                    !revoked
                });
                if !self.descriptors.contains(line) {
                    return unneeded;
                }
            }
        }
        self.waiting.push_back((message, copy));
        unneeded
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn first(&self) -> Option<&(EscrowMessage, Option<EscrowCopy>)> {
        self.waiting.front()
    }

    /// Removes the first message, which was sent. Returns its copy.
    pub(super) fn pop_sent(&mut self) -> Option<EscrowCopy> {
        let (message, copy) = self.waiting.pop_front()?;
        // Whether it was kept before does not matter.
        let _ = match message {
            EscrowMessage::Descriptor(line) => self.descriptors.insert(line),
            EscrowMessage::Group { group, .. } => self.groups.insert(group),
            EscrowMessage::Forget(group) => self.groups.remove(&group),
            EscrowMessage::Close(line) => self.descriptors.remove(&line),
        };
        copy
    }

    /// Removes all messages. Returns their copies.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = EscrowCopy> + '_ {
        self.waiting.drain(..).filter_map(|(_, copy)| copy)
    }

    fn remove_group(&mut self, group: u64) {
        self.waiting.retain(|(message, _)| match message {
            EscrowMessage::Group { group: number, .. } => *number != group,
            EscrowMessage::Descriptor(_) | EscrowMessage::Forget(_) | EscrowMessage::Close(_) => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_comm::attach::ContextHandles;
    use std::os::fd::OwnedFd;

    fn copy() -> EscrowCopy {
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        EscrowCopy { descriptor: file(), process: file() }
    }

    fn group(group: u64, line: u64) -> EscrowMessage {
        let handles =
            ContextHandles { descriptor: 0, client: 1, subdevice: 2, channel_group: 3, channels: Vec::new() };
        EscrowMessage::Group { group, descriptor: line, handles }
    }

    fn queued(queue: &EscrowQueue) -> Vec<&EscrowMessage> {
        queue.waiting.iter().map(|(message, _)| message).collect()
    }

    #[test]
    fn message_revoked_before_it_was_sent_is_dropped_and_its_copy_returned() {
        let mut queue = EscrowQueue::default();
        queue.push(EscrowMessage::Descriptor(1), Some(copy()));
        queue.push(EscrowMessage::Descriptor(2), Some(copy()));
        queue.push(group(7, 1), None);
        queue.push(group(8, 2), None);
        assert!(queue.push(EscrowMessage::Forget(7), None).is_none());
        assert!(queue.push(EscrowMessage::Close(1), None).is_some());
        assert_eq!(queued(&queue), [&EscrowMessage::Descriptor(2), &group(8, 2)]);
    }

    #[test]
    fn sent_message_is_revoked_once_and_the_latest_descriptor_of_a_group_counts() {
        let mut queue = EscrowQueue::default();
        queue.push(EscrowMessage::Descriptor(1), Some(copy()));
        queue.push(group(7, 1), None);
        assert!(queue.pop_sent().is_some() && queue.pop_sent().is_none());
        queue.push(EscrowMessage::Descriptor(2), Some(copy()));
        queue.push(group(7, 2), None);
        queue.push(EscrowMessage::Close(1), None);
        queue.push(EscrowMessage::Forget(7), None);
        queue.push(EscrowMessage::Close(2), None);
        assert_eq!(queued(&queue), [&EscrowMessage::Close(1), &EscrowMessage::Forget(7)]);
        while queue.first().is_some() {
            queue.pop_sent();
        }
        queue.push(EscrowMessage::Forget(7), None);
        queue.push(EscrowMessage::Close(1), None);
        assert_eq!(queue.len(), 0);
    }
}
