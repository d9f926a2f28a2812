//! Whether holds pay: what counts, and what follows from it.

use super::*;

#[test]
fn holds_end_where_they_do_not_pay_and_come_back_once_they_do() {
    let mut server = Server::new();
    (0..60).for_each(|_| _ = server.request(60 * US, 1300 * US, 1000 * US));
    assert_eq!(server.request(60 * US, 1300 * US, 1000 * US), None);
    // The neighbours come and go all the time, which is no reason to try again.
    server.machine.set_contenders(0);
    server.machine.set_contenders(2);
    assert_eq!(server.request(60 * US, 1300 * US, 1000 * US), None);
    (0..400).for_each(|_| _ = server.request(60 * US, 900 * US, 1000 * US));
    assert!(server.request(60 * US, 900 * US, 1000 * US).is_some());
}

#[test]
fn a_launch_without_a_copy_is_held_only_where_that_is_proven_to_pay() {
    for (held, kept) in [(1000 * US, false), (900 * US, true)] {
        let mut server = Server::new();
        for _ in 0..60 {
            let began = server.now;
            let hold = server.begin(Trigger::Launch, 0);
            server.launch();
            server.now = began + if hold.is_ok() { held } else { 1000 * US };
            server.finish();
        }
        assert_eq!(server.begin(Trigger::Launch, 0).is_ok(), kept);
    }
}

#[test]
fn a_hold_that_the_driver_refused_is_not_counted_as_one() {
    let mut server = Server::new();
    for at in 0..60 {
        let began = server.now;
        if let Ok(hold) = server.begin(Trigger::Copy, 0) {
            server.machine.launch_failed(hold.ticket);
            assert!(!server.machine.is_active());
        }
        server.launch();
        server.now = began + if at % 2 == 0 { 2 * MS } else { MS };
        server.finish();
    }
    assert!(server.begin(Trigger::Copy, 0).is_ok(), "what was never held was not found wanting");
}

#[test]
fn only_requests_whose_end_was_seen_count_for_or_against_holds() {
    for seen in [true, false] {
        let hints = HoldKernels::new(Settings::default());
        hints.set_contenders(1);
        hints.launch_submitted(0);
        hints.work_finished(1, || 1);
        let mut now = 0;
        let held = (0..100)
            .filter(|_| {
                now += 10 * MS;
                let held = hints.begin_request(Trigger::Copy, now, 0).is_ok();
                hints.launch_submitted(now);
                now += if held { 2 * MS } else { MS };
                if seen {
                    hints.host_wait_ended(now);
                }
                hints.work_finished(now, || 1);
                held
            })
            .count();
        assert!(if seen { held < 50 } else { held == 100 }, "{held} were held");
    }
}
