//! Jobs on several GPUs under the policies: what their ranks make together, and which scenarios are refused.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::Value;
use sluice_policy_sim::{PolicyName, Report, Scenario, scenario, simulate};

const EXAMPLE: &str = include_str!("../../../examples/simulation/two-gangs.yaml");

fn read(text: &str) -> Scenario {
    scenario::parse(text, &|_| unreachable!()).unwrap()
}

fn page(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The example with other requests.
fn requests(small: f64, large: f64) -> Scenario {
    read(&EXAMPLE.replace("request: 0.3", &format!("request: {small}")).replace("0.7", &large.to_string()))
}

/// A gang of 0.4 beside a training of 0.6 on each of its GPUs, whose steps alone take 33.3 and 33.6 ms.
fn beside_trainings() -> Scenario {
    let (head, _) = EXAMPLE.split_once("clients:").unwrap();
    read(&format!(
        "{head}clients:
  - {{ name: gang, request: 0.4, memory: 1 }}
  - {{ name: first, request: 0.6, memory: 1 }}
  - {{ name: second, request: 0.6, memory: 1 }}
workloads:
  - {{ client: gang, gpus: [0, 1], service: {{ kind: gang, step: 34ms, exchange: 3ms }} }}
  - {{ client: first, service: {{ kind: training, step: 33.3ms }} }}
  - {{ client: second, gpus: [1], service: {{ kind: training, step: 33.6ms }} }}
"
    ))
}

/// The steps of each client as a part of those that it would make alone.
fn parts(scenario: &Scenario, report: &Report) -> Vec<f64> {
    let part = |(client, requests): (usize, usize)| {
        let work = &scenario.workloads[client];
        requests as f64 * (work.service.burst_ns + work.exchange_ns) as f64 / report.span_ns as f64
    };
    report.clients.iter().map(|client| client.requests).enumerate().map(part).collect()
}

/// The rows of the page: each job's rate as a part of its rate alone, and its p99, measured on two H200 and simulated.
#[test]
fn gangs_get_the_parts_and_the_step_times_that_were_measured_on_two_gpus() {
    let recorded: Value = serde_json::from_str(&page("benchmarks/gangs.json")).unwrap();
    let cases = [
        ("two gangs, 0.3 and 0.7", "gangs", requests(0.3, 0.7), ["a", "b"].as_slice()),
        ("two gangs, 0.5 each", "gangs50", requests(0.5, 0.5), &["a", "b"]),
        ("a gang of 0.4 beside two trainings of 0.6", "local", beside_trainings(), &["a", "c", "d"]),
    ];
    let document = page("design/performance-model.md");
    let mut missing = String::new();
    for (case, row, scenario, jobs) in cases {
        let report = simulate(&scenario, PolicyName::Sluice);
        let row = &recorded["rows"][row];
        let simulated = parts(&scenario, &report);
        let (mut cells, mut times) = (Vec::new(), Vec::new());
        for ((job, part), client) in jobs.iter().zip(simulated).zip(&report.clients) {
            let (measured, p99) =
                (row["ratio"][job].as_f64().unwrap(), row["step_ms"][job]["p99"].as_f64().unwrap());
            assert!((part - measured).abs() <= 0.02, "{case}: {job} made {measured}, simulated {part}");
            assert!((client.p99_ms / p99 - 1.0).abs() <= 0.1, "{case}: {job} {p99}, {}", client.p99_ms);
            cells.push([format!("{measured:.3}"), format!("{part:.3}")]);
            times.push([format!("{p99:.0}"), format!("{:.0}", client.p99_ms)]);
        }
        let list = |of: &[[String; 2]], which: usize| {
            of.iter().map(|pair| pair[which].as_str()).collect::<Vec<_>>().join(", ")
        };
        let columns = [list(&cells, 0), list(&cells, 1), list(&times, 0), list(&times, 1)];
        let expected = format!("| {case} | {} |", columns.join(" | "));
        if !document.contains(&expected) {
            missing += &format!("{expected}\n");
        }
    }
    assert!(missing.is_empty(), "the page lacks\n{missing}");
}

#[test]
fn every_nanosecond_of_each_gpu_is_counted_once_and_each_rank_works_for_all_steps() {
    for scenario in [requests(0.3, 0.7), beside_trainings()] {
        for policy in [PolicyName::Sluice, PolicyName::SluiceWithHolds, PolicyName::Gemini, PolicyName::Fair]
        {
            let report = simulate(&scenario, policy);
            let used: u64 = report.clients.iter().flat_map(|client| &client.per_second_ns).sum();
            let counted = used + report.switching_ns + report.idle_ns;
            assert_eq!((report.gpus, counted), (2, 2 * scenario.span_ns), "{}", report.policy);
            for (client, work) in report.clients.iter().zip(&scenario.workloads) {
                let step_ns = work.service.burst_ns + work.exchange_ns;
                let needed = client.requests as u64 * work.gpus.len() as u64 * step_ns;
                let used: u64 = client.per_second_ns.iter().sum();
                assert!(used >= needed, "{}: {} used {used} of {needed}", report.policy, client.name);
            }
        }
    }
}

/// Without the managers' slots the ranks would meet by chance.
#[test]
fn slots_bring_the_ranks_together_after_the_manager_of_one_gpu_was_stopped() {
    let scenario = requests(0.3, 0.7);
    let sum = |policy| parts(&scenario, &simulate(&scenario, policy)).iter().sum::<f64>();
    let (sluice, fair) = (sum(PolicyName::Sluice), sum(PolicyName::Fair));
    assert!(sluice > 0.98 && fair < 0.8, "{sluice} {fair}");
}

#[test]
fn wrong_places_of_ranks_and_gpus_with_too_many_requests_are_refused() {
    let mistakes = |from: &str, to: &str| {
        let text = EXAMPLE.replacen(from, to, 1);
        assert_ne!(text, EXAMPLE);
        let error = scenario::parse(&text, &|_| unreachable!()).unwrap_err();
        error.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let kinds = "expected several for service kind gang, one for the others";
    assert_eq!(
        mistakes("gpus: [0, 1]", "gpus: [1]"),
        [format!("line 12, workloads[0].gpus: found one GPU, {kinds}")]
    );
    assert_eq!(
        mistakes("kind: gang, step: 34ms, exchange: 3ms", "kind: training, step: 34ms"),
        [format!("line 12, workloads[0].gpus: found several GPUs, {kinds}")]
    );
    let list = "expected a list of numbers of GPUs, each from 0 to 63";
    for wrong in ["gpus: [0, 64]", "gpus: []", "gpus: 2"] {
        assert!(mistakes("gpus: [0, 1]", wrong).iter().any(|mistake| mistake.ends_with(list)), "{wrong}");
    }
    let mistake = "requests: found 1.1 in sum on GPU 0, expected at most 1 on each GPU";
    assert_eq!(mistakes("request: 0.3", "request: 0.4")[0], mistake);
    assert!(mistakes("gpu: 1", "gpu: one")[0].contains("stalls[0].gpu: found \"one\", expected all, or"));
}
