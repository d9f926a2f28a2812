//! The heartbeat on the pages, and what the manager does after it has missed its own: on a clock that the test moves.

use crate::support::driver::Call;
use crate::support::group_processes::{process_with_groups, quiet, two, works};
use crate::support::hook::{Hook, Line};
use crate::support::{CLIENTS, MS, World};
use sluice_comm::attach::{ATTACH_VERSION, AttachPayload};
use sluice_comm::page::{GrantView, UNLIMITED};
use sluice_comm::{AttachStatus, Channel, RequestKind, ResponseBody};
use sluice_sys::memfd;
use sluice_sys::page::{Access, SharedPage};
use sluice_sys::socket::recv_with_fds;
use std::os::fd::AsFd;
use std::time::Duration;

/// A manager that counts as stopped after 200 ms, as it is by default.
fn world() -> World {
    World::with(CLIENTS, |config| config.missed_heartbeat = Duration::from_millis(200))
}

/// GPU time charged, milliseconds.
fn charged(world: &World, client: &str) -> f64 {
    let seconds = world.metric(&format!("sluice_gpu_seconds_total{{client=\"{client}\"}}"));
    (seconds.unwrap() * 1e3).round()
}

/// The manager does not run for 4 s, and then does what is due.
fn stop(world: &World) {
    world.clock.pass(4_000 * MS);
    world.clock.rest();
    quiet(world);
}

#[test]
fn heartbeat_is_written_every_50_ms_while_a_process_is_attached() {
    let world = world();
    world.settle();
    assert_eq!(world.clock.armed(), None, "without clients the manager is not woken");
    let be = world.process("be-a");
    assert_eq!(be.page().heartbeat_ns(), world.clock.now());
    for _ in 0..100 {
        world.clock.rest();
        let due = world.clock.armed().expect("a deadline");
        assert!(due - world.clock.now() <= 50 * MS);
        world.advance(due - world.clock.now());
        assert_eq!(be.page().heartbeat_ns(), world.clock.now());
    }
    drop(be);
    crate::support::until("the process to be gone", || {
        world.clock.rest();
        world.clock.armed().is_none()
    });
}

#[test]
fn page_of_the_second_version_has_no_heartbeat() {
    let world = world();
    let process = world.peers.process();
    let mut line = Line::open(&world.socket(), &process, "be-a").unwrap();
    let payload = AttachPayload { pid: 1, device_ordinal: 0, device_uuid: [1; 16], contexts: Vec::new() };
    let payload = memfd::sealed("attach", &payload.encode_second()).unwrap();
    line.send_attach(ATTACH_VERSION, Channel::Token, 0, &[payload.as_fd()]);
    let mut frame = [0; 40];
    let (_, fds) = recv_with_fds(line.stream.as_fd(), &mut frame).unwrap();
    let answer = sluice_comm::Response::decode(&frame, RequestKind::Attach).unwrap();
    assert_eq!(answer.body, ResponseBody::Attach { status: AttachStatus::Ok, page_version: 2 });
    assert_eq!(fds.len(), 3, "it has a wake-up eventfd");
    let page = SharedPage::map(fds[0].as_fd(), Access::ReadOnly).unwrap();
    world.advance(50 * MS);
    let page = GrantView::new(page.words());
    assert_eq!((page.check(), page.heartbeat_ns()), (Ok(()), 0));
}

#[test]
fn after_a_stop_all_groups_are_set_anew_and_the_time_is_exported_in_equal_parts() {
    let world = world();
    let ((_a, _ad), (_b, _bd)) = two(&world);
    let before = charged(&world, "be-a");
    assert_eq!((world.driver.group(1), world.driver.group(2)), ((true, 2048), (false, 2048)));
    world.driver.take_calls();
    // The hook of the disabled process enables it.
    world.driver.set_group(2, (true, 2048));
    stop(&world);
    let enabled = [1, 2].map(|group| world.driver.group(group).0);
    assert_eq!(enabled.iter().filter(|enabled| **enabled).count(), 1, "{:?}", world.driver.calls());
    assert!(world.driver.calls().iter().any(|call| matches!(call, Call::Stop(_))));
    // Both worked during the 4 s.
    let (a, b) = (charged(&world, "be-a") - before, charged(&world, "be-b"));
    assert!((a - 2_000.0).abs() <= 60.0 && (b - 2_000.0).abs() <= 60.0, "{a} and {b} ms");
}

#[test]
fn time_after_a_stop_is_exported_although_hooks_have_begun_their_bursts_anew() {
    let world = world();
    let ((a, _ad), (b, _bd)) = two(&world);
    let both = || ["be-a", "be-b"].map(|client| charged(&world, client));
    let second = || {
        for _ in 0..20 {
            world.advance(50 * MS);
            quiet(&world);
        }
    };
    second();
    let before = both();
    for hook in [&a, &b] {
        hook.report().set_activity(false, world.clock.now());
        hook.report().set_activity(true, world.clock.now() + 3_999 * MS);
    }
    stop(&world);
    let after = both();
    for (before, after) in before.into_iter().zip(after) {
        assert!((after - before - 2_000.0).abs() <= 60.0, "{before} before and {after} ms after the stop");
    }
    second();
    let gained: f64 = both().into_iter().sum::<f64>() - after.into_iter().sum::<f64>();
    assert!((gained - 1_000.0).abs() <= 60.0, "{gained} ms of the second after the stop");
}

#[test]
fn pause_shorter_than_the_bound_changes_no_group() {
    let world = world();
    let (a, _a) = process_with_groups(&world, "be-a", &[1]);
    works(&world, &a);
    world.driver.take_calls();
    world.advance(199 * MS);
    quiet(&world);
    assert_eq!(world.driver.calls(), []);
    assert_eq!(a.page().deadline_ns(), UNLIMITED);
}

#[test]
fn grant_is_not_charged_for_a_stop_while_an_older_process_waits() {
    let world = world();
    let (mut a, mut b) = (world.process("be-a"), world.process("be-b"));
    b.want();
    b.granted();
    a.want();
    stop(&world);
    assert_eq!(a.granted(), 50.0);
    b.want();
    world.settle();
    world.advance(50 * MS);
    a.give_back(50.0);
    a.want();
    world.settle();
    assert!(!b.token.is_silent(), "with the smaller virtual time it is next");
}

#[test]
fn tokens_are_granted_again_after_a_stop_and_the_time_is_not_charged() {
    let world = world();
    let (mut a, mut b) = (world.process("be-a"), world.process("be-b"));
    a.want();
    a.granted();
    b.want();
    stop(&world);
    assert_eq!(a.page().deadline_ns(), 0, "its grant is lost");
    assert_eq!(b.granted(), 50.0);
    assert!(charged(&world, "be-a") <= 50.0, "{}", charged(&world, "be-a"));
    assert_eq!(world.metric("sluice_grants_not_returned_total{client=\"be-a\"}"), Some(0.0));
    // What it returns late has no effect.
    a.give_back(30.0);
    a.want();
    world.settle();
    b.give_back(50.0);
    assert_eq!(a.granted(), 50.0);
}

#[test]
fn process_that_attaches_after_a_long_time_without_clients_is_no_sign_of_a_stop() {
    let world = world();
    let be = world.process("be-a");
    drop(be);
    crate::support::until("the process to be gone", || {
        world.clock.rest();
        world.clock.armed().is_none()
    });
    world.advance(3_600_000 * MS);
    let be: Hook = world.process("be-a");
    assert_eq!(be.page().heartbeat_ns(), world.clock.now());
}
