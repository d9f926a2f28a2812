use super::*;
use crate::announcement::Payload;
use sluice_comm::page::PAGE_VERSION;
use sluice_core::processes::Announcement;

fn pending(count: u64, uid: &str, wait_ns: u64) -> PendingAttaches {
    let mut pending = PendingAttaches::new(wait_ns, 100);
    for id in 0..count {
        let attach = Attach {
            request: 7,
            name: Name::new("client").unwrap(),
            channel: Channel::Token,
            used_bytes: 0,
            payload: Payload {
                claimed_pid: 0,
                page_version: PAGE_VERSION,
                announcement: Announcement::default(),
            },
        };
        pending.add(ConnectionId(id), attach, uid.to_owned(), id);
    }
    pending
}

#[test]
fn attach_waits_until_its_pod_is_a_client_or_its_time_is_up() {
    let mut waiting = pending(3, "a", 1_000_000);
    assert_eq!(waiting.next_deadline(), Some(1_000_000));
    assert!(waiting.take_known(|uid| uid == "b").is_empty());
    let due = waiting.take_due(1_000_000);
    assert!(matches!(due[..], [(ConnectionId(0), 7, Reason::UnknownPod { waited_ms: 1, .. })]));
    assert_eq!((waiting.take_known(|uid| uid == "a").len(), waiting.len()), (2, 0));
}

#[test]
fn one_pod_has_at_most_64_pending_attaches_and_none_without_a_time() {
    let waiting = pending(64, "a", 1_000_000);
    assert!(matches!(waiting.check("a"), Err(Reason::TooManyPending(_))));
    assert!(waiting.check("b").is_ok());
    assert!(matches!(pending(0, "a", 0).check("a"), Err(Reason::UnknownPod { waited_ms: 0, .. })));
}
