use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use sluice_comm::{Name, REQUEST_LEN};
use sluice_hook_core::deadline_polling::Step;

use super::*;

#[test]
fn wait_for_an_answer_of_which_only_a_part_comes_ends_after_the_limit() {
    let (ours, mut theirs) = UnixStream::pair().expect("a connection");
    let socket = Socket::closed();
    socket.fd.set(ours.into());
    theirs.write_all(&[0; RESPONSE_LEN - 1]).expect("the first part");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            socket.answer(0, RequestKind::MemLimit, AnswerLimit::within(Duration::from_millis(300)))
        });
        let begun = Instant::now();
        while !waiting.is_finished() && begun.elapsed() < Duration::from_secs(3) {
            std::thread::yield_now();
        }
        let has_ended = waiting.is_finished();
        drop(theirs);
        assert!(has_ended, "it still waits for the rest");
        assert!(matches!(waiting.join(), Ok(Err(LinkError::Silent))));
    });
}

#[test]
fn thread_that_polls_for_an_answer_reads_it_and_notices_a_manager_that_gives_none() {
    let (ours, mut theirs) = UnixStream::pair().expect("a connection");
    let socket = Socket::closed();
    socket.fd.set(ours.into());
    let limit = AnswerLimit::within(Duration::from_millis(300));
    let answer = || socket.answer_or_arrival(0, RequestKind::Quota, limit, &Polling { has_come: false });
    let body = ResponseBody::Quota { quota_ms: 50.0 };
    theirs.write_all(&Response { id: 0, body }.encode()).expect("an answer");
    assert_eq!(answer().map(|read| read.map(|(body, _)| body)), Ok(Some(body)));
    assert!(matches!(answer(), Err(LinkError::Silent)));
}

/// A wait that polls, for something that has come or not.
struct Polling {
    has_come: bool,
}

impl Wait for Polling {
    fn next_step(&self, _now_ns: u64) -> Step {
        Step::Poll
    }

    fn has_come(&self) -> bool {
        self.has_come
    }
}

#[test]
fn wait_ends_without_an_answer_when_the_grant_has_come_but_reads_what_is_in_the_socket_first() {
    let (ours, mut theirs) = UnixStream::pair().expect("a connection");
    let socket = Socket::closed();
    let mut reader = ours.try_clone().expect("a copy");
    socket.fd.set(ours.into());
    let wait = || {
        let limit = AnswerLimit::within(Duration::from_secs(60));
        socket.answer_or_arrival(2, RequestKind::Quota, limit, &Polling { has_come: true })
    };
    let body = ResponseBody::Quota { quota_ms: 50.0 };
    theirs.write_all(&Response { id: 1, body }.encode()).expect("the answer to an earlier request");
    assert!(matches!(wait(), Ok(None)));
    reader.set_nonblocking(true).expect("a mode");
    assert!(reader.read(&mut [0]).is_err(), "the earlier answer has been read");
    reader.set_nonblocking(false).expect("a mode");
    theirs.write_all(&Response { id: 2, body }.encode()).expect("an answer");
    assert_eq!(wait().map(|read| read.map(|(body, _)| body)), Ok(Some(body)));
}

/// What an ATTACH returns to which a manager gives these answers after it has read the frame.
fn attach_answered(answers: &[(AttachStatus, u32)]) -> Result<usize, LinkError> {
    let (ours, theirs) = UnixStream::pair().expect("a connection");
    let socket = Socket::closed();
    socket.fd.set(ours.into());
    let identity = ClientIdentity { name: Name::new("a").expect("a name"), ordinal: 0, uuid: [0; 16] };
    let payload = identity.with_heartbeat(crate::channel_groups::Announcement::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            recv_with_fds(theirs.as_fd(), &mut [0; REQUEST_LEN]).expect("the frame");
            for (status, page_version) in answers {
                let body = ResponseBody::Attach { status: *status, page_version: *page_version };
                send_with_fds(theirs.as_fd(), &Response { id: 0, body }.encode(), &[]).expect("an answer");
            }
        });
        socket.attach(&identity, Channel::Memory, 0, &payload).map(|pages| pages.len())
    })
}

#[test]
fn attach_that_is_reported_as_pending_waits_for_the_next_answer() {
    use AttachStatus::{Ok as Attached, Pending, UnknownClient};
    let pending = (Pending, PAGE_VERSION);
    assert_eq!(attach_answered(&[pending, pending, pending, (Attached, PAGE_VERSION)]), Ok(0));
    let refused = LinkError::NotAdmitted { status: UnknownClient as i32 };
    assert_eq!(attach_answered(&[pending, (UnknownClient, PAGE_VERSION)]), Err(refused));
}

#[test]
fn attach_that_is_read_and_not_answered_shows_a_silent_manager() {
    assert_eq!(attach_answered(&[]), Err(LinkError::Silent));
    assert_eq!(attach_answered(&[(AttachStatus::Pending, PAGE_VERSION)]), Err(LinkError::Silent));
}

#[test]
fn attach_to_a_manager_without_room_that_has_closed_the_connection_reports_that() {
    let (ours, theirs) = UnixStream::pair().expect("a connection");
    let socket = Socket::closed();
    socket.fd.set(ours.into());
    let identity = ClientIdentity { name: Name::new("a").expect("a name"), ordinal: 0, uuid: [0; 16] };
    let payload = identity.with_heartbeat(crate::channel_groups::Announcement::default());
    let body = ResponseBody::Attach { status: AttachStatus::NoRoom, page_version: PAGE_VERSION };
    let answer = Response { id: UNREAD_REQUEST_ID, body }.encode();
    send_with_fds(theirs.as_fd(), &answer, &[]).expect("an answer");
    drop(theirs);
    let attached = socket.attach(&identity, Channel::Memory, 0, &payload);
    assert_eq!(attached.map(|pages| pages.len()), Err(LinkError::NoRoom));
}

#[test]
fn attach_that_cannot_be_sent_waits_for_no_answer_while_the_manager_keeps_the_connection() {
    let (ours, _theirs) = UnixStream::pair().expect("a connection");
    ours.shutdown(std::net::Shutdown::Write).expect("a connection that cannot be written");
    let socket = Socket::closed();
    socket.fd.set(ours.into());
    let identity = ClientIdentity { name: Name::new("a").expect("a name"), ordinal: 0, uuid: [0; 16] };
    let payload = identity.with_heartbeat(crate::channel_groups::Announcement::default());
    let attached = socket.attach(&identity, Channel::Memory, 0, &payload);
    assert_eq!(attached.map(|pages| pages.len()), Err(LinkError::Gone));
}
