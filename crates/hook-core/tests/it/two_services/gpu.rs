//! The GPU: one context runs at a time. Latency-critical contexts share it by slices of 5 ms; the training runs while neither
//! has work.

/// A step of the simulation, nanoseconds.
pub(super) const STEP: u64 = 10_000;
/// A context switch.
const SWITCH: u64 = 190_000;
/// The slice of each of two latency-critical groups.
const SLICE: u64 = 5_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    Resnet,
    Decode,
    Training,
}

/// The GPU and the work that was submitted to it.
pub(super) struct Gpu {
    current: Context,
    /// The present context runs from here on.
    switched_at: u64,
    slice_ends: u64,
    /// Work of the two services, nanoseconds.
    pub(super) work: [u64; 2],
    /// Hold kernels of the two services run until then.
    pub(super) held_until: [u64; 2],
    /// For how long the training has run.
    pub(super) training_ns: u64,
    pub(super) has_training: bool,
}

impl Gpu {
    pub(super) fn new(has_training: bool) -> Self {
        let current = Context::Training;
        Self {
            current,
            switched_at: 0,
            slice_ends: 0,
            work: [0; 2],
            held_until: [0; 2],
            training_ns: 0,
            has_training,
        }
    }

    fn wants(&self, context: Context, now: u64) -> bool {
        match context {
            Context::Training => self.has_training,
            service => self.work[service as usize] > 0 || now < self.held_until[service as usize],
        }
    }

    fn next(&self, now: u64) -> Context {
        let other = match self.current {
            Context::Resnet => Context::Decode,
            Context::Decode | Context::Training => Context::Resnet,
        };
        let keeps = self.current != Context::Training && self.wants(self.current, now);
        let services = [Context::Resnet, Context::Decode];
        match () {
            () if keeps && (now < self.slice_ends || !self.wants(other, now)) => self.current,
            () if keeps => other,
            () => services
                .into_iter()
                .find(|service| self.wants(*service, now))
                .unwrap_or(if self.has_training { Context::Training } else { self.current }),
        }
    }

    /// Lets the GPU run for one step.
    pub(super) fn step(&mut self, now: u64) {
        let next = self.next(now);
        if next != self.current {
            (self.current, self.switched_at) = (next, now + SWITCH);
            self.slice_ends = self.switched_at + SLICE;
        }
        if now < self.switched_at {
            return;
        }
        match self.current {
            Context::Training => self.training_ns += STEP * u64::from(self.has_training),
            service => {
                let work = &mut self.work[service as usize];
                *work = work.saturating_sub(STEP);
            }
        }
    }
}
