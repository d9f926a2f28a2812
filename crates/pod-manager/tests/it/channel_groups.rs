//! Channel groups controlled over real sockets and pages, with a driver and a clock that the test moves.

use crate::support::driver::{Call, FakeDriver};
use crate::support::group_processes::{process_with_groups, quiet, two, worked, works};
use crate::support::hook::Hook;
use crate::support::{MS, World, until};
use sluice_comm::page::UNLIMITED;

/// GPU time charged, milliseconds.
fn charged(world: &World, client: &str) -> f64 {
    let seconds = world.metric(&format!("sluice_gpu_seconds_total{{client=\"{client}\"}}"));
    (seconds.unwrap() * 1e3).round()
}

#[test]
fn hardware_scheduled_process_holds_an_unlimited_grant_and_never_waits_for_an_answer() {
    let world = World::new();
    let ((mut a, _a), (mut b, _b)) = two(&world);
    for hook in [&mut a, &mut b] {
        assert_eq!((hook.page().deadline_ns(), hook.page().deadline_tsc()), (UNLIMITED, UNLIMITED));
        hook.want();
        assert!(hook.granted() > 1000.0);
    }
    assert_eq!((world.driver.group(1), world.driver.group(2)), ((true, 2048), (false, 2048)));
    assert_eq!(world.metric("sluice_level{level=\"turn\"}"), Some(2.0));
}

#[test]
fn gpu_is_handed_off_at_the_end_of_the_quantum() {
    let world = World::new();
    let ((a, _a), (b, _b)) = two(&world);
    world.driver.take_calls();
    world.advance(49 * MS);
    quiet(&world);
    assert_eq!(world.driver.calls(), []);
    world.driver.hold();
    world.advance(MS);
    assert_eq!(world.driver.next(), Call::Stop(1));
    // The next one begins when the last one has stopped.
    world.advance(MS);
    assert_eq!(world.driver.next(), Call::Stop(1));
    world.driver.let_one_go();
    assert_eq!(world.driver.let_one_go(), Call::Start(2));
    world.driver.let_all_go();
    world.advance(10 * MS);
    assert_eq!((a.page().deadline_ns(), b.page().deadline_ns()), (UNLIMITED, UNLIMITED));
    assert_eq!(charged(&world, "be-a"), 51.0);
    assert_eq!(world.metric("sluice_turns_total"), Some(2.0));
    assert_eq!(world.metric("sluice_controls_total{control=\"stop\",outcome=\"done\"}"), Some(2.0));
}

#[test]
fn no_group_is_disabled_while_only_one_process_has_work() {
    let world = World::new();
    let (a, _a) = process_with_groups(&world, "be-a", &[1]);
    works(&world, &a);
    world.driver.take_calls();
    for _ in 0..100 {
        world.advance(50 * MS);
    }
    quiet(&world);
    assert_eq!(world.driver.calls(), []);
    assert_eq!(charged(&world, "be-a"), 5000.0);
}

#[test]
fn process_idle_for_three_milliseconds_hands_off_to_waiting_ones() {
    let world = World::new();
    let ((a, _a), (_b, _bd)) = two(&world);
    world.driver.take_calls();
    world.advance(10 * MS);
    a.becomes(false, world.clock.now());
    world.advance(2 * MS);
    quiet(&world);
    assert_eq!(world.driver.calls(), []);
    world.advance(MS);
    quiet(&world);
    assert_eq!(world.driver.calls(), [Call::Stop(1), Call::Start(2)], "it might not be as idle as it says");
    // It writes to its wake-up eventfd and waits for its quantum.
    assert!(a.page().wakeup_requested());
    works(&world, &a);
    assert_eq!(world.driver.group(1), (false, 2048));
    assert!(!a.page().wakeup_requested());
}

#[test]
fn clients_with_and_without_controlled_groups_share_the_gpu() {
    let world = World::new();
    let (a, _a) = process_with_groups(&world, "be-a", &[1]);
    let mut b = world.process("be-b");
    works(&world, &a);
    b.want();
    world.settle();
    world.driver.hold();
    world.advance(50 * MS);
    assert_eq!(world.driver.next(), Call::Stop(1));
    world.settle();
    assert!(b.token.is_silent());
    world.driver.let_one_go();
    assert_eq!(b.granted(), 50.0);
    world.driver.let_all_go();
    world.advance(20 * MS);
    assert!(b.page().contended());
    b.give_back(20.0);
    quiet(&world);
    assert_eq!(world.driver.group(1), (true, 2048));
}

#[test]
fn latency_critical_requests_are_not_disturbed_by_hand_offs() {
    let world = World::new();
    let ((a, _a), (b, _b)) = two(&world);
    let (mut lc, _lc) = process_with_groups(&world, "lc", &[3]);
    worked(&world, &lc);
    assert_eq!(world.driver.group(3), (true, 1_000_000));
    assert_eq!((world.driver.group(1), world.driver.group(2)), ((true, 1), (false, 1)));
    assert_eq!(lc.page().contenders(), 2);
    assert_eq!(lc.page().deadline_ns(), UNLIMITED);
    assert_eq!(world.metric("sluice_level{level=\"turn\"}"), Some(3.0), "its slice is controlled");
    lc.want();
    lc.granted();
    lc.becomes(true, world.clock.now());
    world.driver.take_calls();
    world.advance(60 * MS);
    quiet(&world);
    assert_eq!(world.driver.calls(), [], "it is busy");
    world.clock.advance(100_000);
    lc.becomes(false, world.clock.now());
    world.advance(250_000);
    quiet(&world);
    assert_eq!(world.driver.calls(), [Call::Stop(1), Call::Start(2)]);
    assert_eq!(world.metric("sluice_hand_overs_forced_total"), Some(0.0));
    // It leaves: slices as they were.
    drop(lc);
    quiet(&world);
    assert_eq!((world.driver.group(1), world.driver.group(2)), ((false, 2048), (true, 2048)));
    a.becomes(false, world.clock.now());
    b.becomes(false, world.clock.now());
}

#[test]
fn all_groups_have_default_slices_beside_a_host_bound_latency_critical_process() {
    let world = World::new();
    let ((a, _a), (b, _b)) = two(&world);
    let (lc, _lc) = process_with_groups(&world, "lc", &[3]);
    works(&world, &lc);
    quiet(&world);
    assert_eq!([1, 2, 3].map(|group| world.driver.group(group).1), [1, 1, 1_000_000]);
    assert!(!lc.page().default_slices());
    let slices = |mode| world.metric(&format!("sluice_client_slices{{client=\"lc\",mode=\"{mode}\"}}"));
    assert_eq!((slices("short"), slices("default")), (Some(1.0), Some(0.0)));
    lc.report().report_slices(true, 4 * MS, 3 * MS);
    world.advance(50 * MS);
    quiet(&world);
    assert_eq!([1, 2, 3].map(|group| world.driver.group(group).1), [2048; 3]);
    assert!(lc.page().default_slices() && !a.page().default_slices());
    assert_eq!((slices("short"), slices("default")), (Some(0.0), Some(1.0)));
    let median =
        |mode| world.metric(&format!("sluice_client_burst_seconds{{client=\"lc\",mode=\"{mode}\"}}"));
    assert_eq!((median("short"), median("default")), (Some(0.004), Some(0.003)));
    assert_eq!(world.metric("sluice_default_slices"), Some(1.0));
    lc.report().report_slices(false, 4 * MS, 5 * MS);
    world.advance(50 * MS);
    quiet(&world);
    assert_eq!([1, 2, 3].map(|group| world.driver.group(group).1), [1, 1, 1_000_000]);
    assert!(!lc.page().default_slices());
    drop((a, b));
}

#[test]
fn second_group_of_a_client_is_enabled_while_the_latency_critical_process_leads_by_its_slice() {
    let world = World::new();
    let (a, _a) = process_with_groups(&world, "be-a", &[1, 2]);
    let (lc, _lc) = process_with_groups(&world, "lc", &[3]);
    works(&world, &a);
    worked(&world, &lc);
    let enabled = || [1, 2].into_iter().filter(|group| world.driver.group(*group).0).count();
    assert_eq!(enabled(), 1);
    assert_eq!((lc.page().lead_ns(), a.page().lead_ns()), (MS, 0), "asked for");
    lc.report().report_lead(MS);
    world.advance(120 * MS);
    quiet(&world);
    let mut groups = [1, 2].map(|group| world.driver.group(group));
    groups.sort_unstable();
    assert_eq!(groups, [(true, 1), (true, 1_000)]);
    lc.report().report_lead(0);
    world.advance(50 * MS);
    quiet(&world);
    assert_eq!(enabled(), 1);
    a.report().report_contexts_at_once(Some(world.clock.now()));
    world.advance(50 * MS);
    quiet(&world);
    assert_eq!(lc.page().lead_ns(), 0, "both contexts have work at the same time");
    a.report().report_contexts_at_once(None);
    world.advance(20_000 * MS);
    worked(&world, &lc);
    quiet(&world);
    assert_eq!(lc.page().lead_ns(), MS);
    drop(a);
    world.advance(50 * MS);
    quiet(&world);
    assert_eq!(lc.page().lead_ns(), 0, "no client could use one");
}

#[test]
fn latency_critical_process_is_told_when_its_last_contender_ends() {
    let world = World::new();
    let (lc, other) = (world.process("lc"), world.process("lc"));
    until("there are two", || lc.page().contenders() == 1);
    drop(other);
    until("it is alone", || lc.page().contenders() == 0);
}

#[test]
fn a_latency_critical_process_is_served_while_a_control_hangs() {
    let world = World::new();
    let ((_a, _ad), (_b, _bd)) = two(&world);
    world.driver.hold();
    world.advance(50 * MS);
    assert_eq!(world.driver.next(), Call::Stop(1));
    let (mut lc, _lc) = process_with_groups(&world, "lc", &[3]);
    lc.want();
    assert!(lc.granted() > 1000.0);
    assert!(lc.reserve(1 << 20));
    world.driver.let_all_go();
}

#[test]
fn nothing_is_kept_of_a_process_that_ended_while_it_was_disabled() {
    let world = World::new();
    let ((_a, _ad), (b, descriptor)) = two(&world);
    world.driver.take_calls();
    b.process.die();
    quiet(&world);
    assert_eq!(world.driver.calls(), []);
    descriptor.closes();
    world.advance(200 * MS);
    quiet(&world);
    assert_eq!(world.driver.calls(), [], "no other process is left");
}

#[test]
fn disconnected_process_is_freed_before_its_control_descriptor_is_closed() {
    let world = World::new();
    let ((_a, _ad), (b, descriptor)) = two(&world);
    assert_eq!(world.driver.group(2), (false, 2048));
    world.driver.take_calls();
    let Hook { token, memory, .. } = b;
    drop((token, memory));
    descriptor.closes_in_time(&world);
    assert_eq!(world.driver.take_calls(), [Call::Start(2)]);
}

#[test]
fn no_control_is_made_for_a_process_whose_sockets_end_before_it_does() {
    let world = World::new();
    let ((_a, _ad), (b, descriptor)) = two(&world);
    world.driver.take_calls();
    let Hook { token, memory, process, .. } = b;
    drop((token, memory));
    until("the manager has seen it", || world.metric("sluice_processes{client=\"be-b\"}") == Some(0.0));
    world.advance(MS);
    process.die();
    descriptor.closes();
    world.advance(100 * MS);
    quiet(&world);
    assert_eq!(world.driver.calls(), []);
}

#[test]
fn driver_without_slices_is_used_for_quanta_only_and_the_level_stays_turn() {
    let mut world = World::new();
    world.restart_with(FakeDriver::without_slices());
    let ((_a, _ad), (_b, _bd)) = two(&world);
    let (_lc, _lcd) = process_with_groups(&world, "lc", &[3]);
    quiet(&world);
    assert_eq!((world.driver.group(1), world.driver.group(2)), ((true, 2048), (false, 2048)));
    assert_eq!(world.metric("sluice_level{level=\"turn\"}"), Some(3.0));
    assert!(!world.driver.calls().iter().any(|call| matches!(call, Call::Slice(..))));
    world.stop();
    assert_eq!((world.driver.group(1), world.driver.group(2)), ((true, 2048), (true, 2048)));
}

#[test]
fn nothing_is_kept_of_a_disconnected_process_that_needs_no_control() {
    let world = World::new();
    let (a, descriptor) = process_with_groups(&world, "be-a", &[1]);
    works(&world, &a);
    let Hook { token, memory, .. } = a;
    drop((token, memory));
    descriptor.closes_in_time(&world);
}

#[test]
fn all_groups_are_enabled_when_the_manager_stops() {
    let mut world = World::new();
    let ((_a, _ad), (_b, _bd)) = two(&world);
    let (lc, _lcd) = process_with_groups(&world, "lc", &[3]);
    worked(&world, &lc);
    assert_eq!(world.driver.group(2), (false, 1));
    world.stop();
    for group in 1..=3 {
        assert_eq!(world.driver.group(group), (true, 2048));
    }
}

#[test]
fn group_is_enabled_when_the_manager_stops_even_if_its_slice_cannot_be_restored() {
    let mut world = World::new();
    let ((_a, _ad), (_b, _bd)) = two(&world);
    let (lc, _lcd) = process_with_groups(&world, "lc", &[3]);
    worked(&world, &lc);
    assert_eq!((world.driver.group(1), world.driver.group(2)), ((true, 1), (false, 1)));
    world.driver.refuse_slices(2);
    world.stop();
    assert_eq!(world.driver.group(1), (true, 2048), "or two would run with tiny slices");
    assert_eq!(world.driver.group(2), (true, 1));
}

#[test]
fn a_change_of_class_changes_slices_and_the_page() {
    let world = World::new();
    let ((a, _a), (_b, _bd)) = two(&world);
    let clients = "
clients:
  - { name: be-a, request: 0.3, memory: 8Gi, class: latency-critical }
  - { name: be-b, request: 0.5, memory: 10Gi }
";
    std::fs::write(&world.file, clients).unwrap();
    until("slices have changed", || {
        world.driver.group(1).1 == 1_000_000 && world.driver.group(2) == (true, 1)
    });
    assert_eq!(a.page().deadline_ns(), UNLIMITED);
    std::fs::write(&world.file, crate::support::CLIENTS).unwrap();
    until("slices are as they were", || world.driver.group(1).1 == 2048 && world.driver.group(2).1 == 2048);
    assert_eq!(a.page().deadline_ns(), UNLIMITED);
}
