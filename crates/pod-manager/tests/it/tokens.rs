//! Tokens over real sockets and pages, on a clock that the test moves.

use crate::support::hook::Hook;
use crate::support::{CLIENTS, MS, World, until};
use sluice_comm::page::UNLIMITED;
use sluice_pod_manager::OnManagerLoss;

#[test]
fn the_gate_is_open_until_the_deadline_when_the_answer_comes() {
    let world = World::new();
    let mut a = world.process("be-a");
    assert_eq!(a.page().deadline_ns(), 0);
    a.want();
    assert_eq!(a.granted(), 50.0);
    let deadline = world.clock.now() + 50 * MS;
    assert_eq!((a.page().deadline_ns(), a.page().deadline_tsc()), (deadline, 10 * deadline));
    assert!(a.page().tsc_valid());
}

#[test]
fn the_second_client_runs_as_soon_as_the_first_gives_back() {
    let world = World::new();
    let (mut a, mut b) = world.holder_and_waiter();
    assert!(b.token.is_silent() && a.page().contended());
    world.clock.advance(7 * MS);
    a.give_back(7.0);
    assert_eq!(b.granted(), 50.0);
    assert_eq!(a.page().deadline_ns(), 0);
    assert!(b.page().contended(), "the other one worked a moment ago");
    world.settle();
    assert!(a.page().contended(), "the page keeps what held at the end of the grant");
}

#[test]
fn a_holder_is_waited_for_after_its_deadline_but_not_for_ever() {
    let world = World::new();
    let (mut a, mut b) = (world.process("be-a"), world.process("be-b"));
    a.want();
    a.granted();
    b.want();
    world.settle();
    world.advance(50 * MS + 1_999 * MS);
    assert!(b.token.is_silent());
    world.advance(MS);
    assert_eq!(b.granted(), 50.0);
    assert_eq!(a.page().deadline_ns(), 0);
    assert_eq!(world.metric("sluice_grants_not_returned_total{client=\"be-a\"}"), Some(1.0));
    // A return that comes too late has no effect.
    a.give_back(50.0);
    world.settle();
    assert!(b.page().deadline_ns() > world.clock.now());
}

#[test]
fn processes_of_one_client_share_the_token_and_both_have_to_give_it_back() {
    let world = World::new();
    let (mut first, mut second) = (world.process("be-a"), world.process("be-a"));
    let mut other = world.process("be-b");
    first.want();
    first.granted();
    other.want();
    world.settle();
    world.advance(20 * MS);
    second.want();
    assert_eq!(second.granted(), 30.0);
    assert_eq!(first.page().deadline_ns(), second.page().deadline_ns());
    assert_eq!(first.page().epoch(), second.page().epoch());
    assert!(second.page().contended());
    first.give_back(20.0);
    world.settle();
    assert!(other.token.is_silent());
    second.give_back(5.0);
    assert_eq!(other.granted(), 50.0);
    assert_eq!(world.metric("sluice_gpu_seconds_total{client=\"be-a\"}"), Some(0.02));
    assert_eq!(world.metric("sluice_token_held_seconds_total{client=\"be-a\"}"), Some(0.02));
}

#[test]
fn what_was_used_is_charged_and_shown() {
    let world = World::new();
    let mut a = world.process("be-a");
    a.want();
    a.granted();
    world.advance(40 * MS);
    a.give_back(10.0);
    world.settle();
    world.advance(60 * MS);
    assert_eq!(world.metric("sluice_gpu_seconds_total{client=\"be-a\"}"), Some(0.01));
    assert_eq!(world.metric("sluice_token_held_seconds_total{client=\"be-a\"}"), Some(0.04));
    assert_eq!(world.metric("sluice_share{client=\"be-a\"}"), Some(0.1));
    assert_eq!(world.metric("sluice_grants_total{client=\"be-a\"}"), Some(1.0));
    assert_eq!(world.metric("sluice_token_wait_seconds_count{client=\"be-a\"}"), Some(1.0));
}

#[test]
fn latency_critical_process_may_run_from_the_start_and_revokes_no_grant() {
    let world = World::new();
    let mut a = world.process("be-a");
    a.want();
    a.granted();
    let mut lc = world.process("lc");
    world.settle();
    assert_eq!((lc.page().deadline_tsc(), lc.page().deadline_ns()), (UNLIMITED, UNLIMITED));
    assert!(a.page().deadline_ns() > world.clock.now());
    // If it asks all the same, it is answered at once.
    lc.want();
    assert!(lc.granted() > 1e6);
    // Work of the token's holder ran beside it: 0.45 of what it reports is its own, at most of the 200 ms that went by.
    world.advance(100 * MS);
    lc.report().add_busy_ns(20 * MS);
    assert_eq!(world.metric("sluice_gpu_seconds_total{client=\"lc\"}"), Some(0.009));
    lc.report().add_busy_ns(u64::MAX / 2);
    world.advance(100 * MS);
    let charged = world.metric("sluice_gpu_seconds_total{client=\"lc\"}").unwrap();
    assert!((charged - 0.09).abs() < 1e-9, "{charged}");
}

#[test]
fn time_of_hold_kernels_is_reported_beside_the_charged_time() {
    let world = World::new();
    let lc = world.process("lc");
    world.settle();
    world.advance(100 * MS);
    lc.report().add_hold_ns(3 * MS);
    assert_eq!(world.metric("sluice_hold_seconds_total{client=\"lc\"}"), Some(0.003));
    assert_eq!(world.metric("sluice_gpu_seconds_total{client=\"lc\"}"), Some(0.0));
    // In sum, hold kernels never ran for longer than the 200 ms that elapsed.
    lc.report().add_hold_ns(u64::MAX / 2);
    world.advance(100 * MS);
    let held = world.metric("sluice_hold_seconds_total{client=\"lc\"}").unwrap();
    assert!((held - 0.2).abs() < 1e-9, "{held}");
}

#[test]
fn the_pages_say_what_to_do_without_a_manager() {
    for (loss, fail_closed) in [(OnManagerLoss::Open, false), (OnManagerLoss::Closed, true)] {
        let world = World::with(CLIENTS, |config| config.on_manager_loss = loss);
        assert_eq!(world.process("be-a").page().fail_closed(), fail_closed);
    }
}

#[test]
fn a_process_cannot_write_its_grant_page() {
    use sluice_sys::page::{Access, SharedPage};
    use std::os::fd::AsFd;
    let world = World::new();
    let a = world.process("be-a");
    assert!(SharedPage::map(a.grant_fd.as_fd(), Access::ReadWrite).is_err());
    // Opening it anew through /proc does not help either: the seal is the file's, not the descriptor's.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&a.grant_fd));
    if let Ok(file) = std::fs::OpenOptions::new().read(true).write(true).open(path) {
        assert!(SharedPage::map(file.as_fd(), Access::ReadWrite).is_err());
        assert!(std::io::Write::write(&mut &file, b"x").is_err());
    }
}

#[test]
fn a_restarted_manager_learns_what_its_processes_hold() {
    let mut world = World::new();
    let process = world.peers.process();
    let mut a = Hook::attach(&world.socket(), &process, "be-a", 0).unwrap();
    assert!(a.reserve(3000));
    a.want();
    a.granted();
    world.stop();
    // Its gate is closed behind the manager's back, and its sockets say so.
    assert_eq!(a.page().deadline_ns(), 0);
    assert!(a.token.is_closed() && a.memory.is_closed());
    world.start();
    let mut again = Hook::attach(&world.socket(), &process, "be-a", 3000).unwrap();
    assert_eq!(again.account().0, 3000);
    again.want();
    assert_eq!(again.granted(), 50.0);
}

#[test]
fn the_two_channels_of_a_process_declare_its_memory_once() {
    let world = World::new();
    let process = world.peers.process();
    let mut a = Hook::attach(&world.socket(), &process, "be-a", 5000).unwrap();
    assert_eq!(a.account().0, 5000);
    // The token channel alone is opened anew: what is reserved meanwhile counts, not what it says.
    assert!(a.reserve(100));
    let mut token = crate::support::hook::Line::open(&world.socket(), &process, "be-a").unwrap();
    token.attach(sluice_comm::Channel::Token, 9).unwrap();
    assert_eq!(a.account().0, 5100);
    assert!(a.token.is_closed());
}

#[test]
fn detach_ends_a_grant_and_forgets_the_memory() {
    use sluice_comm::{RequestBody, ResponseBody};
    let world = World::new();
    let (mut a, mut b) = (world.process("be-a"), world.process("be-b"));
    assert!(a.reserve(10));
    a.want();
    a.granted();
    b.want();
    assert_eq!(a.token.ask(RequestBody::Detach), ResponseBody::Detach);
    assert_eq!(b.granted(), 50.0);
    assert_eq!(a.memory.ask(RequestBody::Detach), ResponseBody::Detach);
    world.settle();
    assert_eq!(world.metric("sluice_processes{client=\"be-a\"}"), Some(0.0));
    assert_eq!(world.metric("sluice_memory_used_bytes{client=\"be-a\"}"), Some(0.0));
}

#[test]
fn time_that_a_request_of_a_delayed_latency_critical_client_waits_is_exported() {
    let client =
        "clients:\n  - { name: lc, request: 0.3, limit: 0.3, memory: 1Gi, class: latency-critical }\n";
    let world = World::with(client, |_| ());
    let delayed = || world.metric("sluice_delayed_seconds_total{client=\"lc\"}").unwrap();
    let mut lc = world.process("lc");
    world.settle();
    // It works all the time, until it has used its limit.
    let has_grant = |lc: &Hook| lc.page().deadline_ns() != 0;
    until("its grant is revoked", || {
        lc.report().add_busy_ns(5 * MS);
        world.advance(5 * MS);
        !has_grant(&lc)
    });
    assert_eq!(delayed(), 0.0);
    lc.want();
    world.settle();
    let asked = world.clock.now();
    until("it has earned a grant", || {
        world.advance(MS);
        has_grant(&lc)
    });
    let waited = (world.clock.now() - asked) as f64 / 1e9;
    assert!(waited > 0.0 && (delayed() - waited).abs() < 0.001, "{} of {waited} s", delayed());
}
