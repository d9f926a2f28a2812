//! Doorbells: who is listened to, and until when.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use sluice_comm::attach::{ATTACH_VERSION, AttachPayload};
use sluice_comm::{Channel, RequestKind};
use sluice_sys::memfd;
use std::os::fd::AsFd;
use support::hook::{Hook, Line};
use support::steered::{quiet, steered, two};
use support::{MS, World, logs, until};

/// What is logged of a process that is not listened to any more.
fn silenced(hook: &Hook) -> usize {
    let pid = format!("pid {}", hook.process.pid);
    logs::lines_with(&[&pid, "is not listened to any more"]).len()
}

/// Rings until the manager does not listen any more, or so often, each time with this pause; how often.
fn rings(world: &World, hook: &Hook, most: u32, pause_ns: u64) -> u32 {
    let before = silenced(hook);
    for rang in 1..=most {
        nix::unistd::write(&hook.doorbell, &1_u64.to_ne_bytes()).unwrap();
        world.clock.pass(pause_ns);
        // Rings that come together count as one.
        std::thread::yield_now();
        if rang % 1_000 == 0 && silenced(hook) > before {
            return rang;
        }
    }
    most
}

/// It rings until it is not listened to any more; how often.
fn is_found_out(world: &World, hook: &Hook) -> u32 {
    let often = rings(world, hook, 1_000_000, 0);
    assert!((10_000..1_000_000).contains(&often), "{often}");
    often
}

/// A process opens its token channel anew, with a hook that knows of no doorbells.
fn attaches_without_doorbell(world: &World, hook: &Hook) -> Line {
    let mut line = Line::open(&world.socket(), &hook.process, "be-a").unwrap();
    let payload = AttachPayload { pid: 1, device_ordinal: 0, device_uuid: [1; 16], contexts: Vec::new() };
    let payload = memfd::sealed("attach", &payload.encode_first()).unwrap();
    line.send_attach(ATTACH_VERSION, Channel::Token, 0, &[payload.as_fd()]);
    line.receive(RequestKind::Attach).unwrap();
    line
}

#[test]
fn who_rings_for_nothing_is_not_listened_to_for_ever() {
    logs::collect();
    let world = World::new();
    let ((a, _a), (b, _bd)) = two(&world);
    assert!(!a.page().armed() && !b.page().armed());
    let often = is_found_out(&world, &a);
    a.becomes(false, world.clock.now());
    world.advance(3 * MS);
    quiet(&world);
    assert_eq!(world.driver.group(2), (true, 2048));
    // What was a while ago is forgiven.
    assert!(!b.page().armed());
    assert_eq!(rings(&world, &b, 2 * often, MS), 2 * often);
}

#[test]
fn who_is_asked_to_ring_and_does_so_for_nothing_is_not_listened_to_for_ever() {
    logs::collect();
    let world = World::new();
    let (_be, lc) = (world.process("be-a"), world.process("lc"));
    until("it is to ring", || lc.page().armed());
    is_found_out(&world, &lc);
    // One whose groups are controlled is asked to as well.
    let (a, _a) = steered(&world, "be-b", &[1]);
    until("it is to ring", || a.page().armed());
    is_found_out(&world, &a);
}

#[test]
fn who_rings_for_each_of_thousands_of_requests_a_second_is_listened_to() {
    logs::collect();
    let world = World::new();
    let (a, _a) = steered(&world, "be-a", &[1]);
    for _ in 0..20_000 {
        // What it does is over before anybody looks, nearly always.
        world.clock.rest();
        if !a.page().armed() {
            world.clock.pass(25 * MS);
            world.clock.rest();
        }
        a.report().set_activity(true, world.clock.now());
        a.report().set_activity(false, world.clock.now());
        nix::unistd::write(&a.doorbell, &1_u64.to_ne_bytes()).unwrap();
        world.clock.pass(200_000);
    }
    assert_eq!(silenced(&a), 0);
}

#[test]
fn who_is_latency_critical_no_more_is_not_asked_to_ring_for_ever() {
    let world = World::new();
    let (_be, lc) = (world.process("be-a"), world.process("lc"));
    until("it is to ring", || lc.page().armed());
    let best_effort = support::CLIENTS.replace(", class: latency-critical", "");
    std::fs::write(&world.file, best_effort).unwrap();
    until("nobody waits for it", || !lc.page().armed());
}

#[test]
fn a_doorbell_that_was_given_up_is_not_heard_and_the_one_after_it_is() {
    logs::collect();
    let world = World::new();
    let be = world.process("be-a");
    let _line = attaches_without_doorbell(&world, &be);
    for _ in 0..10_500 {
        // Each would be a round of its own.
        rings(&world, &be, 1, 0);
        world.clock.rest();
    }
    assert_eq!(silenced(&be), 0, "it is not heard");
    let again = Hook::attach(&world.socket(), &be.process, "be-a", 0).unwrap();
    is_found_out(&world, &again);
}

#[test]
fn who_is_not_listened_to_any_more_wins_nothing_by_attaching_anew() {
    logs::collect();
    let world = World::new();
    let be = world.process("be-a");
    rings(&world, &be, 1_000_000, 0);
    let _line = attaches_without_doorbell(&world, &be);
    let again = Hook::attach(&world.socket(), &be.process, "be-a", 0).unwrap();
    rings(&world, &again, 1_000_000, 0);
    assert_eq!(silenced(&be), 2);
}
