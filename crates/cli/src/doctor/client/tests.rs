use super::*;

const METRICS: &str = r#"# TYPE sluice_client_slices gauge
sluice_client_slices{client="lc",mode="default"} 1
sluice_client_slices{client="lc",mode="short"} 0
sluice_client_slices{client="idle",mode="default"} 0
sluice_client_slices{client="idle",mode="short"} 0
sluice_client_burst_seconds{client="lc",mode="default"} 0.0038
sluice_client_burst_seconds{client="lc",mode="short"} 0.0041
sluice_client_burst_seconds{client="idle",mode="default"} 0
sluice_client_burst_seconds{client="idle",mode="short"} 0
sluice_default_slices 1
"#;

#[test]
fn decision_is_printed_with_the_medians_of_its_test() {
    let decision = SliceDecision::read(&Metrics::parse(METRICS), "lc").unwrap();
    assert_eq!(
        decision.text(),
        "lc: 0 processes want short slices for best-effort clients, 1 default ones
  last test: median burst 4.100 ms beside short slices, 3.800 ms beside default ones
  in force while a latency-critical process is attached: default (2048 µs)"
    );
}

#[test]
fn client_without_processes_or_series_has_no_decision() {
    let metrics = Metrics::parse(METRICS);
    let idle = SliceDecision::read(&metrics, "idle").unwrap();
    assert_eq!(idle.text(), "idle: no latency-critical process is attached");
    assert_eq!(SliceDecision::read(&metrics, "other"), None);
}

#[test]
fn violations_of_a_pod_are_printed() {
    let of_pod = METRICS.replace("client=\"lc\"", "namespace=\"ml\",pod=\"a\"");
    let labels = "namespace=\"ml\",pod=\"a\",pod_uid=\"1\"";
    let violations = format!("sluice_violations_total{{kind=\"time_slice\",{labels}}} 3\n");
    let text = format!("{of_pod}{violations}sluice_stopped_processes{{{labels}}} 1\n");
    let decision = SliceDecision::read(&Metrics::parse(&text), "ml/a").unwrap();
    assert!(decision.text().contains("violations of its limits: 3 "), "{}", decision.text());
    assert!(decision.text().ends_with("stopped because of them: 1"), "{}", decision.text());
}
