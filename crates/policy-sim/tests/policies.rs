//! What the policies give to clients, on the scenarios of examples/simulation and others.
#![allow(clippy::unwrap_used, reason = "tests")]

mod queueing_model;

use queueing_model::PreemptiveQueue;
use serde_json::Value;
use sluice_policy_sim::scenario::{Arrivals, HostTimes};
use sluice_policy_sim::{PolicyName, Report, Scenario, scenario, simulate};
use strum::VariantArray;

const S: u64 = 1_000_000_000;

fn read(text: &str) -> Scenario {
    scenario::parse(text, &|name| Err(format!("no file {name}"))).unwrap()
}

fn example(name: &str) -> Scenario {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/simulation");
    read(&std::fs::read_to_string(format!("{folder}/{name}.yaml")).unwrap())
}

/// A recorded run of docs/benchmarks.
fn recorded(name: &str) -> Value {
    let path = format!("{}/../../docs/benchmarks/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Asserts that docs/design/performance-model.md has these rows of a table.
fn page_has(rows: &[String]) {
    let page = format!("{}/../../docs/design/performance-model.md", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(page).unwrap();
    let missing: Vec<&str> = rows.iter().map(String::as_str).filter(|row| !page.contains(row)).collect();
    assert!(missing.is_empty(), "the page lacks\n{}", missing.join("\n"));
}

/// Two trainings with these requests.
fn trainings(requests: [f64; 2]) -> Scenario {
    let [first, second] = requests;
    read(&format!(
        "clients:
  - {{ name: first, request: {first}, memory: 1 }}
  - {{ name: second, request: {second}, memory: 1 }}
workloads:
  - {{ client: first, service: {{ kind: training, step: 30ms }} }}
  - {{ client: second, service: {{ kind: training, step: 30ms }} }}
"
    ))
}

/// The client's share in the seconds `seconds`, of the GPU time of all clients in it.
fn share(report: &Report, client: usize, seconds: std::ops::Range<usize>) -> f64 {
    let sum =
        |client: usize| report.clients[client].per_second_ns[seconds.clone()].iter().sum::<u64>() as f64;
    sum(client) / (0..report.clients.len()).map(sum).sum::<f64>()
}

#[test]
fn gpu_has_one_client_at_a_time_and_every_nanosecond_is_counted_once() {
    for name in ["service-beside-training", "two-trainings-after-stall"] {
        let mut scenario = example(name);
        scenario.span_ns = 10 * S;
        for policy in PolicyName::VARIANTS.iter().copied() {
            let report = simulate(&scenario, policy);
            let used: u64 = report.clients.iter().flat_map(|client| &client.per_second_ns).sum();
            let counted = used + report.switching_ns + report.idle_ns;
            assert_eq!(counted, scenario.span_ns, "{name}: {}", report.policy);
            let sum = |client: usize| {
                let intervals = report.timeline.iter().filter(|interval| interval.client == client);
                intervals.map(|interval| interval.to_ns - interval.from_ns).sum::<u64>()
            };
            for (index, client) in report.clients.iter().enumerate() {
                let had = client.per_second_ns.iter().sum::<u64>();
                assert_eq!(had, sum(index), "{name}: {}: {}", report.policy, client.name);
                // It had the GPU for the work that it has done, and at most for one request more.
                let burst_ns = scenario.workloads[index].service.burst_ns;
                let done_ns = client.requests as u64 * burst_ns;
                let case = format!("{name}: {}: {} had {had} for {done_ns}", report.policy, client.name);
                assert!((done_ns..=done_ns + burst_ns).contains(&had), "{case}");
            }
            let overlap = report.timeline.windows(2).find(|pair| pair[0].to_ns > pair[1].from_ns);
            assert_eq!(overlap, None, "{name}: {}", report.policy);
        }
    }
}

#[test]
fn gpu_idles_while_work_waits_only_under_geminis_grants_and_for_controls_of_sluice() {
    let scenario = example("service-beside-training");
    for policy in PolicyName::VARIANTS.iter().copied() {
        let report = simulate(&scenario, policy);
        let part = report.idle_while_work_waits_ns as f64 / report.span_ns as f64;
        match policy {
            // A service keeps its grant of 100 ms and executes for 6 ms of it.
            PolicyName::Gemini => assert!(part > 0.1, "{part}"),
            PolicyName::Sluice => assert!(part < 0.01, "{part}"),
            // Each hold begins some time before its request.
            PolicyName::SluiceWithHolds => assert!((0.005..0.03).contains(&part), "{part}"),
            _ => assert_eq!(report.idle_while_work_waits_ns, 0, "{}", report.policy),
        }
    }
}

#[test]
fn sluice_gives_two_trainings_their_requests_within_one_point() {
    let report = simulate(&trainings([0.3, 0.7]), PolicyName::Sluice);
    for (client, expected) in [(0, 0.3), (1, 0.7)] {
        let got = share(&report, client, 0..60);
        assert!((got - expected).abs() < 0.01, "client {client}: {got}");
    }
    let used: f64 = report.clients.iter().map(|client| client.share).sum();
    assert!(used > 0.98, "{used} of the GPU is used");
}

#[test]
fn service_waits_for_a_switch_under_sluice_for_slices_under_time_slicing_and_for_grants_under_gemini() {
    let scenario = example("service-beside-training");
    let p99 = |policy| simulate(&scenario, policy).clients[0].p99_ms;
    let order = [
        PolicyName::SluiceWithHolds,
        PolicyName::Sluice,
        PolicyName::TimeSlicing,
        PolicyName::Exponential,
        PolicyName::Gemini,
    ];
    let [held, found @ ..] = order.map(p99);
    assert!(found.is_sorted(), "{found:?}");
    // A hold hides the switch.
    assert!((0.62..0.63).contains(&held), "{held}");
    // 0.62 ms of its own, and a switch of 0.187 ms.
    assert!((0.807..0.82).contains(&found[0]), "{found:?}");
    // A slice of the training of 2.048 ms is added.
    assert!((2.8..2.86).contains(&found[1]), "{found:?}");
}

/// How far the share of the first client is from one half in the second of the span in which it is farthest.
fn farthest(report: &Report, seconds: std::ops::Range<usize>) -> f64 {
    seconds.map(|second| (share(report, 0, second..second + 1) - 0.5).abs()).fold(0.0, f64::max)
}

#[test]
fn geminis_window_repeats_a_stall_of_four_seconds_each_ten_seconds_and_the_ledger_forgets_it() {
    let scenario = example("two-trainings-after-stall");
    let spans = [24..34, 34..44, 44..54, 54..64, 64..74, 74..84];
    let swings = |policy| {
        let report = simulate(&scenario, policy);
        spans.clone().map(|span| farthest(&report, span))
    };
    let (gemini, sluice) = (swings(PolicyName::Gemini), swings(PolicyName::Sluice));
    let row = |name: &str, swings: &[f64; 6]| {
        let cells: Vec<String> = swings.iter().map(|swing| format!("{swing:.2}")).collect();
        format!("| `{name}` | {} |", cells.join(" | "))
    };
    page_has(&[row("gemini", &gemini), row("sluice", &sluice)]);
    // What follows is the stall's: without one, no second is as far off.
    let undisturbed = simulate(&Scenario { stalls: Vec::new(), ..scenario.clone() }, PolicyName::Gemini);
    let calm = farthest(&undisturbed, 24..84);
    assert!(calm < 0.1, "{calm}");
    // In each 10 s one of the two has nearly all of at least one second.
    assert!(gemini.iter().all(|swing| *swing > 0.4), "{gemini:?}");
    // Within a second no client is further off than by a quantum.
    assert!(sluice.iter().all(|swing| *swing < 0.06), "{sluice:?}");
}

#[test]
fn same_seed_gives_the_same_report_and_another_seed_another_one() {
    let mut scenario = example("service-beside-training");
    scenario.span_ns = 5 * S;
    for policy in PolicyName::VARIANTS.iter().copied() {
        let first = simulate(&scenario, policy);
        assert_eq!(first, simulate(&scenario, policy));
        let mut other = scenario.clone();
        other.seed += 1;
        assert_ne!(first, simulate(&other, policy));
    }
}

#[test]
fn simulated_response_and_rest_are_those_of_the_queueing_model_within_two_percent() {
    let mut rows = Vec::new();
    for (distribution, factor) in [("constant", 1.0), ("exponential", 2.0)] {
        for mean_between_us in [5_000_u32, 1_000] {
            let scenario = read(&format!(
                "duration: 200s
policies: [sluice, priority]
clients:
  - {{ name: service, request: 0.9, memory: 1, class: latency-critical }}
  - {{ name: training, request: 0.05, memory: 1 }}
workloads:
  - client: service
    arrivals: {{ kind: poisson, mean: {mean_between_us}us }}
    service: {{ kind: graph, burst: 250us, distribution: {distribution} }}
  - {{ client: training, service: {{ kind: training, step: 30ms }} }}
"
            ));
            let service_ns = 250_000.0;
            let model = PreemptiveQueue {
                rate: 1.0 / (f64::from(mean_between_us) * 1e3),
                service_ns,
                service_squared: factor * service_ns * service_ns,
                preempt_ns: scenario.gpu.preempt_ns as f64,
                switch_ns: scenario.gpu.switch_ns as f64,
            };
            for policy in &scenario.policies {
                let report = simulate(&scenario, *policy);
                let near = |got: f64, expected: f64, what: &str| {
                    let off = (got / expected - 1.0).abs();
                    let case = format!("{} {distribution} {mean_between_us}", report.policy);
                    assert!(off < 0.02, "{case}: {what} {got}, computed {expected}");
                };
                let (mean_us, share) = (report.clients[0].mean_ms * 1e3, report.clients[1].share);
                near(mean_us * 1e3, model.response_ns(), "response");
                near(share, model.left(), "rest");
                rows.push(format!(
                    "| {} a second, {distribution} | `{}` | {:.1} | {mean_us:.1} | {:.4} | {share:.4} |",
                    1_000_000 / mean_between_us,
                    report.policy,
                    model.response_ns() / 1e3,
                    model.left()
                ));
            }
        }
    }
    page_has(&rows);
}

#[test]
fn every_kind_of_arrivals_brings_its_requests() {
    let scenario = |arrivals: &str| {
        format!(
            "duration: 10s
clients: [{{ name: a, request: 0, memory: 1 }}]
workloads: [{{ client: a, arrivals: {{ {arrivals} }}, service: {{ kind: decode, burst: 1ms, gap: 1ms, bursts: 3 }} }}]
"
        )
    };
    // A request takes 5 ms alone.
    for (arrivals, requests) in [
        ("kind: periodic, every: 10ms, jitter: 3ms", 998..=1000),
        ("kind: poisson, mean: 10ms", 900..=1100),
        ("kind: bursts, every: 1s, requests: 7", 63..=63),
        ("kind: closed, think: 5ms", 1000..=1000),
        ("kind: trace, file: times", 3..=3),
    ] {
        let file = |_: &str| Ok("10ms\n10ms\n1s\n".to_owned());
        let scenario = scenario::parse(&scenario(arrivals), &file).unwrap();
        let report = simulate(&scenario, PolicyName::TimeSlicing);
        let finished = report.clients[0].requests;
        assert!(requests.contains(&finished), "{arrivals}: {finished}");
        assert!(report.clients[0].p50_ms >= 5.0, "{arrivals}: {}", report.clients[0].p50_ms);
    }
}

/// A policy's simulation beside what was measured on a GPU.
struct Compared<'a> {
    case: &'a str,
    scenario: &'a Scenario,
    policy: PolicyName,
    /// p99 of the service alone and beside best effort, µs.
    alone_us: f64,
    measured_us: f64,
    /// Best effort's rate over its rate alone, and the part of its time for which the service had no requests.
    kept: f64,
    without_service: f64,
    /// The most by which the simulated part may differ from the kept one.
    most: f64,
}

impl Compared<'_> {
    /// A row of the page. The program itself takes longer than its work on the GPU, so the difference is added to what it took alone.
    fn row(&self) -> String {
        let report = simulate(self.scenario, self.policy);
        let (mut alone, mut others) = (self.scenario.clone(), self.scenario.clone());
        alone.clients.truncate(1);
        alone.workloads.truncate(1);
        others.clients.remove(0);
        others.workloads.remove(0);
        let p99_us = |report: &Report| report.clients[0].p99_ms * 1e3;
        let rest = |report: &Report, skip| report.clients.iter().skip(skip).map(|client| client.share).sum();
        let simulated_us =
            self.alone_us + p99_us(&report) - p99_us(&simulate(&alone, PolicyName::TimeSlicing));
        let beside: f64 = rest(&report, 1);
        let others: f64 = rest(&simulate(&others, self.policy), 0);
        let simulated = beside + (others - beside) * self.without_service;
        let off = simulated_us / self.measured_us - 1.0;
        let row = format!(
            "| {} | `{}` | {:.0} | {simulated_us:.0} | {:+.1} % | {:.3} | {simulated:.3} |",
            self.case,
            report.policy,
            self.measured_us,
            off * 100.0,
            self.kept,
        );
        assert!(off.abs() < 0.1 && (simulated - self.kept).abs() < self.most, "{row}");
        row
    }
}

/// The service of tests/gpu/short_requests.py: its kernel takes 0.2 ms, and a request alone 34 µs longer. How the host's time is divided is not
/// known, and changes p99 by 10 µs. By time slicing the GPU is nearly busy, and p99 differs between minutes.
fn short_requests() -> Scenario {
    let mut scenario = example("random-requests");
    scenario.span_ns = 600 * S;
    let service = &mut scenario.workloads[0].service;
    service.burst_ns = 200_000;
    service.host = HostTimes { before_ns: 10_000, prepare_ns: 10_000, after_ns: 14_000 };
    scenario
}

#[test]
fn p99_of_the_service_is_within_ten_percent_of_the_gpus_and_best_effort_within_two_points() {
    let number = |value: &Value| value.as_f64().unwrap();
    let levels = recorded("preempt");
    let is_case =
        |row: &&Value| row["be_kernel_us"] == 1000 && row["level"] == "full" && row["hint"] == false;
    let row = levels["rows"].as_array().unwrap().iter().find(is_case).unwrap();
    let kernels = example("requests-beside-kernels");
    let mut rows = Vec::new();
    for (policy, arm, kept) in [
        (PolicyName::Sluice, "lc_sluice_us", "be_kept"),
        (PolicyName::TimeSlicing, "lc_stock_us", "be_kept_stock"),
    ] {
        let compared = Compared {
            case: "kernel of 100 µs beside kernels of 1 ms",
            scenario: &kernels,
            policy,
            alone_us: number(&row["lc_alone_us"]["p99"]),
            measured_us: number(&row[arm]["p99"]),
            kept: number(&row[kept]),
            without_service: 0.0,
            most: 0.02,
        };
        rows.push(compared.row());
    }
    let (one, two) = (example("service-beside-training"), example("service-beside-two-trainings"));
    let (mut late, short) = (one.clone(), short_requests());
    late.workloads[0].arrivals = Arrivals::Periodic { every_ns: 10_000_000, jitter_ns: 5_000_000 };
    let (beside_one, beside_two) = ("ResNet-50 beside a training", "ResNet-50 beside two trainings");
    let (sluice, holds, slicing) = (PolicyName::Sluice, PolicyName::SluiceWithHolds, PolicyName::TimeSlicing);
    // tests/gpu: 600 requests in 6 s, trainings of 6.4 s; 900 in 3 s, a training of 3.3 s.
    let (serve, requests) = (0.4 / 6.4, 0.3 / 3.3);
    for (case, run, alone, arm, scenario, policy, without_service) in [
        (beside_one, "serve", "alone", "plain1", &one, sluice, serve),
        (beside_one, "serve", "alone", "stock1", &one, slicing, serve),
        (beside_two, "serve", "alone", "plain2", &two, sluice, serve),
        (beside_two, "serve", "alone", "stock2", &two, slicing, serve),
        (beside_one, "serve", "alone", "auto1", &one, holds, serve),
        (beside_two, "serve", "alone", "auto2", &two, holds, serve),
        ("ResNet-50, up to 5 ms late", "random", "alone-random", "plain1-random", &late, sluice, serve),
        ("random requests of 0.23 ms", "short-requests-97191883", "alone", "sluice", &short, holds, requests),
        (
            "random requests of 0.23 ms",
            "short-requests-97191883",
            "alone",
            "stock",
            &short,
            slicing,
            requests,
        ),
    ] {
        let recorded = &recorded(run)["rows"];
        let kept = recorded[arm].get("be_sum").or(recorded[arm].get("kept")).unwrap();
        let compared = Compared {
            case,
            scenario,
            policy,
            alone_us: number(&recorded[alone]["p99"]),
            measured_us: number(&recorded[arm]["p99"]),
            kept: number(kept),
            without_service,
            // Two trainings under time slicing are the row that is off by more.
            most: if arm == "stock2" { 0.022 } else { 0.02 },
        };
        rows.push(compared.row());
    }
    page_has(&rows);
}
