//! Estimate of the GPU time of a burst from its duration on the host.
//!
//! The host's duration also contains the time from the launch until the context has the GPU, and from the end of the work until the waiting
//! thread runs. Events measure a few bursts. A line through their GPU times over their durations gives the others': the slope is near 0 if
//! all bursts have the same work and only the delays differ, and near 1 if the delays are constant and the work differs.
//!
//! Some measured times contain a delay, because the event at the begin was executed before the GPU was switched or the host was delayed
//! between the event and the launch. The line is therefore that of Theil and Sen: medians of the slopes of all pairs and of the offsets,
//! which up to 29 % of such samples do not move (P. K. Sen, Journal of the American Statistical Association 63, 1968).

/// The line is that of this many latest samples.
const SAMPLES: usize = 16;

/// With fewer samples the part of the duration that is GPU time is assumed to be constant.
const FEWEST_SAMPLES: usize = 3;

/// What measured bursts have shown. Times are nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct GpuTimeEstimate {
    /// Durations and GPU times.
    samples: [(f64, f64); SAMPLES],
    measured: usize,
    /// Median of the durations.
    duration: f64,
    slope: f64,
    /// GPU time at a duration of 0.
    offset: f64,
}

impl GpuTimeEstimate {
    /// Adds a burst that lasted `duration_ns` on the host and of which events measured `gpu_ns`.
    pub(crate) fn measured(&mut self, duration_ns: u64, gpu_ns: u64) {
        self.samples[self.measured % SAMPLES] = (duration_ns as f64, gpu_ns as f64);
        self.measured += 1;
        let samples = &self.samples[..self.measured.min(SAMPLES)];
        self.duration = median(samples.iter().map(|(duration, _)| *duration)).unwrap_or(0.0);
        let pairs = samples.iter().enumerate().flat_map(|(at, a)| samples[..at].iter().map(move |b| (a, b)));
        let slopes = pairs.filter(|(a, b)| a.0 != b.0).map(|(a, b)| (a.1 - b.1) / (a.0 - b.0));
        let slope = median(slopes).filter(|_| samples.len() >= FEWEST_SAMPLES);
        let constant_part = median(samples.iter().map(|(duration, gpu)| gpu / duration.max(1.0)));
        self.slope = slope.or(constant_part).unwrap_or(1.0).clamp(0.0, 1.0);
        self.offset =
            median(samples.iter().map(|(duration, gpu)| gpu - self.slope * duration)).unwrap_or(0.0);
    }

    /// GPU time of a burst that lasted `duration_ns`: all of it while no burst was measured, and never more.
    pub(crate) fn of(&self, duration_ns: u64) -> u64 {
        if self.measured == 0 {
            return duration_ns;
        }
        let duration = duration_ns as f64;
        // The samples do not support the slope for durations far above theirs: there the delay is assumed to be constant.
        let supported =
            if self.measured < FEWEST_SAMPLES { duration } else { duration.min(2.0 * self.duration) };
        let estimate = self.offset + self.slope * supported + (duration - supported);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and a u64")]
        let estimate = estimate.clamp(0.0, duration) as u64;
        estimate.min(duration_ns)
    }
}

/// The median of at most as many values as there are pairs of samples.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted = [0.0; SAMPLES * (SAMPLES - 1) / 2];
    let count = sorted.iter_mut().zip(values).map(|(slot, value)| *slot = value).count();
    let sorted = &mut sorted[..count];
    sorted.sort_unstable_by(f64::total_cmp);
    let upper = *sorted.get(count / 2)?;
    Some(if count % 2 == 0 { f64::midpoint(sorted[count / 2 - 1], upper) } else { upper })
}

#[cfg(test)]
mod tests;
