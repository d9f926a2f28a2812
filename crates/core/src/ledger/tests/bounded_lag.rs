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
