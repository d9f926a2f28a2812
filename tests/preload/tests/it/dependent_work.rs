//! Work that waits for other work of the same client: processes that take turns, contexts that are used in turn, and ranks that wait for
//! each other on the GPU.

use sluice_preload_tests::{MS, Node, exclusive, shared};
use std::time::{Duration, Instant};

/// Kernels of half a millisecond.
const MICROS: u32 = 500;
/// For how long requests may come too late to be predicted, because the machine is busy.
const PATIENCE: Duration = Duration::from_secs(60);

fn beside_an_idle_latency_critical_client() -> Node {
    let resources = "clients:\n  - { name: service, request: 0.2, memory: 1Gi, class: latency-critical }\n  - { name: pair, request: 0.4, memory: 1Gi }\n  - { name: other, request: 0.4, memory: 1Gi }\n";
    Node::with(resources).manager_arguments("--controls simulated").start()
}

/// Round trips of `relay` in this form, beside a latency-critical client that is attached and does nothing, need no hand-offs. A hand-off
/// takes two controls, and there are 160 controls a second at most.
fn check_turns(form: &str, turns: u32) {
    let _lock = shared();
    let node = beside_an_idle_latency_critical_client();
    let mut service = node.tenant("service", "tenant").start();
    service.expect("ready");
    let mut relay = node.tenant("pair", "relay").arguments(&format!("{turns} {MICROS} {form}")).start();
    relay.expect("ready");
    let controls = || node.metrics().sum("sluice_controls_total", &[]).expect("a counter");
    let before = controls();
    assert_eq!(relay.ask("go"), "done");
    let made = controls() - before;
    assert!(made < f64::from(turns) / 10.0, "{made} controls for {turns} round trips");
    relay.finish().expect_success();
    service.finish().expect_success();
}

#[test]
fn two_processes_of_a_client_that_take_turns_need_no_hand_offs_beside_an_idle_latency_critical_client() {
    check_turns("processes", 400);
}

#[test]
fn two_contexts_that_are_used_in_turn_need_no_hand_offs_beside_an_idle_latency_critical_client() {
    check_turns("contexts", 400);
}

/// Beside a service with 50 requests a second, too, once the service's hold kernels lead by a time slice: nearly all requests were predicted.
fn check_turns_beside_a_service(form: &str) {
    const TURNS: u32 = 40;
    let _lock = exclusive();
    let node = beside_an_idle_latency_critical_client();
    let mut service = node.tenant("service", "periodic").arguments("20000 1000").start();
    service.expect("ready");
    let mut relay = node.tenant("pair", "relay").arguments(&format!("{TURNS} {MICROS} {form}")).start();
    relay.expect("ready");
    let controls = || node.metrics().sum("sluice_controls_total", &[]).expect("a counter");
    let begun = Instant::now();
    // One hand-off a turn at least, of two controls each, without a second enabled group.
    let needs_none = std::iter::repeat_with(|| {
        let before = controls();
        assert_eq!(relay.ask("go"), "done");
        controls() - before < f64::from(TURNS) / 4.0
    });
    assert!(needs_none.take_while(|_| begun.elapsed() < PATIENCE).any(|needs_none| needs_none));
    relay.finish().expect_success();
    service.finish().expect_success();
}

#[test]
fn two_processes_of_a_client_that_take_turns_need_no_hand_offs_beside_a_service_with_predicted_requests() {
    check_turns_beside_a_service("processes");
}

#[test]
fn two_contexts_that_are_used_in_turn_need_no_hand_offs_beside_a_service_with_predicted_requests() {
    check_turns_beside_a_service("contexts");
}

/// The figures of docs/design/channel-groups.md. Needs processors that have nothing else to do: late requests have no lead.
#[test]
#[ignore = "prints figures"]
fn figures_of_work_in_turn_beside_a_service() {
    const TURNS: u32 = 2_000;
    let _lock = exclusive();
    for form in ["processes", "contexts"] {
        for beside in [false, true] {
            for hooked in [false, true] {
                let node = beside_an_idle_latency_critical_client();
                let start = |client: &str, program: &str, arguments: &str| {
                    let options = node.tenant(client, program).arguments(arguments);
                    let mut tenant = if hooked { options } else { options.without_hook() }.start();
                    tenant.expect("ready");
                    tenant
                };
                let service = start("service", "periodic", "20000 1000");
                let other = beside.then(|| start("other", "busy", "1000 50"));
                let mut relay = start("pair", "relay", &format!("{TURNS} {MICROS} {form}"));
                // The first ones find the service not predicted.
                assert_eq!(relay.ask("go"), "done");
                let begun = Instant::now();
                assert_eq!(relay.ask("go"), "done");
                let rate = f64::from(TURNS) / begun.elapsed().as_secs_f64();
                println!("{form:10} beside another {beside:5} hook {hooked:5}: {rate:.0} turns a second");
                relay.finish().expect_success();
                other.into_iter().for_each(|other| drop(other.finish().expect_success()));
                service.finish().expect_success();
            }
        }
    }
}

/// Grants only. A rank could not return its grant while it waited for the other one, which had none.
fn check_ring(steps: u32, limit: &str, beside_another: bool) {
    let _lock = shared();
    let node = Node::start(&format!("2\npair 0.5 {limit} 8589934592\nother 0.5 1.0 8589934592\n"));
    let other = beside_another.then(|| {
        let mut other = node.tenant("other", "busy").arguments("1000 50").start();
        other.expect("ready");
        other
    });
    let mut ring = node.tenant("pair", "ring").arguments(&format!("{steps} {MICROS}")).start();
    ring.expect("done");
    let metrics = node.metrics();
    assert_eq!(metrics.sum("sluice_grants_not_returned_total", &["client=\"pair\""]), Some(0.0));
    ring.finish().expect_success();
    other.into_iter().for_each(|other| drop(other.finish().expect_success()));
}

#[test]
fn ranks_that_wait_for_each_other_on_the_gpu_keep_their_grant_while_no_other_client_waits() {
    check_ring(6_000, "1.0", false);
}

/// What waits for the other rank is no kernel: each rank returns its grant when its own kernel has ended.
#[test]
fn ranks_that_wait_for_each_other_on_the_gpu_return_their_grants_while_another_client_waits() {
    check_ring(1_000, "1.0", true);
}

/// The limit ends the grant although no other client waits.
#[test]
fn ranks_that_wait_for_each_other_on_the_gpu_return_their_grants_under_a_limit() {
    check_ring(600, "0.6", false);
}

const KERNEL_US: u32 = 100;

/// What a program with short kernels had beside a neighbour that always has work.
struct Beside {
    /// Kernels per second.
    turns: f64,
    /// Share of the GPU's time that the neighbour had.
    neighbour: f64,
    /// Part of the time that the machine did not give to this test.
    taken: f64,
}

/// How the two programs share the GPU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// Without the hook, by the driver's time slices.
    Bare,
    /// By grants only.
    Grants,
    /// By channel-group controls.
    Controls,
}

/// Kernels of a tenth of a millisecond in turn with commands that use no multiprocessor: see `waiting`. Without the hook the GPU alternates
/// between both programs.
fn beside_a_busy_neighbour(what: &str, sharing: Sharing) -> Beside {
    let controls = if sharing == Sharing::Controls { "--controls simulated" } else { "--controls off" };
    let resources = "2\nwaiting 0.5 1.0 8589934592\nbusy 0.5 1.0 8589934592\n";
    let node = Node::with(resources).manager_arguments(controls).start();
    let start = |client: &str, program: &str, arguments: &str| {
        let options = node.tenant(client, program).arguments(arguments);
        let mut tenant = if sharing == Sharing::Bare { options.without_hook() } else { options }.start();
        tenant.expect("ready");
        tenant
    };
    let waiting = start("waiting", "waiting", &format!("{KERNEL_US} {what}"));
    let busy = start("busy", "busy", "1000 50");
    node.let_pass(500 * MS);
    let measured = node.undisturbed(2_000 * MS);
    let window = node.window(measured.span);
    let turns = window.share_of_time(waiting.pid()) * 1e6 / f64::from(KERNEL_US);
    let neighbour = window.share_of_time(busy.pid());
    waiting.finish().expect_success();
    busy.finish().expect_success();
    Beside { turns, neighbour, taken: measured.taken }
}

/// While the command runs, the GPU is the neighbour's. And the kernel does not wait for the neighbour's grant of 50 ms.
fn check_beside_a_busy_neighbour(what: &str, sharing: Sharing, least_turns: f64) {
    let _lock = exclusive();
    // One after the other.
    let bare = beside_a_busy_neighbour(what, Sharing::Bare);
    let hooked = beside_a_busy_neighbour(what, sharing);
    let taken = bare.taken + hooked.taken;
    let (neighbours, turns) = (hooked.neighbour / bare.neighbour, hooked.turns / bare.turns);
    assert!(neighbours >= 0.9 - taken, "the neighbour had {neighbours:.3} of what it has without the hook");
    assert!(turns >= least_turns - taken, "{turns:.3} of the turns without the hook");
}

#[test]
fn functions_of_the_host_hold_no_grant_and_short_kernels_wait_for_none() {
    check_beside_a_busy_neighbour("function", Sharing::Grants, 0.75);
}

#[test]
fn kernels_behind_functions_of_the_host_hold_no_grant_meanwhile() {
    check_beside_a_busy_neighbour("kernel-last", Sharing::Grants, 0.75);
}

#[test]
fn kernels_behind_copies_hold_no_grant_meanwhile() {
    check_beside_a_busy_neighbour("copy", Sharing::Grants, 0.75);
}

/// With controls the groups of the waiting process stay enabled, so that its kernel runs at once.
#[test]
fn functions_of_the_host_hold_no_quantum_and_short_kernels_wait_for_none() {
    check_beside_a_busy_neighbour("function", Sharing::Controls, 0.75);
}

#[test]
fn kernels_behind_functions_of_the_host_hold_no_quantum_meanwhile() {
    check_beside_a_busy_neighbour("kernel-last", Sharing::Controls, 0.75);
}

#[test]
fn kernels_behind_copies_hold_no_quantum_meanwhile() {
    check_beside_a_busy_neighbour("copy", Sharing::Controls, 0.75);
}

/// The figures of docs/design/ledger.md.
#[test]
#[ignore = "prints figures"]
fn figures_of_waiting_programs() {
    let _lock = exclusive();
    for what in ["function", "kernel-last", "copy"] {
        for (name, sharing) in
            [("bare", Sharing::Bare), ("grants", Sharing::Grants), ("controls", Sharing::Controls)]
        {
            let Beside { turns, neighbour, taken } = beside_a_busy_neighbour(what, sharing);
            println!("{what:12} {name:9} neighbour {neighbour:.3} turns {turns:5.1} taken {taken:.2}");
        }
    }
}
