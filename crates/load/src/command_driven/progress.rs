//! Evaluation of a program's progress: samples (time, kernels completed by then) in order, in nanoseconds of one clock.

/// Kernels completed in a span. The span is never shortened: a program that is stopped at its begin or end has completed fewer.
pub(super) fn kernels_within(samples: &[(u64, u64)], from_ns: u64, to_ns: u64) -> f64 {
    (completed_by(samples, to_ns) - completed_by(samples, from_ns)).max(0.0)
}

/// Kernels completed at a time, interpolated between the samples before and after it.
fn completed_by(samples: &[(u64, u64)], time: u64) -> f64 {
    let next = samples.partition_point(|(sampled, _)| *sampled < time);
    let before = next.checked_sub(1).and_then(|last| samples.get(last));
    match (before, samples.get(next)) {
        (Some(before), Some(after)) => {
            let part = (time - before.0) as f64 / (after.0 - before.0) as f64;
            before.1 as f64 + part * (after.1 - before.1) as f64
        }
        (Some(only), None) | (None, Some(only)) => only.1 as f64,
        (None, None) => 0.0,
    }
}

/// The times from the last sample before `time` to it, and from it to the next sample.
pub(super) fn gaps_around(samples: &[(u64, u64)], time: u64) -> (Option<u64>, Option<u64>) {
    let next = samples.partition_point(|(sampled, _)| *sampled < time);
    let before = next.checked_sub(1).and_then(|last| samples.get(last));
    (before.map(|(sampled, _)| time - sampled), samples.get(next).map(|(sampled, _)| sampled - time))
}

#[cfg(test)]
mod tests;
