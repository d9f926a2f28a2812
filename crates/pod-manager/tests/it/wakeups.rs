//! Wake-ups: which ones the manager accepts.

use crate::support::group_processes::{process_with_groups, quiet, two};
use crate::support::hook::{Hook, Line};
use crate::support::{MS, World, logs, until};
use sluice_comm::attach::{ATTACH_VERSION, AttachPayload};
use sluice_comm::{Channel, RequestKind};
use sluice_sys::memfd;
use std::os::fd::AsFd;

/// How often the log reports that wake-ups of a process are ignored.
fn ignored(hook: &Hook) -> usize {
    let pid = format!("pid {}", hook.process.pid);
    logs::lines_with(&[&pid, "its wake-ups are ignored"]).len()
}

/// Wakes the manager until it ignores that, at most `most` times, each time with this pause. Returns how often.
fn wake(world: &World, hook: &Hook, most: u32, pause_ns: u64) -> u32 {
    // Reading the log of all tests takes long, so a few wake-ups are not checked.
    let before = if most < 1_000 { 0 } else { ignored(hook) };
    for count in 1..=most {
        nix::unistd::write(&hook.eventfd, &1_u64.to_ne_bytes()).unwrap();
        world.clock.pass(pause_ns);
        // Wake-ups that come together count as one.
        std::thread::yield_now();
        if count % 1_000 == 0 && ignored(hook) > before {
            return count;
        }
    }
    most
}

/// Wakes the manager until it ignores that. Returns how often.
fn wake_until_ignored(world: &World, hook: &Hook) -> u32 {
    let often = wake(world, hook, 1_000_000, 0);
    assert!((10_000..1_000_000).contains(&often), "{often}");
    often
}

/// A process opens its token channel anew, with a hook that knows no wake-up eventfd.
fn attach_without_eventfd(world: &World, hook: &Hook) -> Line {
    let mut line = Line::open(&world.socket(), &hook.process, "be-a").unwrap();
    let payload = AttachPayload { pid: 1, device_ordinal: 0, device_uuid: [1; 16], contexts: Vec::new() };
    let payload = memfd::sealed("attach", &payload.encode_first()).unwrap();
    line.send_attach(ATTACH_VERSION, Channel::Token, 0, &[payload.as_fd()]);
    line.receive(RequestKind::Attach).unwrap();
    line
}

#[test]
fn unrequested_wakeups_above_the_limit_are_ignored() {
    logs::collect();
    let world = World::new();
    let ((a, _a), (b, _bd)) = two(&world);
    assert!(!a.page().wakeup_requested() && !b.page().wakeup_requested());
    let often = wake_until_ignored(&world, &a);
    a.becomes(false, world.clock.now());
    world.advance(3 * MS);
    quiet(&world);
    assert_eq!(world.driver.group(2), (true, 2048));
    // The limiter refills.
    assert!(!b.page().wakeup_requested());
    assert_eq!(wake(&world, &b, 2 * often, MS), 2 * often);
}

#[test]
fn requested_wakeups_without_activity_above_the_limit_are_ignored() {
    logs::collect();
    let world = World::new();
    let (a, _a) = process_with_groups(&world, "be-b", &[1]);
    until("wake-ups are requested", || a.page().wakeup_requested());
    wake_until_ignored(&world, &a);
}

#[test]
fn wakeups_for_thousands_of_requests_a_second_are_accepted() {
    logs::collect();
    let world = World::new();
    let (a, _a) = process_with_groups(&world, "be-a", &[1]);
    for _ in 0..20_000 {
        // Its work nearly always ends before the manager reads the page.
        world.clock.rest();
        if !a.page().wakeup_requested() {
            world.clock.pass(25 * MS);
            world.clock.rest();
        }
        a.report().set_activity(true, world.clock.now());
        a.report().set_activity(false, world.clock.now());
        nix::unistd::write(&a.eventfd, &1_u64.to_ne_bytes()).unwrap();
        world.clock.pass(200_000);
    }
    assert_eq!(ignored(&a), 0);
}

#[test]
fn replaced_eventfd_is_ignored_and_its_successor_is_polled() {
    logs::collect();
    let world = World::new();
    let be = world.process("be-a");
    let _line = attach_without_eventfd(&world, &be);
    for _ in 0..10_500 {
        // Each would be a round of its own.
        wake(&world, &be, 1, 0);
        world.clock.rest();
    }
    assert_eq!(ignored(&be), 0, "its wake-ups have no effect");
    let again = Hook::attach(&world.socket(), &be.process, "be-a", 0).unwrap();
    wake_until_ignored(&world, &again);
}

#[test]
fn attaching_anew_does_not_refill_the_limit_of_wakeups() {
    logs::collect();
    let world = World::new();
    let be = world.process("be-a");
    wake(&world, &be, 1_000_000, 0);
    let _line = attach_without_eventfd(&world, &be);
    let again = Hook::attach(&world.socket(), &be.process, "be-a", 0).unwrap();
    wake(&world, &again, 1_000_000, 0);
    assert_eq!(ignored(&be), 2);
}
