//! Which engine makes the copies of a request, and that the two benefit tests do not disturb each other.

use super::*;

/// A request that a copy begins. It takes `held_ns` with a hold kernel and 1 ms without one, and `engine_ns` longer if a copy engine makes its
/// copies. Returns whether it had a hold kernel, and whether a kernel made its copies.
fn request(server: &mut Server, held_ns: u64, engine_ns: u64) -> (bool, bool) {
    let began = server.now;
    let held = server.begin(Trigger::Copy, 0).is_ok();
    let by_kernel = server.now < server.state.copies.by_kernel_until_ns();
    if by_kernel {
        server.state.copies.made_by_kernel();
    }
    server.launch();
    server.now = began + if held { held_ns } else { MS } + if by_kernel { 0 } else { engine_ns };
    server.finish();
    // Requests at irregular times are not predicted.
    server.now += 8 * MS + began % 7 * MS / 3 + server.now % 5 * 300 * US;
    (held, by_kernel)
}

#[test]
fn kernel_makes_the_copies_once_that_shortens_requests() {
    for (engine_ns, expected) in [(500 * US, true), (0, false)] {
        let mut server = Server::new();
        (0..120).for_each(|_| _ = request(&mut server, 900 * US, engine_ns));
        let by_kernel = (0..50).filter(|_| request(&mut server, 900 * US, engine_ns).1).count();
        assert_eq!(by_kernel, if expected { 50 } else { 0 });
    }
}

#[test]
fn requests_whose_copies_a_kernel_made_unasked_are_no_samples_of_copy_engines() {
    let mut server = Server::new();
    for number in 0..300 {
        let began = server.now;
        let _held = server.begin(Trigger::Copy, 0);
        // As while memory of others moves.
        server.state.copies.made_by_kernel();
        server.launch();
        // The kernel seems to be slower than itself.
        server.now = began + if began < server.state.copies.by_kernel_until_ns() { MS } else { 2 * MS };
        server.finish();
        server.now += 8 * MS + number % 7 * MS / 3;
    }
    let by_kernel = (0..50).filter(|_| request(&mut server, 900 * US, 0).1).count();
    assert!(by_kernel <= 7, "{by_kernel} requests, though a copy engine is as fast");
}

#[test]
fn a_request_is_a_sample_of_one_test_only() {
    // Hold kernels lengthen requests by less than copy engines do: were a request a sample of both, either test would go wrong.
    let mut server = Server::new();
    (0..120).for_each(|_| _ = request(&mut server, 1100 * US, 500 * US));
    let seen: Vec<_> = (0..100).map(|_| request(&mut server, 1100 * US, 500 * US)).collect();
    assert!(seen.iter().all(|(held, by_kernel)| !held && *by_kernel), "{seen:?}");
}

#[test]
fn copies_between_requests_go_on_as_decided_for_a_second_and_never_in_a_child_process() {
    let controller = HoldKernels::new(Settings::default());
    controller.set_contenders(1);
    controller.with(|state| state.launch_submitted(0));
    controller.work_finished(1, || 1);
    let mut now = 0;
    for at in 0..120 {
        now += 10 * MS + at % 7 * MS;
        let _held = controller.with(|state| state.begin_request(Trigger::Copy, now, 0));
        let by_kernel = controller.copies_by_kernel(now);
        if by_kernel {
            controller.copy_made_by_kernel();
        }
        controller.with(|state| state.launch_submitted(now));
        now += if by_kernel { MS } else { 2 * MS };
        controller.host_wait_ended(now, false);
        controller.work_finished(now, || 1);
    }
    assert!(controller.may_copy_by_kernel() && controller.copies_by_kernel(now + 900 * MS));
    assert!(!controller.copies_by_kernel(now + 1001 * MS));
    controller.abandon();
    controller.with(|state| state.launch_submitted(now));
    assert!(!controller.may_copy_by_kernel() && !controller.copies_by_kernel(now));
}

#[test]
fn copies_that_no_kernel_can_make_are_soon_not_tried() {
    let mut server = Server::new();
    let mut tried = 0;
    for _ in 0..1_000 {
        let began = server.now;
        let _held = server.begin(Trigger::Copy, 0);
        let by_kernel = began < server.state.copies.by_kernel_until_ns();
        tried += usize::from(by_kernel);
        server.launch();
        // By chance those are shorter.
        server.now = began + if by_kernel { MS } else { 2 * MS };
        server.finish();
        server.now += 8 * MS + began % 7 * MS / 3;
    }
    assert!((1..=8).contains(&tried), "{tried} of 1000 requests");
}

#[test]
fn kernel_makes_the_copies_of_requests_with_a_lead_once_that_shortens_them_and_no_longer() {
    let mut server = Server::new();
    let mut planned: Option<HoldPlan> = None;
    let mut by_kernel = Vec::new();
    for at in 0..12_000 {
        let due = (2_000 + at * 20) * MS;
        // As the manager of a node with a second group does, from the first request on.
        server.state.set_wanted_lead(MS, true);
        let hold = planned.take().filter(|hold| {
            server.now = hold.starts_ns.max(server.now);
            server.state.take_due(hold.ticket)
        });
        server.now = due + at % 2 * 3 * US;
        let held = server.begin(Trigger::Copy, 0).is_ok() || hold.is_some();
        let copies = server.now < server.state.copies.by_kernel_until_ns();
        if copies {
            server.state.copies.made_by_kernel();
        }
        by_kernel.push(copies);
        server.launch();
        planned = server.state.predict_next(server.now);
        // A neighbour copies during the first 1,000 requests.
        let engine_ns = if at < 1_000 { 500 * US } else { 0 };
        let longer_ns = if copies { 42 * US } else { engine_ns };
        server.now += if held { MS } else { 1100 * US } + longer_ns;
        server.finish();
    }
    let made = |of: &[bool]| of.iter().filter(|by_kernel| **by_kernel).count();
    assert!(made(&by_kernel[500..1_000]) > 490, "{} of 500", made(&by_kernel[500..1_000]));
    assert!(made(&by_kernel[11_900..]) < 5, "{} of 100", made(&by_kernel[11_900..]));
}
