//! Two latency-critical services and a training on one GPU (case L3 of issue 15): a ResNet-50 each 10 ms with an SLO of 2 ms,
//! and a decode service with random requests and without an SLO. The decisions are the product's: `BurstAdmission` in each
//! process, `DeadlineOrder` in the manager. The GPU and the hosts are a model with the times of the H200
//! (docs/reference/gpu.md); the manager reads and the threads wake with the latencies measured there.

mod decode;
mod gpu;
mod manager;
mod resnet;
mod world;

use world::{Report, Setup, World};

const ALL: Setup =
    Setup { resnet: true, decode: true, training: true, predictable: true, holds: true, deadlines: true };

fn run(setup: Setup) -> Report {
    let mut world = World::new(setup);
    world.run(60);
    world.report()
}

fn alone_resnet() -> Report {
    run(Setup { decode: false, training: false, ..ALL })
}

#[test]
fn periodic_service_keeps_its_latency_beside_one_with_a_later_deadline() {
    for holds in [true, false] {
        let setup = Setup { holds, ..ALL };
        let (alone, with, without) = (alone_resnet(), run(setup), run(Setup { deadlines: false, ..setup }));
        let ratio = |report: &Report| report.resnet.p99 as f64 / alone.resnet.p99 as f64;
        assert!(ratio(&with) <= 1.35, "p99 {:.2} x alone: {with:?}", ratio(&with));
        // Without deadlines a request waits for a token of 1.2 ms that has just begun.
        let more = without.resnet.p99.saturating_sub(with.resnet.p99);
        assert!((700_000..1_600_000).contains(&more), "{more} ns more without deadlines: {without:?}");
    }
}

#[test]
fn unpredictable_service_waits_for_the_burst_in_flight_and_for_no_other() {
    let setup = Setup { predictable: false, ..ALL };
    let (alone, with) = (alone_resnet(), run(setup));
    // A token, and two context switches.
    let most = alone.resnet.p99 + 1_200_000 + 380_000;
    assert!(with.resnet.p99 <= most, "more than {most}: {with:?}");
}

#[test]
fn service_with_the_later_deadline_loses_one_token_in_several() {
    let decode = run(Setup { resnet: false, training: false, ..ALL });
    let (with, without) = (run(ALL), run(Setup { deadlines: false, ..ALL }));
    let ratio = |ns: u64| ns as f64 / decode.token.p50 as f64;
    assert!(ratio(with.token.p50) <= 1.15, "median {:.2} x alone: {with:?}", ratio(with.token.p50));
    assert!(ratio(with.token.mean) <= 1.6, "mean {:.2} x alone: {with:?}", ratio(with.token.mean));
    // The bound on one burst, and a request of the other service behind it.
    assert!(with.token.max <= 5_000_000 + decode.token.max + 2_000_000, "{with:?}");
    assert!(with.postponed_ns > 0 && without.postponed_ns == 0);
}

#[test]
fn training_keeps_what_the_services_leave() {
    let (with, without) = (run(ALL), run(Setup { deadlines: false, ..ALL }));
    assert!(with.training >= without.training - 0.01, "{} {}", with.training, without.training);
}

#[test]
fn later_service_alone_with_a_training_is_never_postponed() {
    let report = run(Setup { resnet: false, ..ALL });
    assert_eq!(report.postponed_ns, 0);
    let off = run(Setup { resnet: false, deadlines: false, ..ALL });
    assert_eq!(report.token, off.token);
}
