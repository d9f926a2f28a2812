//! Gates of best-effort processes beside latency-critical ones, over real sockets, pages and futexes.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use sluice_comm::RequestBody;
use sluice_comm::page::{grant, report};
use sluice_pod_manager::GatesOf;
use sluice_sys::futex::{self, Wake};
use std::os::fd::AsFd;
use support::driver::{Descriptor, context};
use support::hook::{Hook, PATIENCE};
use support::steered::quiet;
use support::{MS, World, until};

const CLOSED: u32 = grant::GATES_WANTED | grant::GATE_CLOSED;

/// What a gate is told, without the count of its changes.
fn told(hook: &Hook) -> u32 {
    hook.page().gate_word() & CLOSED
}

fn gpu_ms(world: &World, client: &str) -> f64 {
    let seconds = world.metric(&format!("sluice_gpu_seconds_total{{client=\"{client}\"}}"));
    (seconds.unwrap() * 1e3).round()
}

#[test]
fn gates_are_wanted_while_somebody_latency_critical_is_there_and_closed_while_it_is_busy() {
    let world = World::new();
    let be = world.process("be-a");
    assert_eq!(told(&be), 0);
    let lc = world.process("lc");
    until("gates are wanted", || told(&be) == grant::GATES_WANTED);
    assert!(lc.page().armed(), "it is to ring");
    lc.becomes(true, world.clock.now());
    until("the gates are closed", || told(&be) == CLOSED);
    assert_eq!(told(&lc), 0);
    assert_eq!(world.metric("sluice_gate_closed"), Some(1.0));
    // A moment after its last work is over.
    world.clock.advance(3 * MS);
    lc.becomes(false, world.clock.now());
    world.advance(400_000);
    assert_eq!(told(&be), CLOSED);
    world.advance(100_000);
    assert_eq!(told(&be), grant::GATES_WANTED);
    assert_eq!(world.metric("sluice_gate_closed"), Some(0.0));
    assert_eq!(world.metric("sluice_gate_changes_total{to=\"closed\"}"), Some(1.0));
    drop(lc);
    until("no gates are wanted", || told(&be) == 0);
}

fn announce(hook: &mut Hook, lead_us: u32) {
    hook.token.send(RequestBody::Hint { lead_us });
}

#[test]
fn a_request_that_is_announced_finds_the_gates_closed_and_one_that_does_not_come_has_them_opened() {
    let world = World::new();
    let (mut be, mut lc) = (world.process("be-a"), world.process("lc"));
    until("gates are wanted", || told(&be) == grant::GATES_WANTED);
    announce(&mut lc, 200);
    until("the gates are closed", || told(&be) == CLOSED);
    be.want();
    world.settle();
    assert!(be.token.is_silent(), "tokens are withheld as well");
    // 200 us, and 500 for being late.
    world.advance(699_000);
    assert_eq!(told(&be), CLOSED);
    world.advance(1_000);
    assert_eq!(told(&be), grant::GATES_WANTED);
    be.granted();
    // One that comes is what they are closed for from then on, as long as it lasts. It may be announced on the page.
    assert!(lc.page().armed());
    announce_on_page(&lc, 0, world.clock.now() + MS / 5);
    until("the gates are closed", || told(&be) == CLOSED);
    world.clock.advance(MS / 5);
    lc.becomes(true, world.clock.now());
    world.advance(5 * MS);
    assert_eq!(told(&be), CLOSED);
    lc.becomes(false, world.clock.now());
    world.advance(MS);
    assert_eq!(told(&be), grant::GATES_WANTED);
    // It may be read when its time has come, and the work has not.
    until("it rings", || lc.page().armed());
    announce_on_page(&lc, 0, world.clock.now() - MS / 10);
    until("the gates are closed", || told(&be) == CLOSED);
}

#[test]
fn announcements_close_no_gates_for_long_if_nothing_follows_nor_for_somebody_best_effort() {
    let world = World::new();
    let (mut be, mut lc) = (world.process("be-a"), world.process("lc"));
    let other = world.process("be-b");
    until("gates are wanted", || told(&be) == grant::GATES_WANTED);
    announce(&mut be, 1000);
    world.settle();
    assert_eq!((told(&be), told(&other)), (grant::GATES_WANTED, grant::GATES_WANTED));
    let mut closed_ns = 0;
    for _ in 0..200 {
        announce(&mut lc, 2000);
        world.settle();
        closed_ns += if told(&other) == CLOSED { MS } else { 0 };
        world.advance(MS);
    }
    assert!((9 * MS..=14 * MS).contains(&closed_ns), "{closed_ns} ns of 200 ms");
}

/// Announces a request on the page, and rings. A hook may say when it did that.
fn announce_on_page(hook: &Hook, said_ns: u64, at_ns: u64) {
    hook.report().announce(said_ns, at_ns);
    nix::unistd::write(&hook.doorbell, &1_u64.to_ne_bytes()).unwrap();
}

/// Announces a request 2 ms ahead, one way or the other.
fn announce_for(hook: &mut Hook, on_page: bool, at_ns: u64) {
    if on_page {
        announce_on_page(hook, 0, at_ns);
    } else {
        announce(hook, 2000);
    }
}

#[test]
fn a_request_that_is_over_before_its_announcement_is_read_was_not_announced_in_vain() {
    let world = World::new();
    let (be, mut lc) = (world.process("be-a"), world.process("lc"));
    until("gates are wanted", || told(&be) == grant::GATES_WANTED);
    for on_page in [false, true] {
        for _ in 0..20 {
            // It comes earlier than it said that it would.
            world.clock.rest();
            let said = world.clock.now();
            lc.report().set_activity(true, said + 100_000);
            lc.report().set_activity(false, said + 200_000);
            world.clock.pass(300_000);
            announce_for(&mut lc, on_page, said + 2 * MS);
            world.settle();
            world.advance(5 * MS);
            assert_eq!(told(&be), grant::GATES_WANTED);
        }
        // What is read at once is believed still.
        announce_for(&mut lc, on_page, world.clock.now() + 2 * MS);
        until("the gates are closed", || told(&be) == CLOSED);
        world.advance(5 * MS);
    }
}

#[test]
fn a_page_that_says_when_it_was_written_is_believed_though_a_request_has_just_ended() {
    let world = World::new();
    let (be, lc) = (world.process("be-a"), world.process("lc"));
    until("gates are wanted", || told(&be) == grant::GATES_WANTED);
    let closed_at = |said: Option<u64>| {
        // What it has done is over for 600 us, and the gates are open, when it announces another request 1 ms ahead.
        world.clock.rest();
        let begun = world.clock.now();
        lc.report().set_activity(true, begun + 100_000);
        lc.report().set_activity(false, begun + 200_000);
        world.clock.pass(800_000);
        announce_on_page(&lc, said.map_or(0, |said| begun + said), begun + 2 * MS);
        world.settle();
        let closed = told(&be) == CLOSED;
        world.advance(5 * MS);
        closed
    };
    assert!(closed_at(Some(300_000)));
    assert!(!closed_at(Some(199_000)), "that may have been it");
    assert!(!closed_at(None), "nor is it known of a page that does not say");
}

#[test]
fn who_waits_for_its_gate_is_woken_at_each_change() {
    let world = World::new();
    let (be, lc) = (world.process("be-a"), world.process("lc"));
    until("gates are wanted", || told(&be) == grant::GATES_WANTED);
    for (busy, expected) in [(true, CLOSED), (false, grant::GATES_WANTED), (true, CLOSED)] {
        let before = be.page().gate_word();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                while be.page().gate_word() == before {
                    let wake = futex::wait_low(be.page().gate_futex(), before, Some(PATIENCE));
                    assert!(matches!(wake, Wake::Woken | Wake::Changed), "{wake:?}");
                }
            });
            lc.becomes(busy, world.clock.now());
            world.advance(MS);
            waiter.join().unwrap();
        });
        assert_eq!(told(&be), expected);
    }
}

#[test]
fn tokens_are_withheld_while_the_gates_are_closed() {
    let world = World::new();
    let (mut a, mut b, lc) = (world.process("be-a"), world.process("be-b"), world.process("lc"));
    a.report().set_gates(report::GATES_DEVICE, 1);
    world.settle();
    a.want();
    assert_eq!(a.granted(), 50.0);
    b.want();
    lc.becomes(true, world.clock.now());
    until("the gates are closed", || told(&a) == CLOSED && told(&b) == CLOSED);
    // Its work is held back with it, so it is not asked for at its deadline.
    world.advance(100 * MS);
    a.give_back(10.0);
    world.settle();
    assert!(b.token.is_silent());
    lc.becomes(false, world.clock.now());
    world.advance(MS);
    assert_eq!(b.granted(), 50.0);
    assert_eq!(gpu_ms(&world, "be-a"), 10.0, "what it says it used, though its gates were closed");
}

#[test]
fn a_grant_under_which_everything_stands_is_neither_overdue_nor_charged() {
    let world = World::with(support::CLIENTS, |config| config.gate_share = sluice_core::Share::ZERO);
    let (mut a, lc) = (world.process("be-a"), world.process("lc"));
    a.report().set_gates(report::GATES_HOST, 1);
    world.settle();
    a.want();
    a.granted();
    world.advance(20 * MS);
    lc.becomes(true, world.clock.now());
    until("the gates are closed", || told(&a) == CLOSED);
    world.advance(10_000 * MS);
    lc.becomes(false, world.clock.now());
    world.advance(MS);
    assert_eq!(world.metric("sluice_grants_not_returned_total{client=\"be-a\"}"), Some(0.0));
    world.advance(4 * MS);
    a.give_back(10_025.0);
    until("it is charged", || gpu_ms(&world, "be-a") > 0.0);
    assert_eq!(gpu_ms(&world, "be-a"), 24.0);
}

#[test]
fn who_goes_on_while_its_gates_are_closed_is_charged_as_if_it_had_none() {
    let world = World::with(support::CLIENTS, |config| config.gate_share = sluice_core::Share::ZERO);
    let (mut a, lc) = (world.process("be-a"), world.process("lc"));
    a.report().set_gates(report::GATES_DEVICE, 1);
    world.settle();
    a.want();
    a.granted();
    lc.becomes(true, world.clock.now());
    until("the gates are closed", || told(&a) == CLOSED);
    let level = |level: &str| world.metric(&format!("sluice_level{{level=\"{level}\"}}"));
    for _ in 0..2 {
        assert_eq!(level("device"), Some(1.0));
        world.advance(26 * MS);
        a.report().add_busy_ns(26 * MS);
        world.advance(MS);
    }
    assert_eq!((level("device"), level("token")), (Some(0.0), Some(2.0)));
    lc.becomes(false, world.clock.now());
    world.advance(MS);
    a.give_back(52.0);
    until("it is charged", || gpu_ms(&world, "be-a") > 0.0);
    assert_eq!(gpu_ms(&world, "be-a"), 52.0);
}

#[test]
fn what_it_did_while_it_was_sliced_is_not_held_against_who_has_gates_again() {
    let world = World::with(support::CLIENTS, |config| config.gate_share = sluice_core::Share::ZERO);
    let (mut a, lc) = (world.process("be-a"), world.process("lc"));
    a.report().set_gates(report::GATES_DEVICE, 1);
    world.settle();
    lc.becomes(true, world.clock.now());
    until("the gates are closed", || told(&a) == CLOSED);
    world.advance(MS);
    // While they are closed its groups can be controlled; it works for 10 s.
    let descriptor = Descriptor::new();
    a.token.announce(&[context(2)], &[descriptor.sent.as_fd()]);
    until("it has no gates", || told(&a) == 0);
    quiet(&world);
    lc.becomes(false, world.clock.now());
    for _ in 0..10 {
        world.advance(1000 * MS);
        a.report().add_busy_ns(1000 * MS);
    }
    // It has no groups any more while others' gates are closed.
    lc.becomes(true, world.clock.now());
    world.advance(MS);
    a.token.announce(&[], &[]);
    until("the gates are closed", || told(&a) == CLOSED);
    // What was running ends within the time that it has for that.
    for _ in 0..2 {
        world.advance(MS);
        a.report().add_busy_ns(MS);
    }
    world.advance(MS);
    let level = |level: &str| world.metric(&format!("sluice_level{{level=\"{level}\"}}"));
    assert_eq!((level("device"), level("token")), (Some(1.0), Some(1.0)));
}

#[test]
fn two_streams_may_both_have_had_a_long_kernel_running_when_the_gates_were_closed() {
    let world = World::with(support::CLIENTS, |config| config.gate_share = sluice_core::Share::ZERO);
    let (mut a, lc) = (world.process("be-a"), world.process("lc"));
    a.report().set_gates(report::GATES_DEVICE, 2);
    world.settle();
    a.want();
    a.granted();
    lc.becomes(true, world.clock.now());
    until("the gates are closed", || told(&a) == CLOSED);
    for ended in 1..=3 {
        world.advance(26 * MS);
        a.report().add_busy_ns(26 * MS);
        // To say that there are more of them helps nobody by now.
        a.report().set_gates(report::GATES_DEVICE, 2 + ended);
        world.advance(MS);
        assert_eq!(world.metric("sluice_level{level=\"device\"}"), Some(f64::from(u8::from(ended <= 2))));
    }
}

#[test]
fn somebody_who_is_busy_for_ever_leaves_the_others_a_little() {
    let world = World::new();
    let (mut be, lc) = (world.process("be-a"), world.process("lc"));
    be.want();
    be.granted();
    lc.becomes(true, world.clock.now());
    until("the gates are closed", || told(&be) == CLOSED);
    world.advance(949 * MS);
    assert_eq!(told(&be), CLOSED);
    world.advance(MS);
    assert_eq!(told(&be), grant::GATES_WANTED);
    world.advance(49 * MS);
    assert_eq!(told(&be), grant::GATES_WANTED);
    world.advance(MS);
    assert_eq!(told(&be), CLOSED);
    assert_eq!(world.metric("sluice_gate_changes_total{to=\"forced\"}"), Some(1.0));
}

#[test]
fn the_death_of_who_was_busy_opens_the_gates_at_once() {
    let world = World::new();
    let (be, lc) = (world.process("be-a"), world.process("lc"));
    lc.becomes(true, world.clock.now());
    until("the gates are closed", || told(&be) == CLOSED);
    lc.process.die();
    until("the gates are open", || told(&be) == 0);
    // And so does its silence: the connection is gone, the process may live.
    let lc = world.process("lc");
    lc.becomes(true, world.clock.now());
    until("the gates are closed", || told(&be) == CLOSED);
    drop(lc);
    until("the gates are open", || told(&be) == 0);
}

#[test]
fn who_is_sliced_has_no_gates_unless_that_is_asked_for() {
    for (of, expected) in [(GatesOf::Unsteered, 0), (GatesOf::All, CLOSED), (GatesOf::Off, 0)] {
        let world = World::with(support::CLIENTS, |config| config.gates = of);
        let descriptor = Descriptor::new();
        let sent = [descriptor.sent.as_fd()];
        let be =
            Hook::attach_with(&world.socket(), &world.peers.process(), "be-a", 0, (&[context(1)], &sent));
        let (be, mut other, lc) = (be.unwrap(), world.process("be-b"), world.process("lc"));
        lc.becomes(true, world.clock.now());
        world.advance(MS);
        assert_eq!(told(&be), expected, "{of:?}");
        let others = if of == GatesOf::Off { 0 } else { CLOSED };
        until("the other one is told", || told(&other) == others);
        other.want();
        world.settle();
        assert_eq!(other.token.is_silent(), of != GatesOf::Off);
        lc.becomes(false, world.clock.now());
        world.advance(MS);
    }
}

#[test]
fn a_change_of_class_and_the_end_of_the_manager_open_the_gates() {
    let mut world = World::new();
    let (a, lc) = (world.process("be-a"), world.process("lc"));
    lc.becomes(true, world.clock.now());
    until("the gates are closed", || told(&a) == CLOSED);
    let critical = support::CLIENTS.replace("memory: 8Gi }", "memory: 8Gi, class: latency-critical }");
    std::fs::write(&world.file, critical).unwrap();
    until("it is latency-critical itself", || a.page().latency_critical() && told(&a) == 0);
    std::fs::write(&world.file, support::CLIENTS).unwrap();
    until("the gates are closed", || told(&a) == CLOSED);
    world.stop();
    assert_eq!(told(&a), 0);
}

#[test]
fn a_process_that_says_what_its_gates_hold_back_is_counted_by_that() {
    let world = World::new();
    let (a, b) = (world.process("be-a"), world.process("be-b"));
    a.report().set_gates(report::GATES_DEVICE, 1);
    b.report().set_gates(report::GATES_HOST, 1);
    let level = |level: &str| world.metric(&format!("sluice_level{{level=\"{level}\"}}"));
    assert_eq!((level("device"), level("host"), level("token")), (Some(1.0), Some(1.0), Some(0.0)));
}
