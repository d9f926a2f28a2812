//! What steering is set to.

/// The driver's own slice, microseconds: what a group has that nobody touched.
pub const DEFAULT_US: u64 = 2048;
/// Two running groups with slices below this keep each other from working. Microseconds.
pub const TINY_US: u64 = 1000;

/// Settings of steering; times in nanoseconds unless named otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SteeringPolicy {
    /// Slices can be set. If not all groups keep the driver's own, and whoever has no turn is stopped all the same. Default: yes.
    pub slices: bool,
    /// Slice of a best-effort group while a latency-critical process is attached. Default 1 µs.
    pub short_us: u64,
    /// Slice of a latency-critical group that is the only one. Default 1 s.
    pub long_us: u64,
    /// Slice of each latency-critical group when there are several. Default 5 ms.
    pub shared_us: u64,
    /// A process that has been idle for so long returns its turn while others wait. Default 3 ms.
    pub idle_ns: u64,
    /// The same while nobody waits: what it holds counts against its promise. Default 20 ms.
    pub alone_idle_ns: u64,
    /// How often processes are looked at that run while others wait. Default 1 ms.
    pub look_ns: u64,
    /// How often processes are looked at that want nothing: their doorbells may be broken. Default 50 ms.
    pub idle_look_ns: u64,
    /// How often whether the latency-critical ones are idle is looked at, while a hand-over waits for that. Default 250 µs.
    pub gate_look_ns: u64,
    /// A latency-critical process that became idle at most so long ago has just finished: the best moment. Default 600 µs.
    pub gate_fresh_ns: u64,
    /// One that has been idle for so long has nothing to do. Default 100 ms.
    pub gate_quiet_ns: u64,
    /// How long a hand-over waits for latency-critical processes. Default 20 ms.
    pub gate_patience_ns: u64,
    /// How long after a good moment the controls of the same hand-over may begin. Default 3 ms.
    pub gate_open_ns: u64,
    /// A stopped process that says it is idle is let run for a moment after so long, for it may be wrong; then after twice as
    /// long, up to 16 times. Default 500 ms.
    pub probe_ns: u64,
    /// The groups of a process that has hung up are left as they are for so long: it may be about to end, and nothing need be done
    /// about the groups of the dead. Default 10 ms.
    pub parting_ns: u64,
    /// A control that stops or starts a best-effort group is earned in so long. What can wait for that does: idle turns are not
    /// given up before their ends, who wants nothing is not started. Default 6.25 ms: 160 controls a second, or 80 hand-overs.
    pub control_ns: u64,
    /// So many of these controls may be made at once if none was made for a while. Default 32.
    pub controls_at_once: u64,
    /// A turn that is over goes on for at most so long until the controls of the last hand-over are earned: those of clients with
    /// many groups take long. Default 100 ms.
    pub late_ns: u64,
}

impl Default for SteeringPolicy {
    fn default() -> Self {
        Self {
            slices: true,
            short_us: 1,
            long_us: 1_000_000,
            shared_us: 5_000,
            idle_ns: 3_000_000,
            alone_idle_ns: 20_000_000,
            look_ns: 1_000_000,
            idle_look_ns: 50_000_000,
            gate_look_ns: 250_000,
            gate_fresh_ns: 600_000,
            gate_quiet_ns: 100_000_000,
            gate_patience_ns: 20_000_000,
            gate_open_ns: 3_000_000,
            probe_ns: 500_000_000,
            parting_ns: 10_000_000,
            control_ns: 6_250_000,
            controls_at_once: 32,
            late_ns: 100_000_000,
        }
    }
}
