//! Memory of one GPU that its pods have, with those whose memory may leave it for that of others (docs/design/residency.md).
//!
//! The memory of a pod with overcommitment is on the GPU as a whole or not at all, except the part that never leaves: contexts, modules
//! and what the driver allocates by itself. So a GPU can keep its promises under two conditions:
//!
//! * **On the GPU.** Beside the memory of all pods without overcommitment, each pod with it has room alone, with the part of the others
//!   that never leaves. A pod without room alone would wait for ever.
//! * **On the host.** The host's memory for the GPU holds *all* memory of the pods with overcommitment, and not only what exceeds the GPU:
//!   the pod-manager refuses an allocation that has no place there yet, so that whatever leaves has its place already.

/// What a pod with overcommitment is expected to have on the GPU that never leaves. A process with PyTorch has about this much before its first
/// allocation (measured on an H200).
const STAYS_BYTES: u64 = 512 << 20;

/// A pod-manager gives host memory in multiples of this.
const HOST_GRANULE_BYTES: u64 = 2 << 20;

/// The memory that pods have of one GPU. Sums saturate: the amounts come from users' annotations, and a saturated sum exceeds every GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Of pods without overcommitment.
    fixed: u64,
    /// Of pods with overcommitment: the parts that never leave.
    staying: u64,
    /// Of pods with overcommitment: the largest part of one of them that may leave.
    largest_movable: u64,
    /// Of pods with overcommitment: bytes of the host for all of their memory.
    host: u64,
    /// Of all pods.
    sum: u64,
}

impl MemoryUse {
    /// With one more pod of this memory.
    #[must_use]
    pub fn and(self, memory_bytes: u64, overcommits: bool) -> Self {
        let sum = self.sum.saturating_add(memory_bytes);
        if !overcommits {
            return Self { fixed: self.fixed.saturating_add(memory_bytes), sum, ..self };
        }
        let stays = memory_bytes.min(STAYS_BYTES);
        Self {
            staying: self.staying.saturating_add(stays),
            largest_movable: self.largest_movable.max(memory_bytes - stays),
            host: self.host.saturating_add(on_host(memory_bytes)),
            sum,
            ..self
        }
    }

    /// Bytes of the GPU that the pods need at the same time, whichever of them has its memory there.
    #[must_use]
    pub fn on_gpu(&self) -> u64 {
        self.fixed.saturating_add(self.staying).saturating_add(self.largest_movable)
    }

    /// Bytes of the host that the pods need.
    #[must_use]
    pub fn on_host(&self) -> u64 {
        self.host
    }

    /// Bytes that the pods have together, wherever these are.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Whether memory has to leave a GPU of this capacity when all pods use theirs.
    #[must_use]
    pub fn exceeds(&self, capacity: u64) -> bool {
        self.sum > capacity
    }

    /// The most memory that one more pod may have on a GPU of this capacity.
    #[must_use]
    pub fn room(&self, capacity: u64, overcommits: bool) -> u64 {
        let left = capacity.saturating_sub(self.on_gpu());
        if overcommits && left >= STAYS_BYTES { left.saturating_add(self.largest_movable) } else { left }
    }
}

/// Bytes of the host for a pod of this memory with overcommitment.
#[must_use]
pub fn on_host(memory_bytes: u64) -> u64 {
    memory_bytes.checked_next_multiple_of(HOST_GRANULE_BYTES).unwrap_or(u64::MAX)
}
