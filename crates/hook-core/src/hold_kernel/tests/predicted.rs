//! Requests at regular intervals: the hold kernel starts before the next one arrives.

use super::*;

/// Runs requests every 10 ms, alternately late and early by `jitter`, until the next one is predicted with a hold kernel. Returns the server
/// just after a launch, that hold kernel, and when its request is due.
fn in_step(jitter: u64) -> (Server, HoldPlan, u64) {
    let mut server = Server::new();
    let mut due = server.now;
    for at in 0.. {
        due += 10 * MS;
        server.now = if at % 2 == 0 { due + jitter } else { due - jitter };
        let began = server.now;
        let held = server.begin(Trigger::Copy, 0).is_ok();
        server.now += 60 * US;
        server.launch();
        let planned = server.state.predict_next(server.now);
        if at > 80
            && let Some(hold) = planned
        {
            return (server, hold, due + 10 * MS);
        }
        server.now = began + if held { 1000 * US } else { 1100 * US };
        server.finish();
        // This request passes without one: the hold kernel of the next begins with its copy.
    }
    unreachable!()
}

#[test]
fn predicted_request_gets_its_hold_kernel_before_any_call() {
    let (mut server, hold, due) = in_step(20 * US);
    assert!((due - 700 * US..due - 200 * US).contains(&hold.starts_ns), "{} before", due - hold.starts_ns);
    assert!(hold.starts_ns + hold.timeout_ns > due + 400 * US, "it outlasts a delay of the host");
    server.now += MS;
    server.finish();
    server.now = hold.starts_ns;
    assert!(server.state.take_due(hold.ticket));
    server.now = due;
    assert_eq!(
        server.begin(Trigger::Copy, 0),
        Err(HoldRefusal::AlreadyBegun),
        "its copy needs no hold kernel"
    );
    server.now += 60 * US;
    assert_eq!(server.launch(), Some(hold.ticket));
}

#[test]
fn errors_of_predictions_are_those_of_the_requests_and_none_before_there_is_a_prediction() {
    assert_eq!(Server::new().state.prediction_errors_ns(), [0, 0]);
    for jitter in [20 * US, 40 * US] {
        let (server, ..) = in_step(jitter);
        let [arrival, preparation] = server.state.prediction_errors_ns();
        assert!((jitter / 2..=2 * jitter).contains(&arrival), "{arrival} ns for a jitter of {jitter}");
        assert!(preparation < 10 * US, "each launch comes 60 µs after the copy: {preparation} ns");
    }
}

/// Runs requests every 10 ms from `due` on. Returns how many had a predicted hold kernel, and when the next is due.
fn every_ten_ms(
    server: &mut Server,
    mut due: u64,
    requests: u32,
    mut planned: Option<HoldPlan>,
) -> (u32, u64) {
    let mut ahead = 0;
    for at in 0..requests {
        let hold = planned.take().filter(|hold| {
            server.now = hold.starts_ns.max(server.now);
            server.state.take_due(hold.ticket)
        });
        ahead += u32::from(hold.is_some());
        server.now = due + if at % 2 == 0 { 3 * US } else { 0 };
        let began = server.now;
        let held = server.begin(Trigger::Copy, 0).is_ok() || hold.is_some();
        server.now += 60 * US;
        server.launch();
        planned = server.state.predict_next(server.now);
        server.now = began + if held { 1000 * US } else { 1100 * US };
        server.finish();
        due += 10 * MS;
    }
    (ahead, due)
}

#[test]
fn predictions_resume_after_a_pause_from_the_second_request() {
    let mut server = Server::new();
    let (_, due) = every_ten_ms(&mut server, 2_000 * MS, 600, None);
    for pause in 1..5 {
        // One more request, then a pause of seconds: the hold kernel after it is useless.
        server.now = due + pause * 10_000 * MS - 2_000 * MS;
        let _begun = server.begin(Trigger::Copy, 0);
        server.launch();
        let planned = server.state.predict_next(server.now).expect("the next request is predicted");
        server.now += MS;
        server.finish();
        server.now = planned.starts_ns;
        assert!(server.state.take_due(planned.ticket));
        let (ahead, _) = every_ten_ms(&mut server, due + pause * 10_000 * MS, 600, None);
        assert_eq!(ahead, 599, "of 600 after pause {pause}");
    }
}

#[test]
fn missing_request_does_not_move_later_predictions() {
    let mut server = Server::new();
    every_ten_ms(&mut server, 2_000 * MS, 600, None);
    for burst in 10..20 {
        let (ahead, next) = every_ten_ms(&mut server, burst * 1_000 * MS, 20, None);
        assert!(ahead >= 18, "{ahead} of 20 in burst {burst}, one of which may be a sample without");
        let hold = server.state.predict_next(server.now).expect("an established interval");
        assert!((200 * US..800 * US).contains(&(next - hold.starts_ns)), "{} before", next - hold.starts_ns);
        server.now = hold.starts_ns;
        assert!(server.state.take_due(hold.ticket));
    }
}

#[test]
fn request_after_its_predicted_hold_kernel_gets_another() {
    let (mut server, hold, _) = in_step(20 * US);
    server.now += MS;
    server.finish();
    server.now = hold.starts_ns;
    assert!(server.state.take_due(hold.ticket));
    server.now += hold.timeout_ns + 3 * MS;
    let own = server.begin(Trigger::Copy, 0).or_else(|_| {
        // Unless this request is a sample without.
        server.launch();
        server.finish();
        server.begin(Trigger::Copy, 0)
    });
    assert_ne!(own.expect("a hold kernel of its own").ticket, hold.ticket);
}

#[test]
fn request_before_its_predicted_hold_kernel_gets_its_own() {
    let (mut server, hold, due) = in_step(20 * US);
    server.now += MS;
    server.finish();
    server.now = due - 5 * MS;
    let own = server.begin(Trigger::Copy, 0).expect("copies begin hold kernels");
    assert_ne!(own.ticket, hold.ticket);
    assert!(!server.state.take_due(hold.ticket));
    server.now += 60 * US;
    assert_eq!(server.launch(), Some(own.ticket));
}

#[test]
fn no_predicted_hold_kernel_while_the_last_request_runs() {
    let (mut server, hold, _) = in_step(20 * US);
    server.now = hold.starts_ns;
    assert!(!server.state.take_due(hold.ticket));
    assert!(!server.state.is_active());
}

#[test]
fn no_predicted_hold_kernel_without_contenders() {
    let (mut server, hold, _) = in_step(20 * US);
    server.now += MS;
    server.finish();
    server.state.set_contenders(0);
    assert!(!server.state.take_due(hold.ticket));
}

#[test]
fn no_prediction_without_automatic_hold_kernels() {
    let mut server = Server::new();
    server.state = HoldKernelState::new(Settings { automatic: false, ..Settings::default() });
    server.state.set_contenders(1);
    server.launch();
    server.finish();
    for _ in 0..60 {
        assert!(server.begin(Trigger::Hint, 300 * US).is_ok());
        server.launch();
        assert_eq!(server.state.predict_next(server.now), None);
        server.finish();
        server.now += 10 * MS;
    }
}

#[test]
fn predicted_hold_kernels_end_without_benefit() {
    let mut server = Server::new();
    let (mut due, mut held_lately, mut planned) = (server.now, 0, None::<HoldPlan>);
    for at in 0..600 {
        due += 10 * MS;
        if let Some(hold) = planned {
            server.now = hold.starts_ns;
            assert!(server.state.take_due(hold.ticket));
            held_lately += u32::from(at > 400);
        }
        server.now = due;
        let began = server.now;
        let _begun = server.begin(Trigger::Copy, 0);
        server.now += 60 * US;
        server.launch();
        server.now = began + if planned.is_some() { 1300 * US } else { 1000 * US };
        planned = server.state.predict_next(server.now);
        server.finish();
    }
    assert_eq!(held_lately, 0);
}

/// A copy, as the hook reports it.
fn copy(controller: &HoldKernels, now: u64) {
    if controller.is_armed() {
        let _begun = controller.with(|state| state.begin_request(Trigger::Copy, now, 0));
    } else if controller.watches_copies() {
        assert!(controller.request_arrived(now));
    }
}

#[test]
fn predicted_request_is_timed_from_its_first_copy() {
    let controller = HoldKernels::new(Settings::default());
    controller.set_contenders(1);
    controller.with(|state| state.launch_submitted(0));
    controller.work_finished(1, || 1);
    let (mut due, mut held_lately, mut planned) = (1_000 * MS, 0, None::<HoldPlan>);
    for at in 0..600 {
        due += 10 * MS;
        let held = planned.is_some_and(|hold| controller.with(|state| state.take_due(hold.ticket)));
        held_lately += u32::from(held && at > 400);
        assert!(controller.watches_copies());
        copy(&controller, due);
        assert!(!controller.watches_copies(), "the second copy does not matter");
        // The cost of the hold kernel falls into the preparation, before the launch.
        let launched = due + if held { 500 * US } else { 100 * US };
        controller.with(|state| state.launch_submitted(launched));
        planned = controller.with(|state| state.predict_next(launched));
        controller.host_wait_ended(launched + MS, false);
        controller.work_finished(launched + MS, || at);
    }
    assert_eq!(held_lately, 0);
}
