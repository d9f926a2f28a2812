//! No disturbance that a client did not cause has a lasting effect: clients are ahead or behind by a bounded time.

use super::simulation::{Habit, Simulation};
use super::*;

const BUSY: Option<Habit> = Some(Habit::Busy { overuse_ns: 0 });

/// Two busy clients of 0.5 after two seconds.
fn halves() -> Simulation {
    let mut gpu = Simulation::new(Policy::default(), &[(spec(0.5, 1.0), BUSY), (spec(0.5, 1.0), BUSY)]);
    gpu.run_until(2 * S);
    gpu
}

/// From two seconds after `from` on, both have a half of every second, apart from one grant.
fn assert_halves(gpu: &mut Simulation, from: u64) {
    gpu.run_until(from + 12 * S);
    for second in 2..12 {
        let (start, end) = (from + second * S, from + (second + 1) * S);
        for had in &gpu.had {
            let share = had.share_between(start, end);
            assert!((share - 0.5).abs() <= 0.101, "{share} in second {second}");
        }
    }
}

#[test]
fn stop_of_the_manager_gives_no_client_an_advantage() {
    let mut gpu = halves();
    let goes_on = gpu.now + 4 * S;
    gpu.owner_stops_until(goes_on);
    assert_eq!(gpu.ledger.holders().count(), 0);
    assert_halves(&mut gpu, goes_on);
    let charged = |id| gpu.ledger.usage(ClientId(id), gpu.now).unwrap().charged_ns;
    let sum = charged(0) + charged(1);
    assert!(sum <= gpu.now - 4 * S, "{} ms are charged of {}", sum / MS, (gpu.now - 4 * S) / MS);
}

#[test]
fn client_that_held_the_gpu_alone_shares_it_at_once() {
    let mut gpu = Simulation::new(Policy::default(), &[(spec(0.5, 1.0), BUSY), (spec(0.5, 1.0), None)]);
    gpu.run_until(10 * S);
    gpu.habit(1, BUSY);
    gpu.run_until(11 * S);
    let late = gpu.had[0].share_between(10 * S, 11 * S);
    assert!((late - 0.5).abs() <= 0.1, "{late} in the first second together");
}

/// A client of small weight uses 25 s of its share at once, and five others do so after it. Then a client of a better level leaves, and
/// the first client is entitled to more than a half.
#[test]
fn client_whose_weight_grows_does_not_wait_because_lighter_clients_are_further_ahead() {
    let class = |class, request| (ClientSpec { class, ..spec(request, 1.0) }, BUSY);
    let light = |class| (ClientSpec { class, ..spec(0.0, 1.0) }, Some(Habit::Busy { overuse_ns: 300 * MS }));
    let mut clients = vec![class(Class::High, 0.0), class(Class::Normal, 0.4), light(Class::Normal)];
    clients.extend([light(Class::BestEffort); 5]);
    let mut gpu = Simulation::new(Policy::default(), &clients);
    gpu.run_until(4 * S);
    assert!(gpu.had[2..].iter().all(|had| had.runs.len() == 1), "each of them has run once");
    gpu.habit(0, None);
    gpu.habit(2, BUSY);
    gpu.run_until(10 * S);
    let share = gpu.had[2].share_between(6 * S, 10 * S);
    assert!((0.5..0.7).contains(&share), "{share}");
}

/// It is counted from when it comes, whatever it is entitled to.
#[test]
fn new_client_shares_the_gpu_at_once_and_is_not_ahead() {
    let half = (spec(0.3, 1.0), BUSY);
    let mut gpu = Simulation::new(Policy::default(), &[half, half, (spec(0.3, 1.0), None)]);
    gpu.ledger.remove_client(ClientId(2), 0);
    gpu.run_until(5 * S);
    gpu.ledger.set_client(ClientId(2), spec(0.3, 1.0), gpu.now);
    gpu.ledger.add_process(ProcessId(2), ClientId(2), ReturnKind::Returns).unwrap();
    gpu.habit(2, BUSY);
    gpu.run_until(6 * S);
    let share = gpu.had[2].share_between(5 * S, 6 * S);
    assert!((share - 0.333).abs() <= 0.1, "{share} in the first second");
}

/// The holder's grant was extended last 45 ms before the other client comes.
#[test]
fn client_that_comes_is_not_behind_by_time_for_which_the_holder_was_alone() {
    let mut gpu = Simulation::new(Policy::default(), &[(spec(0.1, 1.0), BUSY), (spec(0.9, 1.0), None)]);
    gpu.run_until(1_040 * MS);
    gpu.habit(1, BUSY);
    gpu.run_until(3 * S);
    let runs = &gpu.had[0].runs;
    let last_alone = runs.iter().position(|(_, end, _)| *end > 1_040 * MS).unwrap();
    let wait = runs[last_alone + 1].0 - runs[last_alone].1;
    // It took 10 ms while the other one waited, and has a tenth of the time.
    assert!(wait <= 150 * MS, "{} ms", wait / MS);
}

/// Why the lag against the share of all has no bound of one quantum: docs/design/bounds.md.
#[test]
fn heavy_client_may_wait_for_a_quantum_of_each_light_one() {
    let mut clients = vec![(spec(0.01, 1.0), BUSY); 9];
    clients.push((spec(0.9, 1.0), BUSY));
    let mut gpu = Simulation::new(Policy::default(), &clients);
    gpu.run_until(20 * S);
    let first = gpu.had[9].runs[0].0;
    assert!((450 * MS..460 * MS).contains(&first), "{} ms", first / MS);
    assert!(gpu.had[9].longest_wait < 460 * MS, "{} ms", gpu.had[9].longest_wait / MS);
}
