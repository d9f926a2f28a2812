//! What a queue is told when preemption is enabled for it.

/// How early a preempted stream stops, from late to at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PreemptionLevel {
    /// Nothing more is submitted; what was submitted runs to its end.
    Host,
    /// What was submitted stops in place at the next gate: the running kernel ends.
    Device,
    /// The hardware takes the GPU away in the middle of a kernel.
    Full,
}

/// A queue that may hold the GPU up only so long and so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Commands in the driver at most (the vDQ's size).
    pub queue_size: u32,
    /// Commands per completion mark; at most `queue_size`.
    pub batch_size: u32,
    /// How long nothing has to happen until the stream is reported as idle; `None` for never.
    pub task_timeout_ns: Option<u64>,
    /// The highest level that `preempt` uses.
    pub level: PreemptionLevel,
    /// Estimated work in the driver at most.
    pub bound_ns: u64,
    /// Estimated work between two gates at least.
    pub gate_spacing_ns: u64,
    /// Whether the bound holds only while the engine is told that another client is ready.
    pub adaptive: bool,
    /// Commands that wait in the host queue before a submitter has to wait.
    pub host_commands: usize,
    /// Their copied bytes likewise.
    pub host_bytes: usize,
    /// The longest that the queue stays preempted; `None` for ever.
    pub outage_ns: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            queue_size: 32,
            batch_size: 8,
            task_timeout_ns: None,
            level: PreemptionLevel::Host,
            bound_ns: 1_000_000,
            gate_spacing_ns: 50_000,
            adaptive: false,
            host_commands: 64 << 10,
            host_bytes: 256 << 20,
            outage_ns: None,
        }
    }
}

impl Config {
    /// Whether the sizes fit together.
    pub fn is_valid(&self) -> bool {
        (1..=self.queue_size).contains(&self.batch_size)
            && self.bound_ns > 0
            && self.host_commands > 0
            && self.host_bytes > 0
    }
}
