use std::collections::BTreeSet;

use super::super::scenario::Scenario;
use super::*;

#[test]
fn every_scenario_is_found_by_its_name() {
    let all = all();
    let names: BTreeSet<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
    assert_eq!(names.len(), all.len(), "two scenarios have one name");
    for issue in 1..=7 {
        assert!(names.iter().any(|name| name.starts_with(&format!("s{issue}-"))), "s{issue} is missing");
    }
}

#[test]
fn no_scenario_requests_more_than_the_gpu() {
    for scenario in all() {
        let requested: f64 = scenario.clients.iter().map(|client| client.terms.request).sum();
        assert!(requested <= 1.0 + 1e-9, "{}: {requested}", scenario.name);
    }
}

#[test]
fn the_resource_file_has_request_limit_and_class_of_each_client() {
    let clients = [Client::critical(0.3, Load::Busy).limited(0.4), Client::busy("be", 0.0)];
    let expected = "clients:\n\
        \x20 - { name: lc, request: 0.3, limit: 0.4, memory: 8Gi, class: latency-critical }\n\
        \x20 - { name: be, request: 0, limit: 1, memory: 8Gi, class: best-effort }\n";
    assert_eq!(Scenario::resource_file(&clients), expected);
}
