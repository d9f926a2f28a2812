//! Pre-empt or wait by the SLO, then by energy: the table of docs/design/energy.md, and what the rule keeps.
#![allow(clippy::unwrap_used, reason = "tests")]

use sluice_policy_sim::energy::PowerModel;
use sluice_policy_sim::{PolicyName, Report, Scenario, scenario, simulate};

const MS: u64 = 1_000_000;
const SLO_NS: u64 = 5 * MS;
/// Seed 002's estimate: 44 MB read and written at 10 pJ a byte.
const ESTIMATE_J: f64 = 0.9e-3;
/// All that the GPU draws in the time of a switch, as if a preemption needed no time without it: more than it can cost.
const MOST_J: f64 = 95e-3;

/// Requests of 1 ms at random times, 100 a second, beside kernels of so many microseconds without end.
fn beside_kernels(us: u64) -> Scenario {
    let text = format!(
        "seed: 3
duration: 60s
clients:
  - {{ name: service, request: 0.3, memory: 1, class: latency-critical, slo: 5ms }}
  - {{ name: kernels, request: 0.1, memory: 1 }}
workloads:
  - client: service
    arrivals: {{ kind: poisson, mean: 10ms }}
    service: {{ kind: graph, burst: 1ms }}
  - {{ client: kernels, service: {{ kind: training, step: {us}us }} }}
"
    );
    scenario::parse(&text, &|_| unreachable!()).unwrap()
}

/// Joules for a second of the kernels' execution, without the service's own energy, which is the same under each policy.
fn joules_per_second(report: &Report, preemption_j: f64) -> f64 {
    let power = PowerModel { idle_w: 130.0, clients_w: vec![0.0, 670.0], switch_w: 500.0, preemption_j };
    power.joules(report) / (report.clients[1].share * report.span_ns as f64 / 1e9)
}

struct Row {
    preempts: Report,
    waits: Report,
}

impl Row {
    fn new(us: u64) -> Self {
        let scenario = beside_kernels(us);
        Self {
            preempts: simulate(&scenario, PolicyName::Priority),
            waits: simulate(&scenario, PolicyName::SloThenEnergy),
        }
    }

    /// The part of the energy that waiting saves.
    fn saved(&self, preemption_j: f64) -> f64 {
        1.0 - joules_per_second(&self.waits, preemption_j) / joules_per_second(&self.preempts, preemption_j)
    }

    fn cells(&self) -> String {
        let latency = |report: &Report| {
            let service = &report.clients[0];
            let within = service.part_within(SLO_NS);
            format!("{:.2}, {:.2}, {within:.4}", service.p50_ms, service.p99_ms)
        };
        let a_second = |report: &Report| report.preemptions as f64 * 1e9 / report.span_ns as f64;
        format!(
            "{} | {} | {:.0}, {:.0} | {:.3} %, {:.2} %",
            latency(&self.preempts),
            latency(&self.waits),
            a_second(&self.preempts),
            a_second(&self.waits),
            100.0 * self.saved(ESTIMATE_J),
            100.0 * self.saved(MOST_J),
        )
    }
}

#[test]
fn table_of_preempting_or_waiting_by_slo_then_energy() {
    let rows = [500, 1_000, 2_000, 4_000].map(|us| format!("| {us} µs | {} |", Row::new(us).cells()));
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/energy.md");
    let page = std::fs::read_to_string(page).unwrap();
    let missing: Vec<&str> = rows.iter().map(String::as_str).filter(|row| !page.contains(row)).collect();
    assert!(missing.is_empty(), "the page lacks\n{}", missing.join("\n"));
}

#[test]
fn waiting_saves_little_energy_and_lengthens_requests() {
    for us in [500, 1_000, 2_000, 4_000] {
        let row = Row::new(us);
        assert!(row.waits.preemptions < row.preempts.preemptions, "{us}");
        assert!((0.0..0.005).contains(&row.saved(ESTIMATE_J)), "{us}: {}", row.saved(ESTIMATE_J));
        assert!((0.01..0.02).contains(&row.saved(MOST_J)), "{us}: {}", row.saved(MOST_J));
        let p50_ms = |report: &Report| report.clients[0].p50_ms;
        assert!(p50_ms(&row.waits) > 1.1 * p50_ms(&row.preempts), "{us}");
    }
}

#[test]
fn request_that_would_miss_its_slo_preempts_and_one_without_slo_never_waits() {
    // A request needs 1.2 ms. If a kernel has more than 3.8 ms left, it cannot wait.
    let mut scenario = beside_kernels(20_000);
    let waits = simulate(&scenario, PolicyName::SloThenEnergy);
    let preempts = simulate(&scenario, PolicyName::Priority);
    assert!(waits.preemptions > preempts.preemptions / 2);
    let within = |report: &Report| report.clients[0].part_within(SLO_NS);
    assert!(within(&waits) > 0.98, "{} {}", within(&waits), within(&preempts));
    scenario.clients[0].slo_ns = 0;
    let (waits, preempts) =
        (simulate(&scenario, PolicyName::SloThenEnergy), simulate(&scenario, PolicyName::Priority));
    assert_eq!(waits.clients, preempts.clients);
}

#[test]
fn energy_counts_work_switches_idle_time_and_preemptions() {
    let report = Row::new(2_000).preempts;
    let power = |idle_w, clients_w: [f64; 2], switch_w, preemption_j| {
        PowerModel { idle_w, clients_w: clients_w.to_vec(), switch_w, preemption_j }.joules(&report)
    };
    let total_s = report.span_ns as f64 / 1e9;
    assert!((power(1.0, [1.0, 1.0], 1.0, 0.0) - total_s).abs() < 1e-6);
    assert!((power(0.0, [0.0, 0.0], 0.0, 1.0) - report.preemptions as f64).abs() < 1e-6);
    assert!((power(0.0, [0.0, 2.0], 0.0, 0.0) - 2.0 * total_s * report.clients[1].share).abs() < 1e-6);
}
