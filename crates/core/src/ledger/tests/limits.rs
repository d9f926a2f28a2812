//! Limits hold without long pauses, and changes apply at once.

use super::simulation::{Habit, Simulation};
use super::*;

#[test]
fn client_limited_to_half_gets_half_without_long_stalls() {
    let busy = Some(Habit::Busy { overuse_ns: 15 * MS });
    let mut gpu = Simulation::new(Policy::default(), &[(spec(0.5, 0.5), busy)]);
    gpu.run_until(20 * S);
    let share = gpu.had[0].share_between(0, 20 * S);
    assert!((share - 0.5).abs() <= 0.01, "{share}");
    assert!(gpu.had[0].longest_stall() < 200 * MS, "{}", gpu.had[0].longest_stall());
}

#[test]
fn small_limit_pauses_for_less_than_the_limit_period() {
    let busy = Some(Habit::Busy { overuse_ns: 0 });
    let mut gpu = Simulation::new(Policy::default(), &[(spec(0.05, 0.05), busy)]);
    gpu.run_until(20 * S);
    let share = gpu.had[0].share_between(0, 20 * S);
    assert!((share - 0.05).abs() <= 0.005, "{share}");
    assert!(gpu.had[0].longest_stall() <= 200 * MS, "{}", gpu.had[0].longest_stall());
}

#[test]
fn time_beyond_a_limit_goes_to_the_other_client() {
    let busy = Some(Habit::Busy { overuse_ns: 0 });
    let clients = [(spec(0.3, 0.3), busy), (spec(0.1, 1.0), busy)];
    let mut gpu = Simulation::new(Policy::default(), &clients);
    gpu.run_until(20 * S);
    let (first, second) = (gpu.had[0].share_between(0, 20 * S), gpu.had[1].share_between(0, 20 * S));
    assert!((first - 0.3).abs() <= 0.01, "{first}");
    assert!((second - 0.7).abs() <= 0.01, "{second}");
}

#[test]
fn changed_limit_applies_at_once() {
    let busy = Some(Habit::Busy { overuse_ns: 0 });
    let mut gpu = Simulation::new(Policy::default(), &[(spec(0.1, 1.0), busy)]);
    gpu.run_until(5 * S);
    gpu.ledger.set_client(ClientId(0), spec(0.1, 0.2), gpu.now);
    gpu.run_until(10 * S);
    let share = gpu.had[0].share_between(5 * S, 10 * S);
    assert!((share - 0.2).abs() <= 0.02, "{share}");
}

#[test]
fn limited_client_that_waits_is_granted_when_its_credit_suffices() {
    let mut ledger = ledger_of(Policy::default(), &[spec(0.5, 0.5)]);
    ask(&mut ledger, 0, 0);
    assert_eq!(granted(&ledger.advance(0)), [(0, Deadline::At(50 * MS))]);
    ledger.returned(ProcessId(0), 50 * MS, 50 * MS, 0).unwrap();
    ask(&mut ledger, 0, 50 * MS);
    assert_eq!(granted(&ledger.advance(50 * MS)), []);
    // 25 ms of the 50 ms were earned and 10 ms were saved up: the missing 15 ms take 30 ms at limit 0.5.
    assert_eq!(ledger.next_deadline(), Some(80 * MS));
    assert_eq!(granted(&ledger.advance(80 * MS)), [(0, Deadline::At(130 * MS))]);
}

/// Two processes of one client with this limit, alone on the GPU. Work of the first one waits for work of the second, which requests a grant
/// only when the first one's deadline has passed. Returns how long the second one waits, in each of a few rounds.
fn waits_of_a_pair(limit: f64) -> Vec<u64> {
    let mut ledger = ledger_of(Policy::default(), &[spec(limit, limit)]);
    ledger.add_process(ProcessId(1), ClientId(0), ReturnKind::Returns).unwrap();
    let (mut now, mut waits) = (0, Vec::new());
    ask(&mut ledger, 0, now);
    ledger.advance(now);
    for _ in 0..6 {
        let (_, deadline) = ledger.holders().next().unwrap();
        let requested = deadline + 100 * MS;
        ask(&mut ledger, 1, requested);
        ledger.advance(requested);
        loop {
            now = ledger.next_deadline().unwrap();
            if granted(&ledger.advance(now)).iter().any(|(process, _)| *process == 1) {
                break;
            }
        }
        waits.push(now - requested);
        // The second one has work of a millisecond, and the work of the first one ends then. Both go on.
        now += MS;
        ledger.returned(ProcessId(0), now, now - deadline, now - deadline).unwrap();
        ask(&mut ledger, 0, now);
        ledger.advance(now);
        ledger.returned(ProcessId(1), now + MS, 2 * MS, 0).unwrap();
        ledger.advance(now + MS);
    }
    waits
}

/// They wait for the return timeout and until the client's limit has earned this time, twice at most: 4 s of each `4 s / limit`.
#[test]
fn processes_that_wait_for_each_other_do_not_wait_longer_each_time_for_their_limit() {
    for percent in [10, 30, 50] {
        let longest = 420 * S / percent;
        let waits = waits_of_a_pair(percent as f64 / 100.0);
        assert!(waits.iter().all(|wait| *wait <= longest), "limit of {percent} %: {waits:?}");
    }
}

/// Work of one process runs on after its grant while another one holds grants: it is the same time of the GPU.
#[test]
fn late_work_beside_grants_of_a_sibling_is_not_charged_twice() {
    let mut ledger = ledger_of(Policy::default(), &[spec(0.3, 1.0), spec(0.3, 1.0)]);
    ledger.add_process(ProcessId(2), ClientId(0), ReturnKind::Returns).unwrap();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    ask(&mut ledger, 1, 0);
    let revoked = 50 * MS + Policy::default().return_timeout_ns;
    ledger.advance(revoked);
    ledger.returned(ProcessId(1), revoked + MS, MS, 0).unwrap();
    let mut now = revoked + MS;
    ask(&mut ledger, 2, now);
    ledger.advance(now);
    for _ in 0..100 {
        now += 50 * MS;
        ledger.returned(ProcessId(2), now, 50 * MS, 0).unwrap();
        ask(&mut ledger, 2, now);
        ledger.advance(now);
    }
    ledger.returned(ProcessId(0), now, now - 50 * MS, now - 50 * MS).unwrap();
    let charged_ns = ledger.usage(ClientId(0), now).unwrap().charged_ns;
    assert!((now - 60 * MS..=now).contains(&charged_ns), "{charged_ns} of {now}");
}
