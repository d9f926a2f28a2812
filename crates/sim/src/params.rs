//! Every number of the simulated GPU, with its source.
//!
//! "M §n" is `docs/reference/gpu.md` section n: one NVIDIA H200, driver 580, unpatched. All times are nanoseconds.

/// Streaming multiprocessors (M, header).
pub const SMS: u32 = 132;
/// Threads that one multiprocessor holds at once (compute capability 9.0).
pub const THREADS_PER_SM: u32 = 2048;
/// Blocks that one multiprocessor holds at once (compute capability 9.0).
pub const BLOCKS_PER_SM: u32 = 32;
/// Device memory in bytes: 143,771 MiB, as NVML reports an H200.
pub const MEMORY_BYTES: u64 = 143_771 << 20;
/// Device memory that one context uses before the first allocation: an estimate (a PyTorch process that has allocated 2 GiB
/// uses 3.2 GiB, M §10, most of it libraries and their workspaces).
pub const CONTEXT_BYTES: u64 = 512 << 20;

/// Power of the GPU without work, milliwatts: an estimate for an H200.
pub const IDLE_POWER_MW: u64 = 75_000;
/// What the GPU draws beyond that while kernels of a process run, or while it switches contexts, milliwatts: an estimate for an H200, whose
/// limit is 700 W. It does not depend on the kernels.
pub const WORK_POWER_MW: u64 = 425_000;

/// Default time slice of a context's graphics channel group (M §1).
pub const TIMESLICE_NS: u64 = 2_048_000;
/// Time from the decision to save a context in the middle of a kernel until the next context runs.
///
/// M §2: with a slice of S the LC latency is S/2 at the median and S at the 99th percentile, plus 185 ± 10 µs, plus the
/// latency alone, for S from 1 µs to 2048 µs.
pub const PREEMPT_NS: u64 = 187_000;
/// Time to load a context when the GPU is idle, and, after a preemption, to restart the stalled kernels of
/// the incoming context.
///
/// M §7: a switch between two saturating tenants loses ≈ 230 µs, of which [`PREEMPT_NS`] is the time to save the
/// outgoing context.
pub const LOAD_NS: u64 = 41_000;
/// The part of [`LOAD_NS`] that a preempted context spends in its own slice before its kernels make progress. Two busy
/// tenants with slices of 1 µs make no progress for minutes (M §9), and with slices of 500 µs they keep 68 % (M §7).
pub const WARM_NS: u64 = 20_000;

/// Time from when a running context has no work left until the next context runs.
///
/// A request of a latency-critical process beside a busy one costs 355 to 373 µs of GPU time besides its own kernel
/// (M §2: the busy process keeps 0.882 to 0.886 beside 250 requests of 100 µs a second). [`PREEMPT_NS`] of that is the
/// time to save the busy process.
pub const IDLE_SWITCH_NS: u64 = 175_000;

/// Time from a launch call until an idle GPU begins the kernel. Half of the time that M §2 shows beyond the kernel's own:
/// a kernel of 100 µs takes 117 µs from launch to return of the synchronisation.
pub const SUBMIT_NS: u64 = 7_000;
/// Time from the end of a kernel until the synchronising thread runs: the other half. The engine does not add it, because
/// the machine of the simulator has such a delay of its own; comparisons with M §2 add it.
pub const HOST_RETURN_NS: u64 = 10_000;
/// Time of the shortest kernel: empty kernels run back to back every 2.8 µs (M §4), 2 µs of it on the GPU.
pub const MIN_KERNEL_NS: u64 = 2_000;

/// Bytes per microsecond between pinned host memory and the device: 20 GiB in 0.388 s (M §11).
pub const HOST_LINK_BYTES_PER_US: u64 = 55_000;
/// Bytes per microsecond of a copy within the device: reads and writes share 4.8 TB/s.
pub const DEVICE_COPY_BYTES_PER_US: u64 = 2_000_000;
/// Bytes per microsecond of a memset.
pub const FILL_BYTES_PER_US: u64 = 3_000_000;
/// Time slice of a context's copies, and of the driver's own channel, on a copy engine: M §19, a request waits up to 1024 µs for its copy.
pub const COPY_TIMESLICE_NS: u64 = 1_024_000;
/// Bytes per microsecond for which the driver's own channel keeps a copy engine at each allocation and each free: M §19, a process that
/// allocates and frees 512 MiB 900 times a second keeps it all the time.
pub const ALLOCATION_BYTES_PER_US: u64 = 1_000_000;
/// Bytes per microsecond of a copy between host and device by a kernel: M §19, a request with 300 KB takes 42 µs longer than by copy engine.
pub const KERNEL_COPY_BYTES_PER_US: u64 = 6_500;
/// Fixed cost of one copy or memset: an estimate.
pub const COPY_LATENCY_NS: u64 = 1_500;

/// Commands that one stream holds before a launch waits: the usual 1,024 (`docs/reference/preemption-contract.md`, "Principle").
pub const STREAM_DEPTH: u64 = 1_024;
/// A launch that waits for a full stream continues when this many commands are left in the stream.
pub const STREAM_RESUME: u64 = 960;

/// Intervals of one process closer together than this are one interval of the timeline.
pub const MERGE_GAP_NS: u64 = 2_000;
/// Intervals that the timeline keeps; the oldest are removed first.
pub const TIMELINE_INTERVALS: usize = 1 << 20;

/// Time of a stream's wait for a word that already has the value, or of a write of a word: M §4, 0.7 µs for every empty
/// kernel and 1.4-2.2 µs for every kernel of 10 µs.
pub const MEM_OP_NS: u64 = 1_500;
/// Time from the change of a word until its hold kernel has ended: M §4, 3 µs for both directions.
pub const HOLD_POLL_NS: u64 = 1_500;
/// A context that runs only hold kernels, with nothing pending behind them, is saved after this time if another context
/// waits. M §3: with one hold kernel and a lead of 300 µs the median is 519 µs; the switch to its context takes 200 µs of
/// the lead. Other kernels were not measured.
pub const LONE_HOLD_NS: u64 = 10_000;

/// `cuCheckpointProcessLock` of a process without work in progress: M §10, 0.5-0.9 ms.
pub const LOCK_NS: u64 = 600_000;
/// `cuCheckpointProcessUnlock`: M §10, 0.3-0.7 ms.
pub const UNLOCK_NS: u64 = 450_000;

// Controls: from the request until it takes effect and until it is answered, one at a time on a GPU (M §1, 13, 14).

/// Time from SET_TIMESLICE until it takes effect: M §1, answered within 250-410 µs.
pub const SET_TIMESLICE_NS: u64 = 320_000;
/// A control request without effect on running work: GPFIFO_SCHEDULE, SET_INTERLEAVE_LEVEL, statistics.
pub const ASK_NS: u64 = 290_000;
/// Time from PREEMPT until the group begins to be saved. Without its wait, PREEMPT is answered then: M §1, 270 µs; with its
/// wait, 480 µs.
pub const PREEMPT_ASK_NS: u64 = 270_000;
/// Time from DISABLE_CHANNELS until the group begins to be saved. M §14: answered within 430-600 µs if no work of the group
/// runs. M §2, 13: 670-860 µs if work runs, which continues for most of that time.
pub const DISABLE_NS: u64 = 480_000;
/// As [`DISABLE_NS`], with bOnlyDisableScheduling: M §1, 280-350 µs.
pub const DISABLE_SCHEDULING_NS: u64 = 315_000;
/// Time from DISABLE_CHANNELS that enables channels until it is answered: M §1, 290-320 µs, M §13, 230 µs.
pub const ENABLE_NS: u64 = 270_000;
/// The part of [`ENABLE_NS`] after which the group may run: M §13, quanta of 9 and 21 ms lose 320 µs at each hand-off,
/// of which [`PREEMPT_NS`] and [`LOAD_NS`] are the switch.
pub const ENABLED_AFTER_NS: u64 = 100_000;
/// A driver call that needs no GPU.
pub const DRIVER_CALL_NS: u64 = 2_000;
