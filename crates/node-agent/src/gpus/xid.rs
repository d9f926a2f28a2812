//! Xid errors: the driver's numbers for what went wrong on a GPU.
//!
//! Numbers and names follow NVIDIA's catalogue of Xids.

use std::collections::BTreeSet;

/// Xids that programs cause by themselves: graphics exception, page fault, stopped channel, preemptive cleanup, video
/// decoder exception, context switch timeout. They say nothing about the GPU. NVIDIA's own device plugin ignores the
/// same Xids.
pub const APPLICATION_XIDS: [u64; 6] = [13, 31, 43, 45, 68, 109];

/// The needed recovery action has changed, for better or worse. It only triggers a scan.
const RECOVERY_ACTION_CHANGED: u64 = 154;

/// What an Xid means for its GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A program's fault: the GPU is as healthy as before.
    Application,
    /// Only a scan of the GPU can tell.
    Informational,
    /// The GPU gets no new work.
    Critical,
}

/// Which Xids make a GPU unhealthy: all except those of applications, changed by the operator's lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    ignored: BTreeSet<u64>,
    critical: BTreeSet<u64>,
}

impl Policy {
    /// `ignored` also count as a program's fault. `critical` never do, not even those of [`APPLICATION_XIDS`].
    pub fn new(ignored: impl IntoIterator<Item = u64>, critical: impl IntoIterator<Item = u64>) -> Self {
        Self { ignored: ignored.into_iter().collect(), critical: critical.into_iter().collect() }
    }

    /// What this Xid means. A number in both lists is critical.
    pub fn class(&self, code: u64) -> Class {
        if self.critical.contains(&code) {
            Class::Critical
        } else if self.ignored.contains(&code) || APPLICATION_XIDS.contains(&code) {
            Class::Application
        } else if code == RECOVERY_ACTION_CHANGED {
            Class::Informational
        } else {
            Class::Critical
        }
    }
}

/// The name of an Xid; `None` for a number that is not in the list.
pub fn name(code: u64) -> Option<&'static str> {
    Some(match code {
        13 => "graphics engine exception",
        31 => "GPU memory page fault",
        32 => "invalid or corrupted push buffer stream",
        38 => "driver firmware error",
        43 => "GPU stopped processing",
        45 => "preemptive cleanup, due to previous errors",
        48 => "double bit ECC error",
        61 => "internal micro-controller breakpoint or warning",
        62 => "internal micro-controller halt",
        63 => "a memory row was remapped or a page retired",
        64 => "remapping a memory row or retiring a page failed",
        68 => "video decoder exception",
        69 => "graphics engine class error",
        74 => "NVLink error",
        79 => "GPU has fallen off the bus",
        92 => "high rate of corrected ECC errors",
        94 => "contained ECC error",
        95 => "uncontained ECC error",
        109 => "context switch timeout",
        119 => "GPU system processor does not answer",
        120 => "GPU system processor error",
        140 => "unrecovered ECC error",
        143 => "GPU initialization failure",
        RECOVERY_ACTION_CHANGED => "GPU recovery action changed",
        _ => return None,
    })
}

/// Text for users: `Xid 79: GPU has fallen off the bus`.
pub fn describe(code: u64) -> String {
    match name(code) {
        Some(name) => format!("Xid {code}: {name}"),
        None => format!("Xid {code}"),
    }
}

/// Reads a list such as `13,31` from a flag.
///
/// # Errors
/// Which part is no number.
pub fn parse_list(text: &str) -> Result<Vec<u64>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            part.parse().map_err(|_| format!("{part:?} is no Xid: expected a list of numbers, such as 13,31"))
        })
        .collect()
}

#[cfg(test)]
mod tests;
