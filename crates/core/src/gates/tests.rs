//! The gates in simulated time.

use super::*;
use proptest::prelude::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const BUSY: Activity = Activity { busy: true, since_ns: 0 };

fn idle_since(since_ns: u64) -> Activity {
    Activity { busy: false, since_ns }
}

#[test]
fn they_are_closed_while_somebody_is_busy_and_for_a_moment_after_that() {
    let mut gates = Gates::new(GatePolicy::default());
    assert_eq!((gates.look(S, [].into_iter()), gates.wake_at()), (Gating::Unwanted, None));
    assert_eq!(gates.look(S, [idle_since(0)].into_iter()), Gating::Open);
    assert_eq!(gates.look(S + MS, [idle_since(0), BUSY].into_iter()), Gating::Closed);
    let done = S + 2 * MS;
    assert_eq!(gates.look(done + 499 * US, [idle_since(done)].into_iter()), Gating::Closed);
    assert_eq!(gates.wake_at(), Some(done + 749 * US));
    assert_eq!(gates.look(done + 500 * US, [idle_since(done)].into_iter()), Gating::Open);
}

#[test]
fn the_death_of_the_only_busy_one_opens_them() {
    let mut gates = Gates::new(GatePolicy::default());
    assert_eq!(gates.look(S, [BUSY, idle_since(0)].into_iter()), Gating::Closed);
    assert_eq!(gates.look(S, [idle_since(0)].into_iter()), Gating::Open);
    assert_eq!(gates.look(S, [BUSY].into_iter()), Gating::Closed);
    assert_eq!(gates.look(S, [].into_iter()), Gating::Unwanted);
}

/// Looks when it is asked to, and says how long the gates were open and closed, and how often they were opened by force.
fn run(gates: &mut Gates, from: u64, span: u64, activity: impl Fn(u64) -> Vec<Activity>) -> (u64, u64, u32) {
    let (mut now, mut open, mut closed, mut forced) = (from, 0, 0, 0);
    while now < from + span {
        let before = gates.state();
        let state = gates.look(now, activity(now).into_iter());
        forced += u32::from(state == Gating::Forced && before != Gating::Forced);
        let next = gates.wake_at().unwrap_or(from + span).min(from + span).max(now + 1);
        if state.is_closed() {
            closed += next - now;
        } else {
            open += next - now;
        }
        now = next;
    }
    (open, closed, forced)
}

#[test]
fn somebody_who_is_always_busy_leaves_the_others_the_least_share() {
    let mut gates = Gates::new(GatePolicy::default());
    let (open, closed, forced) = run(&mut gates, S, 20 * S, |_| vec![BUSY]);
    assert!((0.049..0.051).contains(&(open as f64 / (open + closed) as f64)), "{open} of {}", open + closed);
    assert!((19..=20).contains(&forced), "{forced}");
}

#[test]
fn nobody_is_let_through_by_force_while_the_others_leave_enough() {
    let mut gates = Gates::new(GatePolicy::default());
    // 5 ms of 10.
    let half = |now: u64| {
        vec![if now % (10 * MS) < 5 * MS { BUSY } else { idle_since(now - now % (10 * MS) + 5 * MS) }]
    };
    assert_eq!(run(&mut gates, S, 20 * S, half).2, 0);
}

#[test]
fn a_least_share_of_nothing_is_nothing() {
    let policy = GatePolicy { least_open: Share::ZERO, ..GatePolicy::default() };
    assert_eq!(run(&mut Gates::new(policy), S, 20 * S, |_| vec![BUSY]).0, 0);
}

proptest! {
    /// Whatever they do: after a look the gates are closed only if somebody is or was just busy, and over any time from the
    /// beginning they are open for the least share of it, but for what may be owed at most.
    #[test]
    fn they_are_never_closed_for_nobody_nor_for_too_long(
        spans in proptest::collection::vec((1..2000u64, 0..4u8), 1..60),
        percent in 1..50u32,
    ) {
        let least_open = Share::from_ppm(percent * 10_000).unwrap();
        let policy = GatePolicy { least_open, ..GatePolicy::default() };
        let mut gates = Gates::new(policy);
        let (mut now, mut open, mut closed) = (S, 0_u64, 0_u64);
        for (ms, kind) in spans {
            let (begun, end) = (now, now + ms * MS);
            while now < end {
                let critical = match kind {
                    0 => vec![],
                    1 => vec![idle_since(begun)],
                    2 => vec![BUSY],
                    _ => vec![idle_since(begun), Activity { busy: true, since_ns: begun }],
                };
                let state = gates.look(now, critical.clone().into_iter());
                let disturbed = critical.iter().any(|a| a.idle_for(now).is_none_or(|idle| idle < policy.idle_ns));
                prop_assert!(!state.is_closed() || disturbed);
                prop_assert_eq!(state.is_wanted(), !critical.is_empty());
                let next = gates.wake_at().unwrap_or(end).clamp(now + 1, end);
                if state.is_closed() { closed += next - now } else { open += next - now }
                now = next;
                let promised = least_open.of(open + closed);
                let owed = least_open.of(policy.period_ns) + policy.look_ns;
                prop_assert!(open + owed >= promised, "open {open} of {}", open + closed);
            }
        }
    }
}
