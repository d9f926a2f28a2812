//! Messages for the node agent that were not sent yet, in order. The queue is never longer than what is controlled: a message that is
//! revoked before it was sent is dropped.

use super::EscrowCopy;
use sluice_comm::custody::Deposit;
use std::collections::{HashSet, VecDeque};

/// The queue, and what the node agent keeps already.
#[derive(Default)]
pub(super) struct EscrowQueue {
    waiting: VecDeque<(Deposit, Option<EscrowCopy>)>,
    /// Control descriptors that the node agent keeps, so that they have to be revoked.
    descriptors: HashSet<u64>,
    /// Groups that the node agent keeps.
    groups: HashSet<u64>,
}

impl EscrowQueue {
    /// Queues a message. Returns a copy that is not needed any more.
    pub(super) fn push(&mut self, message: Deposit, copy: Option<EscrowCopy>) -> Option<EscrowCopy> {
        let mut unneeded = None;
        match &message {
            Deposit::Line(_) => {}
            Deposit::Group { group, .. } => self.remove_group(*group),
            Deposit::Forget(group) => {
                self.remove_group(*group);
                if !self.groups.contains(group) {
                    return None;
                }
            }
            Deposit::Close(line) => {
                let concerns = |message: &Deposit| match message {
                    Deposit::Line(number) => number == line,
                    Deposit::Group { line: of_group, .. } => of_group == line,
                    Deposit::Forget(_) | Deposit::Close(_) => false,
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

    pub(super) fn first(&self) -> Option<&(Deposit, Option<EscrowCopy>)> {
        self.waiting.front()
    }

    /// Removes the first message, which was sent. Returns its copy.
    pub(super) fn pop_sent(&mut self) -> Option<EscrowCopy> {
        let (message, copy) = self.waiting.pop_front()?;
        // Whether it was kept before does not matter.
        let _ = match message {
            Deposit::Line(line) => self.descriptors.insert(line),
            Deposit::Group { group, .. } => self.groups.insert(group),
            Deposit::Forget(group) => self.groups.remove(&group),
            Deposit::Close(line) => self.descriptors.remove(&line),
        };
        copy
    }

    /// Removes all messages. Returns their copies.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = EscrowCopy> + '_ {
        self.waiting.drain(..).filter_map(|(_, copy)| copy)
    }

    fn remove_group(&mut self, group: u64) {
        self.waiting.retain(|(message, _)| match message {
            Deposit::Group { group: number, .. } => *number != group,
            Deposit::Line(_) | Deposit::Forget(_) | Deposit::Close(_) => true,
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

    fn group(group: u64, line: u64) -> Deposit {
        let handles =
            ContextHandles { descriptor: 0, client: 1, subdevice: 2, channel_group: 3, channels: Vec::new() };
        Deposit::Group { group, line, handles }
    }

    fn queued(queue: &EscrowQueue) -> Vec<&Deposit> {
        queue.waiting.iter().map(|(message, _)| message).collect()
    }

    #[test]
    fn message_revoked_before_it_was_sent_is_dropped_and_its_copy_returned() {
        let mut queue = EscrowQueue::default();
        queue.push(Deposit::Line(1), Some(copy()));
        queue.push(Deposit::Line(2), Some(copy()));
        queue.push(group(7, 1), None);
        queue.push(group(8, 2), None);
        assert!(queue.push(Deposit::Forget(7), None).is_none());
        assert!(queue.push(Deposit::Close(1), None).is_some());
        assert_eq!(queued(&queue), [&Deposit::Line(2), &group(8, 2)]);
    }

    #[test]
    fn sent_message_is_revoked_once_and_the_latest_descriptor_of_a_group_counts() {
        let mut queue = EscrowQueue::default();
        queue.push(Deposit::Line(1), Some(copy()));
        queue.push(group(7, 1), None);
        assert!(queue.pop_sent().is_some() && queue.pop_sent().is_none());
        queue.push(Deposit::Line(2), Some(copy()));
        queue.push(group(7, 2), None);
        queue.push(Deposit::Close(1), None);
        queue.push(Deposit::Forget(7), None);
        queue.push(Deposit::Close(2), None);
        assert_eq!(queued(&queue), [&Deposit::Close(1), &Deposit::Forget(7)]);
        while queue.first().is_some() {
            queue.pop_sent();
        }
        queue.push(Deposit::Forget(7), None);
        queue.push(Deposit::Close(1), None);
        assert_eq!(queue.len(), 0);
    }
}
