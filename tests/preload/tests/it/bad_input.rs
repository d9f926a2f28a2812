//! Peers and files that break the rules are refused with a reason, and other clients are not affected.
#![allow(clippy::unwrap_used, reason = "a test ends where its own means fail")]

use sluice_comm::attach::{ATTACH_VERSION, AttachPayload};
use sluice_comm::{AttachStatus, Channel, Name, Request, RequestBody, RequestKind, Response, ResponseBody};
use sluice_preload_tests::faulty_manager::{self, Flaw};
use sluice_preload_tests::gemini_peers::GeminiClient;
use sluice_preload_tests::waiting::TIMEOUT;
use sluice_preload_tests::{MIB, Node, Tenant, eventually, gemini_frames, shared};
use sluice_sys::{memfd, socket};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

const CLIENTS: &str = "2\ngood 0.5 1.0 67108864\nother 0.5 1.0 67108864\n";

/// A tenant with memory, a connection and kernels with checked results, which a faulty peer must not disturb.
struct Bystander {
    tenant: Tenant,
    used: f64,
}

impl Bystander {
    fn start(node: &Node) -> Self {
        let mut tenant = node.tenant("good", "tenant").start();
        tenant.expect("ready");
        assert!(tenant.ask(&format!("take alloc {}", 10 * MIB + 1)).starts_with("took"));
        assert_eq!(tenant.ask("launch 10 100"), "launched");
        let used = node.metric("sluice_memory_used_bytes", "good");
        Self { tenant, used }
    }

    #[track_caller]
    fn is_undisturbed(&mut self, node: &mut Node) {
        assert!(node.manager_runs(), "the manager has ended; its log: {}", node.manager_log());
        assert_eq!(node.metric("sluice_memory_used_bytes", "good"), self.used);
        assert_eq!(self.tenant.ask("launch 10 100"), "launched");
        assert_eq!(self.tenant.ask("sync"), "synced");
        assert_eq!(self.tenant.ask("check"), "right");
    }
}

fn connect(node: &Node) -> UnixStream {
    let stream = UnixStream::connect(node.socket()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// All bytes from the manager until it closes the connection.
#[track_caller]
fn until_closed(mut stream: UnixStream) -> Vec<u8> {
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the manager neither answers nor closes the connection: {error}"),
    }
    received
}

/// This process as the log names it: the peer.
fn ourselves() -> String {
    std::process::id().to_string()
}

fn attach(name: &str, version: u32, channel: Channel) -> [u8; 80] {
    let body = RequestBody::Attach { version, channel, used_bytes: 0 };
    Request { name: Name::new(name).unwrap(), id: 7, body }.encode().unwrap()
}

fn payload() -> OwnedFd {
    let payload =
        AttachPayload { pid: 1, device_ordinal: 0, device_uuid: [0; 16], contexts: Vec::new() }.encode();
    memfd::sealed("attach", &payload).unwrap()
}

/// Sends an ATTACH and returns the status of the answer, if there is one before the manager closes the connection.
fn attach_status(
    node: &Node,
    frame: &[u8; 80],
    descriptor: Option<OwnedFd>,
) -> (Option<AttachStatus>, UnixStream) {
    let stream = connect(node);
    let descriptors: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
    socket::send_with_fds(stream.as_fd(), frame, &descriptors).unwrap();
    let mut answer = [0; 40];
    let (length, _pages) = socket::recv_with_fds(stream.as_fd(), &mut answer).unwrap_or_default();
    if length < 40 {
        return (None, stream);
    }
    match Response::decode(&answer, RequestKind::Attach).unwrap().body {
        ResponseBody::Attach { status, .. } => (Some(status), stream),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_invalid_frame_ends_its_connection_and_is_logged_with_the_peer() {
    let _lock = shared();
    let mut node = Node::start(CLIENTS);
    let mut bystander = Bystander::start(&node);
    let mut oversized = gemini_frames::quota_request("good", 1, 0.0, 0.0);
    oversized[..8].copy_from_slice(&64_u64.to_le_bytes());
    let mut endless = oversized;
    endless[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut unterminated = gemini_frames::quota_request("good", 1, 0.0, 0.0);
    unterminated[12] = b'x';
    let mut nameless = [0; 80];
    nameless[13..17].copy_from_slice(&gemini_frames::QUOTA.to_le_bytes());
    for (what, frame) in [
        ("noise", [0xff; 80]),
        ("a name of 64 bytes", oversized),
        ("a name without end", endless),
        ("a name without NUL", unterminated),
        ("no name", nameless),
        ("an unknown type", gemini_frames::request("good", 1, 99, &[])),
        ("a time that is none", gemini_frames::quota_request("good", 1, f64::NAN, 0.0)),
        ("a negative time", gemini_frames::quota_request("good", 1, 0.0, -1.0)),
        ("an endless time", gemini_frames::quota_request("good", 1, f64::INFINITY, 0.0)),
    ] {
        let before = node.manager_log().len();
        let mut stream = connect(&node);
        stream.write_all(&frame).unwrap();
        assert_eq!(until_closed(stream), b"", "{what}");
        eventually(&format!("a log line about {what}"), || {
            node.manager_log()[before..].lines().any(|line| line.contains(&ourselves())).then_some(())
        });
        bystander.is_undisturbed(&mut node);
    }
}

#[test]
fn a_truncated_frame_changes_nothing_and_is_logged() {
    let _lock = shared();
    let mut node = Node::start(CLIENTS);
    let mut bystander = Bystander::start(&node);
    for length in [1, 8, 30, 79] {
        let before = node.manager_log().len();
        let mut stream = connect(&node);
        stream.write_all(&gemini_frames::memory_request("good", 1, MIB, true)[..length]).unwrap();
        drop(stream);
        eventually("a log line about the half frame", || {
            node.manager_log()[before..].lines().any(|line| line.contains(&ourselves())).then_some(())
        });
        bystander.is_undisturbed(&mut node);
    }
    let mut cut = GeminiClient::connect(node.tcp(), "good");
    cut.send(&gemini_frames::memory_request("good", 1, MIB, true)[..30]);
    drop(cut);
    bystander.is_undisturbed(&mut node);
}

#[test]
fn split_and_joined_frames_are_answered_one_by_one() {
    let _lock = shared();
    let node = Node::start(CLIENTS);
    let mut client = GeminiClient::connect(node.tcp(), "other");
    for byte in gemini_frames::memory_request("other", 1, MIB, true) {
        client.send(&[byte]);
    }
    assert_eq!(client.answer().map(|answer| gemini_frames::i32_at(&answer, 4)), Some(1));
    let two = [
        gemini_frames::memory_request("other", 2, MIB, true),
        gemini_frames::request("other", 3, gemini_frames::MEM_LIMIT, &[]),
    ];
    client.send(&two.concat());
    assert_eq!(client.answer().map(|answer| gemini_frames::i32_at(&answer, 0)), Some(2));
    assert_eq!(client.answer().map(|answer| gemini_frames::u64_at(&answer, 4)), Some(2 * MIB));
}

#[test]
fn an_invalid_attach_is_refused_with_its_reason() {
    let _lock = shared();
    let mut node = Node::start(CLIENTS);
    let mut bystander = Bystander::start(&node);
    let good = || attach("good", ATTACH_VERSION, Channel::Token);
    let garbage = || memfd::sealed("attach", b"this is not an attach payload").unwrap();
    let unsealed = || OwnedFd::from(tempfile::tempfile().unwrap());
    for (what, frame, descriptor, expected) in [
        (
            "an unknown name",
            attach("absent", ATTACH_VERSION, Channel::Token),
            Some(payload()),
            AttachStatus::UnknownClient,
        ),
        ("another version", attach("good", 77, Channel::Token), Some(payload()), AttachStatus::WrongVersion),
        ("no payload", good(), None, AttachStatus::BadPayload),
        ("garbage", good(), Some(garbage()), AttachStatus::BadPayload),
        ("a payload that may change", good(), Some(unsealed()), AttachStatus::BadPayload),
    ] {
        let before = node.manager_log().len();
        let (status, stream) = attach_status(&node, &frame, descriptor);
        assert_eq!(status, Some(expected), "{what}");
        until_closed(stream);
        eventually(&format!("a log line about {what}"), || {
            node.manager_log()[before..].lines().any(|line| line.contains(&ourselves())).then_some(())
        });
        bystander.is_undisturbed(&mut node);
    }
    node.logged(&["absent", &ourselves()]);
}

#[test]
fn an_unknown_client_runs_without_limits_and_is_logged() {
    let _lock = shared();
    let mut node = Node::start(CLIENTS);
    let mut bystander = Bystander::start(&node);
    let tenant = node.tenant("unheard-of", "launches").arguments("kernel 10").start();
    let pid = tenant.pid().to_string();
    tenant.finish().expect_success();
    node.logged(&["unheard-of", &pid]);
    bystander.is_undisturbed(&mut node);
}

#[test]
fn invalid_resource_files_are_reported_and_the_previous_limits_stay() {
    let _lock = shared();
    let mut node = Node::start(CLIENTS);
    let mut bystander = Bystander::start(&node);
    for (file, named) in [
        ("2\ngood 1.7 1.0 1\nother 0.5 -1.0 1\n", vec!["good", "other"]),
        ("2\ngood 0.9 1.0 1\nother 0.9 1.0 1\n", vec!["1.8"]),
        ("1\ngood 0.5 0.2 1\n", vec!["good"]),
        ("1\ngood abc 1.0 1\n", vec!["good", "abc"]),
        ("3\ngood 0.5 1.0 1\n", vec!["3"]),
        ("2\ngood 0.2 1.0 1\ngood 0.3 1.0 1\n", vec!["good"]),
        (
            "clients:\n  - { name: good, request: 0.5, limit: 2.0, memory: 1Gi, colour: red }\n",
            vec!["colour"],
        ),
        ("", vec![]),
    ] {
        let before = node.manager_log().len();
        node.write_resources(file);
        eventually(&format!("a complaint about {file:?} that names {named:?}"), || {
            let log = node.manager_log()[before..].to_owned();
            (!log.is_empty() && named.iter().all(|name| log.contains(name))).then_some(())
        });
        assert_eq!(node.metric("sluice_memory_limit_bytes", "good"), 67_108_864.0);
        bystander.is_undisturbed(&mut node);
    }
    // A valid file is used.
    node.write_resources(&CLIENTS.replace("67108864", "134217728"));
    eventually("the new limit", || {
        (node.metric("sluice_memory_limit_bytes", "good") == 134_217_728.0).then_some(())
    });
    bystander.is_undisturbed(&mut node);
}

#[test]
fn a_faulty_manager_does_not_stop_a_fail_open_tenant() {
    let _lock = shared();
    let node = Node::with(CLIENTS).without_manager().start();
    for flaw in faulty_manager::FLAWS {
        let socket = node.path().join(format!("{flaw:?}.sock"));
        let answered = faulty_manager::serve(&socket, flaw);
        let tenant = node
            .tenant("good", "launches")
            .arguments("kernel 50")
            .environment("SLUICE_SOCKET", socket)
            .environment("SLUICE_ON_MANAGER_LOSS", "open")
            .start();
        let ending = tenant.finish();
        assert_eq!(ending.code(), Some(0), "{flaw:?}: {}", ending.errors);
        assert!(answered.load(Ordering::SeqCst) >= 1, "{flaw:?}: it was never asked");
    }
}

#[test]
fn a_fail_closed_tenant_refuses_pages_of_another_version() {
    let _lock = shared();
    let node = Node::with(CLIENTS).without_manager().start();
    for flaw in [Flaw::AnnouncesOtherVersion, Flaw::PagesOfOtherVersion, Flaw::PagesOfZeroes] {
        let socket = node.path().join(format!("{flaw:?}.sock"));
        let answered = faulty_manager::serve(&socket, flaw);
        let mut tenant = node
            .tenant("good", "tenant")
            .environment("SLUICE_SOCKET", socket)
            .environment("SLUICE_ON_MANAGER_LOSS", "closed")
            .start();
        tenant.expect("ready");
        tenant.send("spin 1 100");
        eventually("several attempts to attach", || (answered.load(Ordering::SeqCst) >= 3).then_some(()));
        assert_eq!(node.row(&tenant).kernels_submitted, 0, "{flaw:?}");
    }
}
