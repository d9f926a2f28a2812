//! Gates of best-effort processes beside latency-critical ones, over real sockets, pages and futexes.

use crate::support::driver::{Descriptor, context};
use crate::support::hook::{Hook, PATIENCE};
use crate::support::{MS, World, until};
use sluice_comm::RequestBody;
use sluice_comm::page::{grant, report};
use sluice_pod_manager::GatedProcesses;
use sluice_sys::futex::{self, Wake};
use std::os::fd::AsFd;

const CLOSED: u32 = grant::GATES_WANTED | grant::GATE_CLOSED;

/// The gate word, without the count of its changes.
fn told(hook: &Hook) -> u32 {
    hook.page().gate_word() & CLOSED
}

fn gpu_ms(world: &World, client: &str) -> f64 {
    let seconds = world.metric(&format!("sluice_gpu_seconds_total{{client=\"{client}\"}}"));
    (seconds.unwrap() * 1e3).round()
}

#[test]
fn gates_are_wanted_beside_a_latency_critical_process_and_closed_while_it_is_busy() {
    let world = World::new();
    let be = world.process("be-a");
    assert_eq!(told(&be), 0);
    let lc = world.process("lc");
    until("gates are wanted", || told(&be) == grant::GATES_WANTED);
    assert!(lc.page().wakeup_requested(), "a wake-up is requested");
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

#[test]
fn gates_are_not_wanted_beside_a_host_bound_latency_critical_process() {
    let world = World::new();
    let (be, lc) = (world.process("be-a"), world.process("lc"));
    lc.becomes(true, world.clock.now());
    until("the gates are closed", || told(&be) == CLOSED);
    lc.report().report_slices(true, 4 * MS, 4 * MS);
    world.advance(50 * MS);
    until("no gates are wanted", || told(&be) == 0);
    assert!(lc.page().default_slices());
    lc.report().report_slices(false, 4 * MS, 5 * MS);
    world.advance(50 * MS);
    until("the gates are closed", || told(&be) == CLOSED);
}

fn announce(hook: &mut Hook, lead_us: u32) {
    hook.token.send(RequestBody::Hint { lead_us });
}

#[test]
fn announced_request_finds_the_gates_closed_and_they_open_if_it_does_not_come() {
    let world = World::new();
    let (mut be, mut lc) = (world.process("be-a"), world.process("lc"));
    until("gates are wanted", || told(&be) == grant::GATES_WANTED);
    announce(&mut lc, 200);
    until("the gates are closed", || told(&be) == CLOSED);
    be.want();
    world.settle();
    assert!(be.token.is_silent(), "grants are withheld as well");
    // 200 us, and 500 for being late.
    world.advance(699_000);
    assert_eq!(told(&be), CLOSED);
    world.advance(1_000);
    assert_eq!(told(&be), grant::GATES_WANTED);
    be.granted();
    // One that comes is what they are closed for from then on, as long as it lasts. It may be announced on the page.
    assert!(lc.page().wakeup_requested());
    announce_on_page(&lc, world.clock.now() + MS / 5);
    until("the gates are closed", || told(&be) == CLOSED);
    world.clock.advance(MS / 5);
    lc.becomes(true, world.clock.now());
    world.advance(5 * MS);
    assert_eq!(told(&be), CLOSED);
    lc.becomes(false, world.clock.now());
    world.advance(MS);
    assert_eq!(told(&be), grant::GATES_WANTED);
    // It may be read when its time has come, and the work has not.
    until("a wake-up is requested", || lc.page().wakeup_requested());
    announce_on_page(&lc, world.clock.now() - MS / 10);
    until("the gates are closed", || told(&be) == CLOSED);
}

#[test]
fn announcement_of_a_best_effort_process_closes_no_gates() {
    let world = World::new();
    let (mut be, _lc) = (world.process("be-a"), world.process("lc"));
    let other = world.process("be-b");
    until("gates are wanted", || told(&be) == grant::GATES_WANTED);
    announce(&mut be, 1000);
    world.settle();
    assert_eq!((told(&be), told(&other)), (grant::GATES_WANTED, grant::GATES_WANTED));
}

/// Announces a request on the page, and wakes the manager.
fn announce_on_page(hook: &Hook, at_ns: u64) {
    hook.report().announce(at_ns);
    nix::unistd::write(&hook.eventfd, &1_u64.to_ne_bytes()).unwrap();
}

#[test]
fn process_that_waits_for_its_gate_is_woken_at_each_change() {
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
fn grants_are_withheld_while_the_gates_are_closed() {
    let world = World::new();
    let (mut a, mut b, lc) = (world.process("be-a"), world.process("be-b"), world.process("lc"));
    a.report().set_gates(report::GATES_DEVICE);
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
    assert_eq!(gpu_ms(&world, "be-a"), 10.0, "what it reports as used, though its gates were closed");
}

#[test]
fn grant_behind_closed_gates_is_neither_overdue_nor_charged() {
    let world = World::with(crate::support::CLIENTS, |config| config.gate_share = sluice_core::Share::ZERO);
    let (mut a, lc) = (world.process("be-a"), world.process("lc"));
    a.report().set_gates(report::GATES_HOST);
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
fn process_that_is_always_busy_leaves_the_others_the_least_share() {
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
fn death_of_the_busy_process_opens_the_gates_at_once() {
    let world = World::new();
    let (be, lc) = (world.process("be-a"), world.process("lc"));
    lc.becomes(true, world.clock.now());
    until("the gates are closed", || told(&be) == CLOSED);
    lc.process.die();
    until("the gates are open", || told(&be) == 0);
    // The end of its connection opens them too: the process may live on.
    let lc = world.process("lc");
    lc.becomes(true, world.clock.now());
    until("the gates are closed", || told(&be) == CLOSED);
    drop(lc);
    until("the gates are open", || told(&be) == 0);
}

#[test]
fn hardware_scheduled_process_has_gates_only_if_configured() {
    for (of, expected) in
        [(GatedProcesses::TokenScheduled, 0), (GatedProcesses::All, CLOSED), (GatedProcesses::Off, 0)]
    {
        let world = World::with(crate::support::CLIENTS, |config| config.gates = of);
        let descriptor = Descriptor::new();
        let sent = [descriptor.sent.as_fd()];
        let be =
            Hook::attach_with(&world.socket(), &world.peers.process(), "be-a", 0, (&[context(1)], &sent));
        let (be, mut other, lc) = (be.unwrap(), world.process("be-b"), world.process("lc"));
        lc.becomes(true, world.clock.now());
        world.advance(MS);
        assert_eq!(told(&be), expected, "{of:?}");
        let others = if of == GatedProcesses::Off { 0 } else { CLOSED };
        until("the other process is told", || told(&other) == others);
        other.want();
        world.settle();
        assert_eq!(other.token.is_silent(), of != GatedProcesses::Off);
        lc.becomes(false, world.clock.now());
        world.advance(MS);
    }
}

#[test]
fn change_of_class_and_end_of_the_manager_open_the_gates() {
    let mut world = World::new();
    let (a, lc) = (world.process("be-a"), world.process("lc"));
    lc.becomes(true, world.clock.now());
    until("the gates are closed", || told(&a) == CLOSED);
    let critical = crate::support::CLIENTS.replace("memory: 8Gi }", "memory: 8Gi, class: latency-critical }");
    std::fs::write(&world.file, critical).unwrap();
    until("it is latency-critical itself", || a.page().latency_critical() && told(&a) == 0);
    std::fs::write(&world.file, crate::support::CLIENTS).unwrap();
    until("the gates are closed", || told(&a) == CLOSED);
    world.stop();
    assert_eq!(told(&a), 0);
}

#[test]
fn process_is_counted_by_the_level_of_its_gates() {
    let world = World::new();
    let (a, b) = (world.process("be-a"), world.process("be-b"));
    a.report().set_gates(report::GATES_DEVICE);
    b.report().set_gates(report::GATES_HOST);
    let level = |level: &str| world.metric(&format!("sluice_level{{level=\"{level}\"}}"));
    assert_eq!((level("device"), level("host"), level("token")), (Some(1.0), Some(1.0), Some(0.0)));
}
