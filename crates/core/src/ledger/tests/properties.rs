//! Properties for arbitrary clients.

use super::simulation::{Habit, Simulation};
use super::*;
use proptest::prelude::*;

/// Requests in percent that add up to at most 100, each at least 3. A grant of 100 ms is half a percentage point of 20
/// s: a smaller client deviates by more than a point when the 20 s end between two of its grants.
fn requests() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(3u32..=60, 1..6)
        .prop_filter("more than one GPU", |all| all.iter().sum::<u32>() <= 100)
}

proptest! {
    #[test]
    fn busy_clients_get_shares_in_proportion_to_their_requests(all in requests(), overuse in 0u64..3) {
        let busy = Some(Habit::Busy { overuse_ns: overuse * MS });
        let clients: Vec<_> = all.iter().map(|percent| (spec(f64::from(*percent) / 100.0, 1.0), busy)).collect();
        let mut gpu = Simulation::new(Policy::default(), &clients);
        gpu.run_until(20 * S);
        let sum = f64::from(all.iter().sum::<u32>());
        for (had, percent) in gpu.had.iter().zip(&all) {
            let (got, expected) = (had.share_between(0, 20 * S), f64::from(*percent) / sum);
            prop_assert!((got - expected).abs() <= 0.01, "{} instead of {} of {:?}", got, expected, all);
        }
    }

    #[test]
    fn limits_and_requests_hold_beside_any_other_clients(
        all in requests(),
        limits in prop::collection::vec(0u32..=40, 6),
        pauses in prop::collection::vec(prop::option::of((1u64..80, 1u64..400)), 6),
    ) {
        let clients: Vec<_> = all.iter().zip(limits.iter().zip(&pauses)).map(|(percent, (more, pause))| {
            let habit = pause.map_or(Habit::Busy { overuse_ns: MS }, |(run, pause)| Habit::Pausing {
                use_ns: run * MS,
                pause_ns: pause * MS,
            });
            let limit = (percent + more).min(100);
            (spec(f64::from(*percent) / 100.0, f64::from(limit) / 100.0), Some(habit))
        }).collect();
        let mut gpu = Simulation::new(Policy::default(), &clients);
        gpu.run_until(20 * S);
        let mut sum = 0.0;
        for (index, had) in gpu.had.iter().enumerate() {
            let got = had.share_between(0, 20 * S);
            let (request, limit) = (clients[index].0.request.as_fraction(), clients[index].0.limit.as_fraction());
            prop_assert!(got <= limit + 0.01, "client {} got {} over its limit {}", index, got, limit);
            if matches!(clients[index].1, Some(Habit::Busy { .. })) {
                prop_assert!(got >= request - 0.015, "client {} got {} below its request {}", index, got, request);
            }
            sum += got;
        }
        prop_assert!(sum <= 1.0 + 1e-9, "more than the whole GPU was granted: {}", sum);
    }

    #[test]
    fn charges_are_conserved(
        steps in prop::collection::vec((0u64..4, 0u64..8, 0u64..60, any::<u64>()), 1..300)
    ) {
        let mut ledger = ledger_of(Policy::default(), &[spec(0.3, 1.0), spec(0.5, 0.6)]);
        ledger.add_process(ProcessId(2), ClientId(0), ReturnKind::ByTimer).unwrap();
        ledger.add_process(ProcessId(3), ClientId(1), ReturnKind::Returns).unwrap();
        let (mut now, mut held_sum) = (0, 0);
        for (process, what, wait, used) in steps {
            now += wait * MS;
            let id = ProcessId(process);
            match what {
                0 | 1 => drop(ledger.request(id, now, GrantRequest { burst_ns: used, overuse_ns: used })),
                2 => drop(ledger.returned(id, now, used, used / 2)),
                3 => {
                    ledger.process_gone(id, now);
                    let kind = if process == 2 { ReturnKind::ByTimer } else { ReturnKind::Returns };
                    let _ = ledger.add_process(id, ClientId(u64::from(process % 2 == 1)), kind);
                }
                _ => {}
            }
            let actions = ledger.advance(now);
            prop_assert!(ledger.next_deadline().is_none_or(|at| at > now), "the next deadline lies in the future");
            for (_, held, charged) in ended(&actions) {
                prop_assert!(charged <= held);
                held_sum += held;
            }
            prop_assert!(ledger.holders().count() <= 2, "one holder, and one with short bursts");
        }
        prop_assert!(held_sum <= 2 * now, "held {} of {}", held_sum, now);
        let charged: u64 = (0..2).map(|id| ledger.usage(ClientId(id), now).unwrap().charged_ns).sum();
        // Overuse after a grant that ended by timer is charged in addition to the client that ran in that time.
        prop_assert!(charged <= 2 * now);
        // A waiting process gets a grant.
        for _ in 0..40 {
            ledger.advance(now);
            now = ledger.next_deadline().unwrap_or(now);
        }
        let holders: Vec<ClientId> = ledger.holders().map(|(client, _)| client).collect();
        prop_assert!(ledger.waiting().next().is_none() || !holders.is_empty(), "no client holds a grant while a process waits");
    }
}
