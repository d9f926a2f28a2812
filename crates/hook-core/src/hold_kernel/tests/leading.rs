//! Hold kernels that lead by a second group's time slice.

use super::*;

const LEAD: u64 = MS;

/// Requests every 20 ms from `due` on. The first one is late by `late_ns`, as after a pause, and finds the manager asking for `lead_ns`; the
/// others find it asking for a lead. Returns for each whether the lead was reported after it.
fn every_twenty_ms(server: &mut Server, mut due: u64, late_ns: u64, lead_ns: u64) -> Vec<bool> {
    let mut planned: Option<HoldPlan> = None;
    let mut kept = Vec::new();
    for at in 0..400 {
        let hold = planned.take().filter(|hold| {
            server.now = hold.starts_ns.max(server.now);
            server.state.take_due(hold.ticket)
        });
        if hold.is_some() {
            server.state.predicted_hold_launched(server.now);
        }
        server.now = due + if at == 0 { late_ns } else { at % 2 * 3 * US };
        let began = server.now;
        let held = server.begin(Trigger::Copy, 0).is_ok() || hold.is_some();
        server.now += 60 * US;
        server.launch();
        kept.push(server.state.set_wanted_lead(if at == 0 { lead_ns } else { LEAD }) > 0);
        planned = server.state.predict_next(server.now);
        server.now = began + if held { 1000 * US } else { 1100 * US };
        server.finish();
        due += 20 * MS;
    }
    kept
}

#[test]
fn lead_is_reported_within_a_second_and_stays_over_a_pause_after_which_requests_come_as_before() {
    let mut server = Server::new();
    let kept = every_twenty_ms(&mut server, 2_000 * MS, 0, LEAD);
    // Eight requests establish the interval.
    let first = kept.iter().position(|kept| *kept);
    assert!(first.is_some_and(|first| first < 45), "{first:?}");
    for pause in 1..6 {
        let kept = every_twenty_ms(&mut server, (2_000 + pause * 12_000) * MS, MS, LEAD);
        assert_eq!(kept, [true; 400], "pause {pause}");
    }
}

#[test]
fn lead_is_reported_soon_after_a_pause_in_which_it_was_not_wanted() {
    let mut server = Server::new();
    every_twenty_ms(&mut server, 2_000 * MS, 0, LEAD);
    for pause in 1..6 {
        let kept = every_twenty_ms(&mut server, (2_000 + pause * 12_000) * MS, MS, 0);
        let first = kept.iter().position(|kept| *kept);
        assert!(first.is_some_and(|first| first < 40), "{first:?} after pause {pause}");
    }
}
