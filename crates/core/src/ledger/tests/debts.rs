//! A client repays what its own long kernels took from the others before it runs again.

use super::simulation::{Habit, Simulation};
use super::*;

const BUSY: Option<Habit> = Some(Habit::Busy { overuse_ns: 0 });

/// A client of which each grant lasts two seconds.
const LONG: Option<Habit> = Some(Habit::Busy { overuse_ns: 1_950 * MS });

/// Two clients with these requests and limits and habits.
fn two(first: (ClientSpec, Option<Habit>), second: (ClientSpec, Option<Habit>)) -> Simulation {
    Simulation::new(Policy::default(), &[first, second])
}

/// The shares of the two clients in the second minute: the first one may contain a debt.
fn shares(gpu: &mut Simulation) -> (f64, f64) {
    gpu.run_until(240 * S);
    let share = |client: usize| gpu.had[client].share_between(60 * S, 240 * S);
    (share(0), share(1))
}

#[test]
fn request_holds_beside_a_client_whose_kernels_last_two_seconds() {
    for request in [0.05, 0.1, 0.3, 0.5] {
        let mut gpu = two((spec(request, 1.0), LONG), (spec(1.0 - request, 1.0), BUSY));
        let (long, neighbour) = shares(&mut gpu);
        assert!((long - request).abs() <= 0.03, "{long} of {request}");
        assert!(neighbour >= 1.0 - request - 0.03, "{neighbour} beside {request}");
    }
}

#[test]
fn limit_holds_for_a_client_whose_kernels_last_two_seconds() {
    let mut gpu = two((spec(0.1, 0.1), LONG), (spec(0.1, 1.0), BUSY));
    let (long, neighbour) = shares(&mut gpu);
    assert!((long - 0.1).abs() <= 0.03, "{long}");
    assert!(neighbour >= 0.87, "{neighbour}");
}

/// The pauses of a program that synchronizes with its GPU are no gaps for kernels of two seconds.
#[test]
fn request_holds_for_a_client_that_pauses_for_a_moment_after_each_burst() {
    let pausing = Some(Habit::Pausing { use_ns: 40 * MS, pause_ns: 2 * MS });
    let mut gpu = two((spec(0.1, 1.0), LONG), (spec(0.9, 1.0), pausing));
    let (long, neighbour) = shares(&mut gpu);
    // The neighbour's pauses, a twentieth of its time, repay as well.
    assert!(long <= 0.14, "{long}");
    assert!(neighbour >= 0.82, "{neighbour}: it pauses for a twentieth of the time that is left");
}

/// A client that pauses is not active, and would have the whole GPU as its weight if it alone were.
#[test]
fn debt_is_repaid_no_faster_while_its_client_pauses() {
    let mut gpu = two((spec(0.1, 1.0), LONG), (spec(0.9, 1.0), BUSY));
    // After its first kernel it pauses.
    gpu.run_until(S);
    gpu.habit(0, None);
    gpu.run_until(6 * S);
    gpu.habit(0, BUSY);
    gpu.run_until(14 * S);
    let share = gpu.had[0].share_between(6 * S, 14 * S);
    assert!(share <= 0.01, "{share} of the GPU, within 18 s after a kernel of two seconds at request 0.1");
}

/// The other client hardly works, and would be there for ever.
#[test]
fn debt_is_repaid_at_once_by_time_for_which_nobody_uses_the_gpu() {
    let rare = Some(Habit::Pausing { use_ns: MS, pause_ns: 90 * MS });
    let mut gpu = two((spec(0.0, 1.0), LONG), (spec(0.99, 1.0), rare));
    gpu.run_until(3 * S);
    gpu.habit(0, BUSY);
    gpu.run_until(20 * S);
    let share = gpu.had[0].share_between(8 * S, 20 * S);
    assert!(share >= 0.9, "{share} of a GPU that is idle otherwise");
}

#[test]
fn kernel_longer_than_the_timeout_is_repaid_in_full_once_its_process_reports_it() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    ask(&mut ledger, 1, 10 * MS);
    ledger.advance(10 * MS);
    let revoked_at = ledger.next_deadline().unwrap();
    assert_eq!(revoked_at, 2_050 * MS);
    ledger.advance(revoked_at);
    // Its kernel of 3 s ends. It reports what it used after its deadline of 50 ms.
    ledger.returned(ProcessId(0), 3 * S, 3 * S, 2_950 * MS).unwrap();
    ledger.advance(3 * S);
    assert_eq!(ledger.usage(ClientId(0), 3 * S).unwrap().charged_ns, 3 * S);
    // What it reports again counts no more.
    ledger.returned(ProcessId(0), 4 * S, 3 * S, 2_950 * MS).unwrap();
    ledger.advance(4 * S);
    assert_eq!(ledger.usage(ClientId(0), 4 * S).unwrap().charged_ns, 3 * S);
}

/// It runs a kernel of two seconds alone; the other client comes after 1.9 s of it.
#[test]
fn only_time_for_which_another_client_waited_is_owed() {
    for limit in [1.0, 0.9] {
        let mut gpu = two((spec(0.1, limit), LONG), (spec(0.9, 1.0), None));
        gpu.run_until(1_900 * MS);
        gpu.habit(1, BUSY);
        gpu.habit(0, BUSY);
        gpu.run_until(12 * S);
        let share = gpu.had[0].share_between(3 * S, 12 * S);
        assert!(share >= 0.07, "{share} after a delay of 100 ms, limit {limit}");
    }
}

#[test]
fn debt_ends_when_no_other_client_is_left() {
    let mut gpu = two((spec(0.1, 1.0), LONG), (spec(0.9, 1.0), BUSY));
    gpu.run_until(10 * S);
    let before = gpu.had[0].runs.len();
    assert!(before <= 2, "it owes 1.95 s of the GPU, which take 19.5 s: {before}");
    gpu.habit(0, BUSY);
    gpu.habit(1, None);
    gpu.run_until(12 * S);
    let share = gpu.had[0].share_between(10 * S + 500 * MS, 12 * S);
    assert!(share >= 0.95, "{share} of the GPU that nobody else uses");
}

#[test]
fn reload_changes_no_debt() {
    let mut gpu = two((spec(0.1, 1.0), LONG), (spec(0.9, 1.0), BUSY));
    gpu.run_until(10 * S);
    for (client, request) in [(0, 0.1), (1, 0.9)] {
        gpu.ledger.set_client(ClientId(client), spec(request, 1.0), gpu.now);
    }
    gpu.run_until(20 * S);
    let share = gpu.had[1].share_between(10 * S, 20 * S);
    assert!(share >= 0.95, "{share}: the other client runs its debt of 19.5 s down");
}
