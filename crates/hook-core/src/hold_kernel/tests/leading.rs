//! Hold kernels that lead by a second group's time slice.

use super::*;

const LEAD: u64 = MS;

/// Requests every 20 ms from `due` on. The first one is late by `late_ns`, as after a pause, and `second_group` tells whether it finds a second
/// group enabled. Afterwards there is one where the lead is reported. Returns for each whether the lead was reported after it.
fn every_twenty_ms(server: &mut Server, mut due: u64, late_ns: u64, second_group: bool) -> Vec<bool> {
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
        let has_second_group = if at == 0 { second_group } else { server.state.kept_lead_ns() > 0 };
        server.state.set_wanted_lead(LEAD, has_second_group);
        server.launch();
        kept.push(server.state.kept_lead_ns() > 0);
        planned = server.state.predict_next(server.now);
        server.now = began + if held { 1000 * US } else { 1100 * US };
        server.finish();
        due += 20 * MS;
    }
    kept
}

fn first_kept(kept: &[bool]) -> Option<usize> {
    kept.iter().position(|kept| *kept)
}

#[test]
fn lead_is_reported_within_a_second_and_stays_over_a_pause_after_which_requests_come_as_before() {
    let mut server = Server::new();
    let kept = every_twenty_ms(&mut server, 2_000 * MS, 0, false);
    // Eight requests establish the interval.
    assert!(first_kept(&kept).is_some_and(|first| first < 45), "{:?}", first_kept(&kept));
    for pause in 1..6 {
        let kept = every_twenty_ms(&mut server, (2_000 + pause * 12_000) * MS, MS, true);
        assert_eq!(kept, [true; 400], "pause {pause}");
    }
}

#[test]
fn lead_is_reported_soon_after_each_pause_in_which_the_second_group_was_disabled() {
    let mut server = Server::new();
    every_twenty_ms(&mut server, 2_000 * MS, 0, false);
    for pause in 1..20 {
        let kept = every_twenty_ms(&mut server, (2_000 + pause * 12_000) * MS, MS, false);
        assert!(
            first_kept(&kept).is_some_and(|first| (30..40).contains(&first)),
            "pause {pause}: {:?}",
            first_kept(&kept)
        );
    }
}

#[test]
fn requests_that_are_kept_from_having_a_hold_kernel_end_the_lead() {
    let mut server = Server::new();
    every_twenty_ms(&mut server, 2_000 * MS, 0, false);
    assert!(server.state.kept_lead_ns() > 0);
    // In a context that cannot hold the GPU, for example: no request begins.
    for at in 0..5 {
        server.now = (20_000 + at * 20) * MS;
        server.state.set_wanted_lead(LEAD, true);
        server.launch();
        server.now += MS;
        server.finish();
    }
    assert_eq!(server.state.kept_lead_ns(), 0);
}
