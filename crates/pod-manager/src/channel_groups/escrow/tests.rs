use super::*;
use sluice_comm::attach::ContextHandles;

fn copy() -> EscrowCopy {
    let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    EscrowCopy { descriptor: file(), process: file() }
}

fn group(group: u64, descriptor: u64) -> EscrowMessage {
    let handles =
        ContextHandles { descriptor: 0, client: 1, subdevice: 2, channel_group: 3, channels: Vec::new() };
    EscrowMessage::Group { group, descriptor, handles }
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
