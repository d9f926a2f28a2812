//! The keys of all annotations and labels.

/// Prefix of all keys.
pub const PREFIX: &str = "sluice.dev/";

/// `latency-critical`, `high`, `normal`, `best-effort` or 0 to 3.
pub const PRIORITY: &str = "sluice.dev/priority";
/// Number of GPUs, of each of which quota, limit and memory are a part. Not to be confused with [`NODE_GPUS`], which is on nodes.
pub const GPUS: &str = "sluice.dev/gpus";
/// Guaranteed share of each GPU, or a number of whole GPUs.
pub const QUOTA: &str = "sluice.dev/quota";
/// Largest share of each GPU.
pub const LIMIT: &str = "sluice.dev/limit";
/// Memory on each GPU.
pub const MEMORY: &str = "sluice.dev/memory";
/// `true`: the pod's memory may leave the GPU for that of others.
pub const MEMORY_OVERCOMMIT: &str = "sluice.dev/memory-overcommit";
/// `true`: the pod gets no GPU time, and its memory leaves the GPU if it may. The only key that may change after the pod's creation.
pub const SUSPEND: &str = "sluice.dev/suspend";
/// Latency goal of a latency-critical pod.
pub const SLO: &str = "sluice.dev/slo";
/// Models to choose from.
pub const GPU_MODEL: &str = "sluice.dev/gpu-model";
/// GPUs to choose from: the user's selector, never the scheduler's output.
pub const GPU_UUID: &str = "sluice.dev/gpu-uuid";
/// Containers that get the GPU.
pub const CONTAINER: &str = "sluice.dev/container";
/// Name of the gang.
pub const GANG: &str = "sluice.dev/gang";

/// Every key a user may put on a pod.
pub const USER: [&str; 12] = [
    PRIORITY,
    GPUS,
    QUOTA,
    LIMIT,
    MEMORY,
    MEMORY_OVERCOMMIT,
    SLO,
    GPU_MODEL,
    GPU_UUID,
    CONTAINER,
    GANG,
    SUSPEND,
];

/// The keys of [`USER`] that may change after the pod's creation. Placement does not depend on them.
pub const CHANGEABLE: [&str; 1] = [SUSPEND];

/// The scheduler's output on a pod: the UUIDs of its GPUs, comma-separated. No other component may write it.
pub const ASSIGNED_GPU: &str = "sluice.dev/assigned-gpu";

/// Pod condition that the node agent writes: `True` while a suspended pod gets no GPU time.
pub const SUSPENDED_CONDITION: &str = "sluice.dev/Suspended";

/// Label that the webhook puts on each pod with GPUs: `true`. Scale-up pods repel pods that have it.
pub const POD_LABEL: &str = "sluice.dev/gpu-pod";

/// The extended resource: device slots of a node's GPUs.
pub const RESOURCE: &str = "sluice.dev/gpu";

/// The extended resource: guaranteed GPU time in thousandths of one GPU.
pub const MILLI: &str = "sluice.dev/milli";

/// The extended resource: GPU memory in MiB.
pub const MEMORY_MIB: &str = "sluice.dev/memory-mib";

/// Every extended resource of Sluice.
pub const RESOURCES: [&str; 3] = [RESOURCE, MILLI, MEMORY_MIB];

/// Node annotation: the inventory as JSON.
pub const NODE_GPUS: &str = "sluice.dev/gpus";

/// Taint of a node with a lost GPU, if the operator's policy is to taint it.
pub const GPU_LOST_TAINT: &str = "sluice.dev/gpu-lost";

/// Node annotation: how containers get their GPUs, and whether that is proven, such as `nri: proven`. For operators.
pub const NODE_INJECTION: &str = "sluice.dev/injection";

/// The scheduler profile that uses the extender.
pub const SCHEDULER_NAME: &str = "sluice-scheduler";
