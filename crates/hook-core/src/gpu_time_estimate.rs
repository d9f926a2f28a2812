//! Estimate of the GPU time of a burst from its duration on the host.
//!
//! The host's duration also contains the time from the launch until the context has the GPU, and from the end of the work until the waiting
//! thread runs. Events measure a few bursts. A linear regression of their GPU time on their duration gives the others': the slope is near 0
//! if all bursts have the same work and only the delays differ, and near 1 if the delays are constant and the work differs.

/// Weight of the newest sample against all earlier ones, once there are as many samples as its reciprocal.
const LEAST_GAIN: f64 = 1.0 / 16.0;

/// With fewer samples the part of the duration that is GPU time is assumed to be constant.
const FEWEST_SAMPLES: u32 = 3;

/// What measured bursts have shown. Times are nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct GpuTimeEstimate {
    samples: u32,
    /// Means of the duration and of the GPU time.
    duration: f64,
    gpu_time: f64,
    /// Variance of the duration, and its covariance with the GPU time.
    variance: f64,
    covariance: f64,
}

impl GpuTimeEstimate {
    /// Adds a burst that lasted `duration_ns` on the host and of which events measured `gpu_ns`.
    pub(crate) fn measured(&mut self, duration_ns: u64, gpu_ns: u64) {
        self.samples = self.samples.saturating_add(1);
        let gain = (1.0 / f64::from(self.samples)).max(LEAST_GAIN);
        let (longer, more) = (duration_ns as f64 - self.duration, gpu_ns as f64 - self.gpu_time);
        self.duration += gain * longer;
        self.gpu_time += gain * more;
        self.variance = (1.0 - gain) * (self.variance + gain * longer * longer);
        self.covariance = (1.0 - gain) * (self.covariance + gain * longer * more);
    }

    /// GPU time of a burst that lasted `duration_ns`: all of it while no burst was measured, and never more.
    pub(crate) fn of(&self, duration_ns: u64) -> u64 {
        let duration = duration_ns as f64;
        let estimate = if self.samples == 0 {
            duration
        } else if self.samples < FEWEST_SAMPLES || self.variance == 0.0 {
            duration * self.gpu_time / self.duration.max(1.0)
        } else {
            let slope = (self.covariance / self.variance).clamp(0.0, 1.0);
            // The samples do not support the slope for durations far above theirs: there the delay is assumed to be constant.
            let supported = duration.min(2.0 * self.duration);
            self.gpu_time + slope * (supported - self.duration) + (duration - supported)
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and a u64")]
        let estimate = estimate.clamp(0.0, duration) as u64;
        estimate.min(duration_ns)
    }
}

#[cfg(test)]
mod tests;
