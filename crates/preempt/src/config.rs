//! Configuration of a queue whose preemption is enabled.

/// How early a preempted stream stops, from latest to earliest. The numbers are those of enum sluice_level in sluice.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PreemptionLevel {
    /// Nothing more is submitted. What was submitted runs to its end.
    Host = 0,
    /// What was submitted stops in place at the next gate; the running kernel ends.
    Device = 1,
    /// The hardware takes the GPU away in the middle of a kernel.
    Full = 2,
}

/// Bounds on how long, and with how much work, a queue may occupy the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Most commands in the driver (the size of the virtual device queue).
    pub queue_size: u32,
    /// Commands per completion mark; at most `queue_size`.
    pub batch_size: u32,
    /// Time without any progress after which the stream is reported as idle; `None` for never.
    pub task_timeout_ns: Option<u64>,
    /// The highest level that `preempt` uses.
    pub level: PreemptionLevel,
    /// Most estimated work in the driver.
    pub bound_ns: u64,
    /// Least estimated work between two gates.
    pub gate_spacing_ns: u64,
    /// Most commands in the host queue; beyond it a submitter waits.
    pub host_commands: usize,
    /// Most bytes that commands in the host queue own; beyond it a submitter waits.
    pub host_bytes: usize,
    /// Longest time that the queue stays preempted; `None` for no limit.
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
