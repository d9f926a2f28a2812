//! Short requests of which some have waited for the one before: hold kernels stay just long enough for those.

use super::*;

/// A service of which one request in `each` follows 15 µs after the one before, the others after 3 ms.
fn learned(trigger: Trigger, each: u64) -> Server {
    let mut server = Server::new();
    for at in 0..400 {
        server.now += if at % each == 0 { 15 * US } else { 3 * MS };
        serve(&mut server, trigger);
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
    let mut server = learned(Trigger::Copy, 8);
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
    assert_eq!(linger(learned(Trigger::Copy, 80), Trigger::Copy), None);
}

#[test]
fn requests_that_begin_with_their_launch_get_a_hold_kernel_only_for_those_that_follow() {
    assert!(linger(learned(Trigger::Launch, 8), Trigger::Launch).is_some());
    let mut server = learned(Trigger::Launch, 80);
    server.now += 3 * MS;
    assert!(serve(&mut server, Trigger::Launch).is_none(), "their medians are the same with and without");
}
