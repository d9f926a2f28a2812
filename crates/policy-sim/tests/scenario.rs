//! Scenario files: what is refused, and with which words.
#![allow(clippy::unwrap_used, reason = "tests")]

use sluice_policy_sim::{PolicyName, scenario};

fn mistakes(text: &str) -> Vec<String> {
    let error = scenario::parse(text, &|_| Err("not found".to_owned())).unwrap_err();
    error.iter().map(ToString::to_string).collect()
}

#[test]
fn every_mistake_is_reported_at_once_with_line_and_key() {
    let text = "sed: 3
duration: ever
policies: [sluice, lottery]
gpu: { switch: 100us, colour: red }
stalls:
  - { at: 1s, length: 2s }
clients:
  - { name: a, request: 0.7, memory: 1 }
  - { name: b, request: 0.6, memory: 1 }
workloads:
  - client: a
    arrivals: { kind: poisson, mean: 1ms, jiter: 1ms }
    service: { kind: graph, burst: 0ms }
  - client: b
    arrivals: { kind: sometimes }
    service: { kind: training, step: 1ms }
";
    let found = mistakes(text);
    let expected = [
        "requests: found 1.3 in sum",
        "line 1, file: found unknown key \"sed\"",
        "line 2, duration: found \"ever\"",
        "line 3, policies: found \"lottery\", expected a list of names out of sluice,",
        "line 4, gpu.colour: found unknown key \"colour\", expected only preempt, switch, load, slice",
        "line 6, stalls[0].lasts: found nothing",
        "line 6, stalls[0].length: found unknown key \"length\"",
        "line 12, workloads[0].arrivals.jiter: found unknown key \"jiter\", expected only kind, mean",
        "line 13, workloads[0].service.burst: found \"0ms\", expected a duration such as 1.5ms or 10s, above 0",
        "line 15, workloads[1].arrivals: found arrivals of a training",
        "line 15, workloads[1].arrivals.kind: found \"sometimes\", expected periodic, poisson,",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for expected in expected {
        assert!(found.iter().any(|found| found.starts_with(expected)), "{expected}: {found:#?}");
    }
}

#[test]
fn clients_and_workloads_belong_to_each_other() {
    let text = "clients:
  - { name: a, request: 0.1, memory: 1 }
  - { name: b, request: 0.1, memory: 1 }
workloads:
  - { client: a, service: { kind: training, step: 1ms } }
  - { client: a, service: { kind: training, step: 1ms } }
  - { client: c, service: { kind: training, step: 1ms } }
";
    let found = mistakes(text);
    let expected = [
        "line 4, workloads: found none of client \"b\", expected one for each client",
        "line 6, workloads[1].client: found \"a\" a second time, expected one workload for each client",
        "line 7, workloads[2].client: found \"c\", expected one of a, b",
    ];
    assert_eq!(found, expected);
}

#[test]
fn trace_that_cannot_be_read_or_goes_back_is_refused() {
    let text = "clients: [{ name: a, request: 0.1, memory: 1 }]
workloads: [{ client: a, arrivals: { kind: trace, file: t }, service: { kind: graph, burst: 1ms } }]
";
    assert!(mistakes(text)[0].contains("\"t\" (not found)"), "{:?}", mistakes(text));
    let error = scenario::parse(text, &|_| Ok("2ms\n1ms\n".to_owned())).unwrap_err().to_string();
    assert!(error.contains("\"1ms\" in line 2 of t"), "{error}");
}

#[test]
fn every_example_is_read_and_names_policies_that_exist() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/simulation");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let scenario = scenario::parse(&text, &|_| Err("no file".to_owned())).unwrap();
        assert_eq!(scenario.clients.len(), scenario.workloads.len());
        assert!(scenario.policies.contains(&PolicyName::Sluice));
        count += 1;
    }
    assert!(count >= 3, "{count}");
}
