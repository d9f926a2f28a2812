//! Settings of channel-group scheduling.

use super::scheduler::ChannelGroupScheduler;

/// The driver's default time slice, microseconds: the slice of a group that was never changed.
pub const DEFAULT_SLICE_US: u64 = 2048;
/// Two enabled groups with slices below this prevent each other from making progress. Microseconds.
pub const TINY_SLICE_US: u64 = 1000;

/// Settings of channel-group scheduling. Times are nanoseconds unless the name says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelGroupPolicy {
    /// Time slices can be set. If not, all groups keep the driver's default slice, and groups are only enabled and
    /// disabled. Default: yes.
    pub slices: bool,
    /// Slice of a best-effort group while a latency-critical process works. Default 1 µs.
    pub best_effort_slice_us: u64,
    /// Slice of the latency-critical groups while at most one of them has work. Default 1 s.
    pub long_us: u64,
    /// Slice of each latency-critical group while several have work. Default 5 ms.
    pub shared_us: u64,
    /// A latency-critical process that has been idle this long counts as one without work: nothing is short, and no group disabled, for it. Default 10 s.
    pub absent_ns: u64,
    /// A process that has been idle this long returns its grant while others wait. Default 3 ms.
    pub idle_ns: u64,
    /// The same while no other client waits: the time that it holds the grant counts against its request. Default 20 ms.
    pub uncontended_idle_ns: u64,
    /// How often the activity of enabled processes is polled while others wait. Default 1 ms.
    pub poll_ns: u64,
    /// How often the activity of idle processes is polled, as their wake-up eventfds may be broken. Default 50 ms.
    pub idle_poll_ns: u64,
    /// How often the activity of latency-critical processes is polled while a hand-off waits for them. Default 250 µs.
    pub window_poll_ns: u64,
    /// A latency-critical process that became idle at most this long ago has just finished: the best moment for a
    /// hand-off. Default 600 µs.
    pub just_finished_ns: u64,
    /// A latency-critical process that has been idle this long expects no request soon. Default 100 ms.
    pub quiet_ns: u64,
    /// The longest that a hand-off waits for latency-critical processes. Default 20 ms.
    pub window_wait_ns: u64,
    /// How long after a good moment the controls of the same hand-off may begin. Default 3 ms.
    pub window_open_ns: u64,
    /// A disabled process that reports idle is enabled for a moment after this time, as its report may be wrong. The
    /// next time follows after twice as long, up to 16 times this. Default 500 ms.
    pub probe_ns: u64,
    /// The same for one that reports work that only waits. Default 20 ms.
    pub waiting_probe_ns: u64,
    /// The groups of a disconnected process are left unchanged for this long. The process may be about to end, and then
    /// nothing need be done about them. Default 10 ms.
    pub disconnect_ns: u64,
    /// The time in which one control that disables or enables a best-effort group is earned. Controls that can wait do
    /// so: an idle process keeps its quantum, an idle client is not enabled. Default 6.25 ms: 160 controls a second, or
    /// 80 hand-offs.
    pub control_ns: u64,
    /// So many of these controls may be made at once if none was made for a while. Default 32.
    pub control_burst: u64,
    /// A quantum that has ended is extended by at most this until the controls of the last hand-off are earned. The
    /// controls of clients with many groups take long. Default 100 ms.
    pub max_extension_ns: u64,
}

impl Default for ChannelGroupPolicy {
    fn default() -> Self {
        Self {
            slices: true,
            best_effort_slice_us: 1,
            long_us: 1_000_000,
            shared_us: 5_000,
            absent_ns: 10_000_000_000,
            idle_ns: 3_000_000,
            uncontended_idle_ns: 20_000_000,
            poll_ns: 1_000_000,
            idle_poll_ns: 50_000_000,
            window_poll_ns: 250_000,
            just_finished_ns: 600_000,
            quiet_ns: 100_000_000,
            window_wait_ns: 20_000_000,
            window_open_ns: 3_000_000,
            probe_ns: 500_000_000,
            waiting_probe_ns: 20_000_000,
            disconnect_ns: 10_000_000,
            control_ns: 6_250_000,
            control_burst: 32,
            max_extension_ns: 100_000_000,
        }
    }
}

impl ChannelGroupScheduler {
    /// Replaces the lengths of the time slices beside a latency-critical process. Groups receive them from the next plan on.
    pub fn set_slices(&mut self, policy: &ChannelGroupPolicy) {
        let ChannelGroupPolicy { best_effort_slice_us, long_us, shared_us, .. } = *policy;
        self.policy = ChannelGroupPolicy { best_effort_slice_us, long_us, shared_us, ..self.policy };
    }
}
