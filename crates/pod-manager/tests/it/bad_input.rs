//! Bad input: the connection is closed with a reason that names the peer, nothing changes, no other process is disturbed.

use crate::support::hook::{Hook, Line, payload};
use crate::support::peers::FakeProcess;
use crate::support::{MS, World, logs};
use sluice_comm::attach::ATTACH_VERSION;
use sluice_comm::{AttachStatus, Channel, Name, Request, RequestBody};
use sluice_sys::memfd;
use std::io::Write;
use std::os::fd::AsFd;

/// A world with a client that holds the token and memory, and one that waits: both must not notice anything.
struct Neighbours {
    world: World,
    holder: Hook,
    waiter: Hook,
}

impl Neighbours {
    fn new() -> Self {
        logs::collect();
        let world = World::new();
        let (mut holder, mut waiter) = (world.process("be-a"), world.process("be-b"));
        holder.want();
        holder.granted();
        assert!(holder.reserve(1000));
        waiter.want();
        world.settle();
        Self { world, holder, waiter }
    }

    fn stranger(&self) -> (FakeProcess, Line) {
        let process = self.world.peers.process();
        let line = Line::open(&self.world.socket(), &process, "be-a").unwrap();
        (process, line)
    }

    /// The peer's connection is closed for this reason, once, and the log says who it was; the others go on.
    fn closed_for(mut self, mut line: Line, process: &FakeProcess, reason: &str, says: &str) {
        assert!(line.is_closed());
        let counter = format!("sluice_refused_connections_total{{reason=\"{reason}\"}}");
        assert_eq!(self.world.metric(&counter), Some(1.0));
        let pid = format!("pid {}", process.pid);
        let lines = logs::lines_with(&["connection closed", &pid, reason, says]);
        assert!(!lines.is_empty(), "{:?}", logs::lines_with(&["connection closed"]));
        assert_eq!(self.holder.account().0, 1000);
        assert!(self.holder.page().deadline_ns() > self.world.clock.now());
        assert!(self.waiter.token.is_silent());
        self.world.clock.advance(MS);
        self.holder.give_back(1.0);
        assert_eq!(self.waiter.granted(), 50.0);
    }
}

#[test]
fn garbage_is_a_bad_frame() {
    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    line.stream.write_all(&[0xff; 80]).unwrap();
    neighbours.closed_for(line, &process, "bad_frame", "name length");
}

#[test]
fn a_name_that_fills_the_frame_is_a_bad_frame() {
    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    let mut frame = [b'n'; 80];
    frame[..8].copy_from_slice(&64u64.to_le_bytes());
    line.stream.write_all(&frame).unwrap();
    neighbours.closed_for(line, &process, "bad_frame", "64");
}

#[test]
fn a_name_too_long_for_its_request_is_a_bad_frame() {
    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    // 63 bytes fit beside REQ_MEM_LIMIT; with the type changed to REQ_QUOTA they do not.
    let name = Name::new(&"n".repeat(63)).unwrap();
    let mut frame = Request { name, id: 1, body: RequestBody::MemLimit }.encode().unwrap();
    frame[76..80].copy_from_slice(&0u32.to_le_bytes());
    line.stream.write_all(&frame).unwrap();
    neighbours.closed_for(line, &process, "bad_frame", "room for 47");
}

#[test]
fn an_unknown_type_and_an_impossible_time_are_bad_frames() {
    for at in [0, 1] {
        let neighbours = Neighbours::new();
        let (process, mut line) = neighbours.stranger();
        let quota = RequestBody::Quota { overuse_ms: 1.0, next_burst_ms: 1.0 };
        let mut frame = Request { name: line.name, id: 1, body: quota }.encode().unwrap();
        let header = 17 + line.name.len();
        if at == 0 {
            frame[header - 4..header].copy_from_slice(&77u32.to_le_bytes());
        } else {
            frame[header..header + 8].copy_from_slice(&(-1.0f64).to_le_bytes());
        }
        line.stream.write_all(&frame).unwrap();
        neighbours.closed_for(line, &process, "bad_frame", ["77", "overuse_ms"][at]);
    }
}

#[test]
fn connection_closed_in_the_middle_of_a_frame_is_reported() {
    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    line.stream.write_all(&[7; 30]).unwrap();
    line.stream.shutdown(std::net::Shutdown::Write).unwrap();
    neighbours.closed_for(line, &process, "closed_mid_frame", "middle");
}

#[test]
fn an_unknown_client_is_told_and_closed() {
    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    line.name = Name::new("stranger").unwrap();
    assert_eq!(line.attach(Channel::Token, 0).unwrap().0, AttachStatus::UnknownClient);
    neighbours.closed_for(line, &process, "unknown_client", "stranger");
}

#[test]
fn an_unknown_client_of_the_old_protocol_is_closed_on_the_unix_socket() {
    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    line.name = Name::new("stranger").unwrap();
    line.send(RequestBody::MemLimit);
    neighbours.closed_for(line, &process, "unknown_client", "stranger");
}

#[test]
fn a_known_client_of_the_old_protocol_is_served_on_the_unix_socket() {
    let neighbours = Neighbours::new();
    let (_, mut line) = neighbours.stranger();
    let answer = line.ask(RequestBody::MemLimit);
    assert!(matches!(answer, sluice_comm::ResponseBody::MemLimit { used: 1000, .. }), "{answer:?}");
}

#[test]
fn another_protocol_version_is_told_and_closed() {
    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    line.send_attach(ATTACH_VERSION + 1, Channel::Token, 0, &[payload().as_fd()]);
    assert_eq!(line.attach_answer().unwrap().0, AttachStatus::WrongVersion);
    neighbours.closed_for(line, &process, "wrong_version", "version 2, expected 1");
}

#[test]
fn a_payload_that_is_missing_unsealed_wrong_or_too_long_is_told_and_closed() {
    let unsealed = std::fs::File::open("/dev/null").unwrap();
    let wrong = memfd::sealed("attach", b"something else").unwrap();
    let long = memfd::sealed("attach", &[0; 1 << 20]).unwrap();
    let cases = [None, Some(unsealed.as_fd()), Some(wrong.as_fd()), Some(long.as_fd())];
    for fd in cases {
        let neighbours = Neighbours::new();
        let (process, mut line) = neighbours.stranger();
        line.send_attach(ATTACH_VERSION, Channel::Token, 0, fd.as_slice());
        assert_eq!(line.attach_answer().unwrap().0, AttachStatus::BadPayload);
        neighbours.closed_for(line, &process, "bad_payload", "payload");
    }
}

#[test]
fn declaration_of_more_memory_than_any_gpu_has_is_refused() {
    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    assert_eq!(line.attach(Channel::Memory, u64::MAX).unwrap().0, AttachStatus::BadPayload);
    neighbours.closed_for(line, &process, "bad_payload", "bytes in use");
}

#[test]
fn descriptors_that_nothing_names_and_descriptors_beside_other_requests_are_refused() {
    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    line.send_attach(ATTACH_VERSION, Channel::Token, 0, &[payload().as_fd(), payload().as_fd()]);
    assert_eq!(line.attach_answer().unwrap().0, AttachStatus::BadPayload);
    neighbours.closed_for(line, &process, "bad_payload", "2 descriptors, expected 1");

    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    let payload_fd = payload();
    line.send_attach(ATTACH_VERSION, Channel::Token, 0, &[payload_fd.as_fd(); 9]);
    assert_eq!(line.attach_answer().unwrap().0, AttachStatus::BadPayload);
    neighbours.closed_for(line, &process, "bad_payload", "9 descriptors, expected 1");

    let neighbours = Neighbours::new();
    let (process, line) = neighbours.stranger();
    let frame = Request { name: line.name, id: 1, body: RequestBody::MemLimit }.encode().unwrap();
    sluice_sys::socket::send_with_fds(line.stream.as_fd(), &frame, &[payload().as_fd()]).unwrap();
    neighbours.closed_for(line, &process, "bad_payload", "beside a request other than ATTACH and CONTEXTS");
}

#[test]
fn attaching_twice_is_not_allowed() {
    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    assert_eq!(line.attach(Channel::Memory, 0).unwrap().0, AttachStatus::Ok);
    assert_eq!(line.attach(Channel::Memory, 0).unwrap().0, AttachStatus::NotAllowed);
    neighbours.closed_for(line, &process, "not_allowed", "second ATTACH");
}

#[test]
fn one_process_cannot_be_two_clients() {
    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    assert_eq!(line.attach(Channel::Memory, 0).unwrap().0, AttachStatus::Ok);
    let mut second = Line::open(&neighbours.world.socket(), &process, "be-b").unwrap();
    assert_eq!(second.attach(Channel::Token, 0).unwrap().0, AttachStatus::NotAllowed);
    neighbours.closed_for(second, &process, "not_allowed", "be-b");
}

#[test]
fn requests_that_do_not_belong_here_are_refused() {
    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    line.send(RequestBody::Yield { used_ms: 1.0, overuse_ms: 0.0 });
    neighbours.closed_for(line, &process, "out_of_order", "before ATTACH");

    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    assert_eq!(line.attach(Channel::Memory, 0).unwrap().0, AttachStatus::Ok);
    line.send(RequestBody::Quota { overuse_ms: 0.0, next_burst_ms: 0.0 });
    neighbours.closed_for(line, &process, "out_of_order", "memory channel");
}

#[test]
fn more_than_sixteen_unanswered_requests_are_refused() {
    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    // A second process of the client that waits, so none of its requests is answered.
    line.name = Name::new("be-b").unwrap();
    assert_eq!(line.attach(Channel::Token, 0).unwrap().0, AttachStatus::Ok);
    for _ in 0..17 {
        line.send(RequestBody::Quota { overuse_ms: 0.0, next_burst_ms: 0.0 });
    }
    neighbours.closed_for(line, &process, "out_of_order", "too many QUOTA requests");
}

#[test]
fn peer_that_does_not_read_its_answers_is_closed() {
    let neighbours = Neighbours::new();
    let (process, mut line) = neighbours.stranger();
    assert_eq!(line.attach(Channel::Memory, 0).unwrap().0, AttachStatus::Ok);
    let frame = Request { name: line.name, id: 1, body: RequestBody::MemLimit }.encode().unwrap();
    // Until the manager's answers fill the socket's buffer and it gives up.
    while line.stream.write_all(&frame).is_ok() {}
    let lines = logs::lines_with(&["connection closed", &format!("pid {}", process.pid), "not_reading"]);
    neighbours.world.settle();
    assert_eq!(lines.len(), 1);
}

#[test]
fn connections_beyond_the_maximum_find_no_room() {
    let world = World::with(crate::support::CLIENTS, |config| config.max_connections = 2);
    let mut a = world.process("be-a");
    let mut third = Line::open(&world.socket(), &world.peers.process(), "be-a").unwrap();
    assert!(third.finds_no_room());
    assert!(a.reserve(1));
    assert_eq!(world.metric("sluice_refused_connections_total{reason=\"too_many\"}"), Some(1.0));
}

#[test]
fn new_connection_replaces_the_oldest_that_has_sent_nothing() {
    let world = World::with(crate::support::CLIENTS, |config| config.max_connections = 4);
    let mut a = world.process("be-a");
    let open = || Line::open(&world.socket(), &world.peers.process(), "be-b").unwrap();
    let (mut silent, mut half) = (open(), open());
    half.stream.write_all(&[7; 30]).unwrap();
    world.settle();
    let mut newcomer = open();
    newcomer.ask(RequestBody::MemLimit);
    assert!(silent.finds_no_room());
    let mut second = open();
    second.ask(RequestBody::MemLimit);
    assert!(half.finds_no_room());
    // A connection that has sent a request is not closed for others.
    assert!(open().finds_no_room());
    newcomer.ask(RequestBody::MemLimit);
    assert!(a.reserve(1));
    assert_eq!(world.metric("sluice_refused_connections_total{reason=\"too_many\"}"), Some(3.0));
}

#[test]
fn one_process_cannot_take_all_connections() {
    logs::collect();
    let world = World::with(crate::support::CLIENTS, |config| config.max_connections_per_process = 3);
    let process = world.peers.process();
    let open = || Line::open(&world.socket(), &process, "be-b").unwrap();
    let mut few: Vec<Line> = (0..3).map(|_| open()).collect();
    assert!(open().finds_no_room());
    let refused = || world.metric("sluice_refused_connections_total{reason=\"too_many_of_process\"}");
    assert_eq!(refused(), Some(1.0));
    let pid = format!("pid {}", process.pid);
    assert!(
        !logs::lines_with(&["connection closed", &pid, "too many connections of one process"]).is_empty()
    );
    world.process("be-a");
    // One that has left counts no more, and neither does one that the manager closed.
    drop(few.pop());
    few[0].stream.write_all(&[0xff; 80]).unwrap();
    assert!(few[0].is_closed());
    world.settle();
    few.extend([open(), open()]);
    for line in &mut few[1..] {
        line.ask(RequestBody::MemLimit);
    }
    assert_eq!(refused(), Some(1.0));
}

/// A TCP connection whose last descriptor takes minutes to close, or until the listener is closed: what it has sent is never read.
fn slow_to_close() -> (std::net::TcpListener, std::net::TcpStream) {
    use nix::sys::socket::{setsockopt, sockopt};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65_536]).is_ok() {}
    setsockopt(&stream, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 600 }).unwrap();
    (listener, stream)
}

/// A process that sends descriptors that are slow to close delays no other process.
fn slow_descriptors_delay_nobody(per_message: usize, in_order: bool) {
    let mut neighbours = Neighbours::new();
    let (_process, line) = neighbours.stranger();
    let mut listeners = Vec::new();
    let mut streams = Vec::new();
    for _ in 0..per_message {
        let (listener, stream) = slow_to_close();
        listeners.push(listener);
        streams.push(stream);
    }
    let frame = Request { name: line.name, id: 1, body: RequestBody::MemLimit }.encode().unwrap();
    let raw: Vec<i32> = streams.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
    let rights = [nix::sys::socket::ControlMessage::ScmRights(&raw)];
    let bytes = [std::io::IoSlice::new(&frame[..if in_order { frame.len() } else { 30 }])];
    let socket = std::os::fd::AsRawFd::as_raw_fd(&line.stream);
    nix::sys::socket::sendmsg::<()>(socket, &bytes, &rights, nix::sys::socket::MsgFlags::empty(), None)
        .unwrap();
    // The last close waits: most often in the manager, never in this test.
    std::thread::spawn(move || drop(streams));
    drop(line);
    // A question is given up long before the close ends. It is asked several times: the manager may read the frame only after the first.
    for _ in 0..20 {
        assert_eq!(neighbours.holder.account().0, 1000);
        neighbours.world.settle();
    }
    drop(listeners);
}

#[test]
fn descriptor_that_is_slow_to_close_delays_no_other_process() {
    slow_descriptors_delay_nobody(1, true);
}

#[test]
fn many_descriptors_that_are_slow_to_close_delay_no_other_process() {
    slow_descriptors_delay_nobody(12, true);
}

#[test]
fn descriptors_in_half_a_frame_that_are_slow_to_close_delay_no_other_process() {
    slow_descriptors_delay_nobody(12, false);
}
