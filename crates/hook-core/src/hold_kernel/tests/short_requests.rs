//! Short requests of which some have waited for the one before: hold kernels stay just long enough for those.

use super::*;

/// A service of which one request in `each` follows 15 µs after the one before, the others after 3 ms.
fn learned(trigger: Trigger, each: u64, slo_ns: u64) -> Server {
    let mut server = Server::new();
    for at in 0..400 {
        server.now += if at % each == 0 { 15 * US } else { 3 * MS };
        serve(&mut server, trigger);
        // Every tenth takes longer than 0.6 ms.
        server.state.request_measured(if at % 10 == 0 { MS } else { 400 * US }, slo_ns);
    }
    server
}

/// One request. Returns its hold kernel, if it began with one.
fn serve(server: &mut Server, trigger: Trigger) -> Option<HoldPlan> {
    let continues = server.state.continue_request(trigger, server.now);
    let hold = if continues { None } else { server.begin(trigger, 0).ok() };
    if trigger == Trigger::Copy {
        server.now += 40 * US;
    }
    server.launch();
    server.now += 200 * US;
    server.state.host_wait_begins(false);
    server.finish();
    hold
}

/// How long the hold kernel of the next request stays after it.
fn linger(mut server: Server, trigger: Trigger) -> Option<u64> {
    server.now += 3 * MS;
    serve(&mut server, trigger).and_then(|hold| hold.linger_ns)
}

#[test]
fn hold_kernel_stays_for_a_request_that_follows_at_once_and_ends_soon_after() {
    let mut server = learned(Trigger::Copy, 8, 0);
    server.now += 3 * MS;
    let hold = serve(&mut server, Trigger::Copy).expect("a hold kernel");
    let linger_ns = hold.linger_ns.expect("it stays");
    assert!((25 * US..100 * US).contains(&linger_ns), "{linger_ns}");
    assert!(server.state.is_active(), "neither the launch nor the wait has released it");
    server.now += 15 * US;
    assert!(serve(&mut server, Trigger::Copy).is_none() && server.state.is_active(), "the same one");
    server.now += 3 * MS;
    assert!(serve(&mut server, Trigger::Copy).is_some_and(|next| next.ticket != hold.ticket));
}

#[test]
fn hold_kernel_is_released_by_the_launch_if_hardly_any_request_follows_at_once() {
    assert_eq!(linger(learned(Trigger::Copy, 40, 0), Trigger::Copy), None);
}

#[test]
fn client_that_misses_its_goal_is_held_for_rarer_requests_and_not_any_more_without_a_goal() {
    let mut server = learned(Trigger::Copy, 20, 600 * US);
    assert!(server.state.linger_ns() > 0);
    server.state.request_measured(MS, 0);
    assert_eq!(server.state.linger_ns(), 0);
    assert_eq!(learned(Trigger::Copy, 20, 10 * MS).state.linger_ns(), 0, "the goal is met");
}

#[test]
fn requests_that_begin_with_their_launch_get_a_hold_kernel_only_for_those_that_follow() {
    assert!(linger(learned(Trigger::Launch, 8, 0), Trigger::Launch).is_some());
    let mut server = learned(Trigger::Launch, 40, 0);
    server.now += 3 * MS;
    assert!(serve(&mut server, Trigger::Launch).is_none(), "their medians are the same with and without");
}
