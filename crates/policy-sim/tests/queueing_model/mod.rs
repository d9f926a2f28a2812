//! The queueing model of a latency-critical client beside one that always has work (docs/design/performance-model.md).

/// Poisson arrivals of requests that preempt the other client's work: a pre-emptive-resume M/G/1 queue in which each busy
/// period begins with a context switch. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PreemptiveQueue {
    /// Requests in a nanosecond.
    pub(crate) rate: f64,
    /// Mean GPU time of a request.
    pub(crate) service_ns: f64,
    /// Mean of its square.
    pub(crate) service_squared: f64,
    /// Time of the switch to the latency-critical client.
    pub(crate) preempt_ns: f64,
    /// Time of the switch back, which a request cannot interrupt.
    pub(crate) switch_ns: f64,
}

impl PreemptiveQueue {
    /// The part of time that the requests themselves use.
    pub(crate) fn load(&self) -> f64 {
        self.rate * self.service_ns
    }

    /// Mean and mean square of what the first request of a busy period waits for: the rest of the switch back, if that is
    /// in progress, and the switch.
    fn set_up(&self) -> (f64, f64) {
        let (rate, back) = (self.rate, self.switch_ns);
        let none = 1.0 - (-rate * back).exp();
        let rest = back - none / rate;
        let rest_squared = back * back - 2.0 * back / rate + 2.0 * none / (rate * rate);
        let mean = self.preempt_ns + rest;
        (mean, self.preempt_ns * self.preempt_ns + 2.0 * self.preempt_ns * rest + rest_squared)
    }

    /// Mean time from the arrival of a request to its end.
    pub(crate) fn response_ns(&self) -> f64 {
        let (set_up, squared) = self.set_up();
        let queue = self.rate * self.service_squared / (2.0 * (1.0 - self.load()));
        let set_ups = (2.0 * set_up + self.rate * squared) / (2.0 * (1.0 + self.rate * set_up));
        queue + set_ups + self.service_ns
    }

    /// The part of time that is left to the other client.
    pub(crate) fn left(&self) -> f64 {
        let (set_up, _) = self.set_up();
        let idle = 1.0 / self.rate;
        let cycle = idle + (set_up + self.service_ns) / (1.0 - self.load());
        idle * (-self.rate * self.switch_ns).exp() / cycle
    }
}
