//! Requests at a steady pace: the next one is held for before it is there.

use super::*;

/// Requests every 10 ms, each beginning `jitter` late or early by turns, until the next one is foreseen and held for; the
/// server stands where that hold was planned, right behind a launch, and knows when that request began.
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
        let planned = server.machine.predict_next(server.now);
        if at > 80
            && let Some(hold) = planned
        {
            return (server, hold, due + 10 * MS);
        }
        server.now = began + if held { 1000 * US } else { 1100 * US };
        server.finish();
        // This one is let go by: the hold of the next begins with its copy.
    }
    unreachable!()
}

#[test]
fn a_request_that_is_due_is_held_for_before_any_call_of_the_program() {
    let (mut server, hold, due) = in_step(20 * US);
    assert!((due - 700 * US..due - 200 * US).contains(&hold.starts_ns), "{} before", due - hold.starts_ns);
    assert!(hold.starts_ns + hold.timeout_ns > due + 400 * US, "it outlasts a hiccup of the host's");
    server.now += MS;
    server.finish();
    server.now = hold.starts_ns;
    assert!(server.machine.take_due(hold.ticket));
    server.now = due;
    assert_eq!(
        server.begin(Trigger::Copy, 0),
        Err(HoldRefusal::AlreadyBegun),
        "its copy needs no hold of its own"
    );
    server.now += 60 * US;
    assert_eq!(server.launch(), Some(hold.ticket));
}

/// Requests every 10 ms from `due` on; how many were held for ahead, and when the next would be due.
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
            server.machine.take_due(hold.ticket)
        });
        ahead += u32::from(hold.is_some());
        server.now = due + if at % 2 == 0 { 3 * US } else { 0 };
        let began = server.now;
        let held = server.begin(Trigger::Copy, 0).is_ok() || hold.is_some();
        server.now += 60 * US;
        server.launch();
        planned = server.machine.predict_next(server.now);
        server.now = began + if held { 1000 * US } else { 1100 * US };
        server.finish();
        due += 10 * MS;
    }
    (ahead, due)
}

#[test]
fn a_service_that_pauses_is_held_for_ahead_again_but_for_its_first_request() {
    let mut server = Server::new();
    let (_, due) = every_ten_ms(&mut server, 2_000 * MS, 600, None);
    for pause in 1..5 {
        // It reads a sum, and is then idle for seconds: the hold behind that is for nothing.
        server.now = due + pause * 10_000 * MS - 2_000 * MS;
        let _begun = server.begin(Trigger::Copy, 0);
        server.launch();
        let planned = server.machine.predict_next(server.now).expect("it may go on");
        server.now += MS;
        server.finish();
        server.now = planned.starts_ns;
        assert!(server.machine.take_due(planned.ticket));
        let (ahead, _) = every_ten_ms(&mut server, due + pause * 10_000 * MS, 600, None);
        assert_eq!(ahead, 599, "of 600 after pause {pause}");
    }
}

#[test]
fn a_request_that_does_not_come_teaches_nothing_about_those_that_do() {
    let mut server = Server::new();
    every_ten_ms(&mut server, 2_000 * MS, 600, None);
    for burst in 10..20 {
        let (ahead, next) = every_ten_ms(&mut server, burst * 1_000 * MS, 20, None);
        assert!(ahead >= 18, "{ahead} of 20 in burst {burst}, one of which may be the trial's");
        let hold = server.machine.predict_next(server.now).expect("believed");
        assert!((200 * US..800 * US).contains(&(next - hold.starts_ns)), "{} before", next - hold.starts_ns);
        server.now = hold.starts_ns;
        assert!(server.machine.take_due(hold.ticket));
    }
}

#[test]
fn who_comes_when_its_hold_is_over_is_held_for_as_any_other() {
    let (mut server, hold, _) = in_step(20 * US);
    server.now += MS;
    server.finish();
    server.now = hold.starts_ns;
    assert!(server.machine.take_due(hold.ticket));
    server.now += hold.timeout_ns + 3 * MS;
    let own = server.begin(Trigger::Copy, 0).or_else(|_| {
        // Unless this one is the trial's.
        server.launch();
        server.finish();
        server.begin(Trigger::Copy, 0)
    });
    assert_ne!(own.expect("its own hold").ticket, hold.ticket);
}

#[test]
fn a_request_that_comes_before_its_hold_is_held_for_as_any_other() {
    let (mut server, hold, due) = in_step(20 * US);
    server.now += MS;
    server.finish();
    server.now = due - 5 * MS;
    let own = server.begin(Trigger::Copy, 0).expect("copies are held for");
    assert_ne!(own.ticket, hold.ticket);
    assert!(!server.machine.take_due(hold.ticket));
    server.now += 60 * US;
    assert_eq!(server.launch(), Some(own.ticket));
}

#[test]
fn nothing_is_held_for_while_the_last_request_is_still_at_work() {
    let (mut server, hold, _) = in_step(20 * US);
    server.now = hold.starts_ns;
    assert!(!server.machine.take_due(hold.ticket));
    assert!(!server.machine.is_active());
}

#[test]
fn who_is_alone_by_then_holds_nothing() {
    let (mut server, hold, _) = in_step(20 * US);
    server.now += MS;
    server.finish();
    server.machine.set_contenders(0);
    assert!(!server.machine.take_due(hold.ticket));
}

#[test]
fn without_leave_nothing_is_foreseen() {
    let mut server = Server::new();
    server.machine = HoldKernelState::new(Settings { automatic: false, ..Settings::default() });
    server.machine.set_contenders(1);
    server.launch();
    server.finish();
    for _ in 0..60 {
        assert!(server.begin(Trigger::Hint, 300 * US).is_ok());
        server.launch();
        assert_eq!(server.machine.predict_next(server.now), None);
        server.finish();
        server.now += 10 * MS;
    }
}

#[test]
fn foreseen_holds_end_where_they_do_not_pay() {
    let mut server = Server::new();
    let (mut due, mut held_lately, mut planned) = (server.now, 0, None::<HoldPlan>);
    for at in 0..600 {
        due += 10 * MS;
        if let Some(hold) = planned {
            server.now = hold.starts_ns;
            assert!(server.machine.take_due(hold.ticket));
            held_lately += u32::from(at > 400);
        }
        server.now = due;
        let began = server.now;
        let _begun = server.begin(Trigger::Copy, 0);
        server.now += 60 * US;
        server.launch();
        server.now = began + if planned.is_some() { 1300 * US } else { 1000 * US };
        planned = server.machine.predict_next(server.now);
        server.finish();
    }
    assert_eq!(held_lately, 0);
}

/// A copy, as the hook makes it known.
fn copy(hints: &HoldKernels, now: u64) {
    if hints.is_armed() {
        let _begun = hints.begin_request(Trigger::Copy, now, 0);
    } else if hints.watches_copies() {
        assert!(hints.request_arrived(now));
    }
}

#[test]
fn a_request_that_was_held_for_ahead_is_timed_from_its_first_copy_like_any_other() {
    let hints = HoldKernels::new(Settings::default());
    hints.set_contenders(1);
    hints.launch_submitted(0);
    hints.work_finished(1, || 1);
    let (mut due, mut held_lately, mut planned) = (1_000 * MS, 0, None::<HoldPlan>);
    for at in 0..600 {
        due += 10 * MS;
        let held = planned.is_some_and(|hold| hints.take_due(hold.ticket));
        held_lately += u32::from(held && at > 400);
        assert!(hints.watches_copies());
        copy(&hints, due);
        assert!(!hints.watches_copies(), "the second copy is of no interest");
        // What the hold costs falls upon the preparation, before the launch.
        let launched = due + if held { 500 * US } else { 100 * US };
        hints.launch_submitted(launched);
        planned = hints.predict_next(launched);
        hints.host_wait_ended(launched + MS);
        hints.work_finished(launched + MS, || at);
    }
    assert_eq!(held_lately, 0);
}
