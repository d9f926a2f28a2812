use super::super::pair;
use super::*;
use crate::definition::ClientKey;
use sluice_comm::latency::bucket;

const MS: u64 = 1_000_000;

fn new(latencies_ns: &[u64]) -> NewLatencies {
    let mut new = NewLatencies { counts: [0; BUCKETS], sum_ns: latencies_ns.iter().sum() };
    latencies_ns.iter().for_each(|ns| new.counts[bucket(*ns)] += 1);
    new
}

#[test]
fn quantiles_are_within_4_percent_and_cover_the_last_two_intervals() {
    let mut recent = RecentLatencies::default();
    let latencies: Vec<u64> = (1..=1000).map(|step| step * 20_000 + 200_000).collect();
    recent.advance(1000 * INTERVAL_NS);
    recent.add(&new(&latencies));
    for part in [0.01, 0.5, 0.99, 0.999, 1.0] {
        let exact = part * 1000.0 * 20_000.0 + 200_000.0;
        let error = recent.quantile(part).unwrap() as f64 / exact - 1.0;
        assert!(error.abs() <= 0.0401, "{part}: {error}");
    }
    recent.advance(1001 * INTERVAL_NS);
    recent.add(&new(&[100 * MS; 10_000]));
    assert!(recent.quantile(0.01).unwrap() < 21 * MS, "the interval before counts");
    recent.advance(1002 * INTERVAL_NS);
    assert!(recent.quantile(0.0).unwrap() > 90 * MS);
    recent.advance(1004 * INTERVAL_NS);
    assert_eq!(recent.quantile(0.5), None);
}

#[test]
fn histogram_has_an_exact_sum_and_count_and_its_series_only_while_the_client_is_critical() {
    let (metrics, exposition) = pair().unwrap();
    let client = metrics.add(&ClientKey::Named("lc".to_owned())).unwrap();
    let series = &client.latencies;
    series.requests.add(&new(&[2 * MS, 2 * MS, 30 * MS, 20_000 * MS]));
    series.set_client(true, 5 * MS);
    let text = exposition.text().unwrap();
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap()
    };
    assert_eq!(value("sluice_request_seconds_count{client=\"lc\"}"), 4.0);
    assert_eq!(value("sluice_request_seconds_sum{client=\"lc\"}"), 20.034);
    assert_eq!(value("sluice_slo_seconds{client=\"lc\"}"), 0.005);
    let buckets: Vec<(f64, u64)> = text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("sluice_request_seconds_bucket{client=\"lc\",le=\"")?.split_once("\"} ")
        })
        .map(|(bound, count)| (bound.parse().unwrap(), count.parse().unwrap()))
        .collect();
    assert_eq!(buckets.len(), 41);
    for (bound, count) in buckets {
        let all = [0.002, 0.002, 0.03, 20.0];
        assert_eq!(count, all.iter().filter(|seconds| **seconds <= bound).count() as u64, "at most {bound}");
    }
    series.set_client(false, 0);
    let text = exposition.text().unwrap();
    assert!(!text.contains("sluice_request_") && !text.contains("sluice_slo_"), "{text}");
}
