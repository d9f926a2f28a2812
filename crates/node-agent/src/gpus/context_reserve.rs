//! Memory of a GPU that pods cannot request, because their processes take it before their first allocation: contexts,
//! modules and libraries, which the hook does not count.

use std::str::FromStr;

use sluice_placement::annotations::parse_quantity;

/// Measured on an H200: a process with PyTorch takes about 0.5 GiB.
const DEFAULT_PER_SLOT: u64 = 512 << 20;
/// Many slots are rarely all in use: by default they take at most this part of a GPU, so that a small GPU or one with a
/// hundred slots keeps most of its memory.
const DEFAULT_PART: u64 = 10;

/// How much memory of a GPU is reserved for the contexts of its pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ContextReserve {
    /// 512 MiB for each device slot, at most a tenth of the GPU's memory.
    #[default]
    Default,
    /// This many bytes for each device slot.
    PerSlot(u64),
}

impl ContextReserve {
    /// Bytes that are reserved on a GPU with this much memory and this many device slots.
    #[must_use]
    pub fn bytes(self, memory_bytes: u64, slots: u32) -> u64 {
        match self {
            Self::Default => DEFAULT_PER_SLOT.saturating_mul(slots.into()).min(memory_bytes / DEFAULT_PART),
            Self::PerSlot(bytes) => bytes.saturating_mul(slots.into()).min(memory_bytes),
        }
    }
}

/// A Kubernetes quantity of bytes per device slot.
impl FromStr for ContextReserve {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes =
            parse_quantity(text).ok_or("expected a Kubernetes quantity of bytes, such as 512Mi or 0")?;
        Ok(Self::PerSlot(bytes))
    }
}

#[cfg(test)]
mod tests;
