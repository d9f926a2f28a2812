//! The series of a latency-critical pod's steps and requests.

use prometheus::proto::{Bucket, Histogram};
use sluice_proto::control::{ClientUsage, Latencies, LatencyBucket};

use super::families::{Families, Labels, seconds};

/// Adds the series of a pod, if its manager reports latencies: it does for latency-critical pods.
pub(super) fn add(
    families: &mut Families,
    own: &Labels<'_>,
    usage: &ClientUsage,
    slo_ns: u64,
) -> prometheus::Result<()> {
    let (Some(steps), Some(requests)) = (&usage.steps, &usage.requests) else { return Ok(()) };
    let help = "Time from the first call after a wait to the end of the next wait, seconds";
    families.add_histogram("sluice_client_step_seconds", help, own, histogram(steps));
    let help = "Quantiles of sluice_client_step_seconds over the last 30 to 60 seconds, seconds";
    add_quantiles(families, own, ("sluice_client_step_quantile_seconds", help), steps)?;
    let help = "Time of requests on the GPU: steps with shorter pauses than the linger time, seconds";
    families.add_histogram("sluice_client_request_seconds", help, own, histogram(requests));
    let help = "Quantiles of sluice_client_request_seconds over the last 30 to 60 seconds, seconds";
    add_quantiles(families, own, ("sluice_client_request_quantile_seconds", help), requests)?;
    let help = "Latency goal of the pod, seconds; 0: none";
    families.set_gauges(own, &[("sluice_client_slo_seconds", help, seconds(slo_ns))])?;
    families.add_counters(
        own,
        &[
            (
                "sluice_client_slo_violations_total",
                "Requests that took longer than the pod's latency goal",
                usage.slo_violations as f64,
            ),
            (
                "sluice_client_unobserved_steps_total",
                "Steps without a latency, because no wait for their end was observed",
                usage.unobserved_steps as f64,
            ),
        ],
    )
}

fn add_quantiles(
    families: &mut Families,
    own: &Labels<'_>,
    (name, help): (&str, &str),
    latencies: &Latencies,
) -> prometheus::Result<()> {
    for quantile in &latencies.quantiles {
        let labels = [own, &[("quantile", quantile.quantile.as_str())]].concat();
        families.gauge(name, help, &labels)?.set(quantile.seconds);
    }
    Ok(())
}

pub(super) fn histogram(latencies: &Latencies) -> Histogram {
    let bucket = |counted: &LatencyBucket| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(counted.seconds);
        bucket.set_cumulative_count(counted.count);
        bucket
    };
    let mut histogram = Histogram::default();
    histogram.set_bucket(latencies.buckets.iter().map(bucket).collect());
    histogram.set_sample_count(latencies.count);
    histogram.set_sample_sum(latencies.seconds);
    histogram
}
