//! The result of a self-test, and the driver, GPU and boot that it applies to.

use std::fs;
use std::path::Path;

use super::Effect;
use crate::DriverVersion;

/// The kernel's file with the id of this boot.
const BOOT_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// The kernel's id of this boot; empty if it cannot be read.
pub fn boot_id() -> String {
    fs::read_to_string(Path::new(BOOT_FILE)).unwrap_or_default().trim().to_owned()
}

/// The driver, GPU and boot that a result applies to. Another driver, GPU or boot may give another result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SelfTestSubject {
    /// Version of the driver.
    pub driver: String,
    /// UUID of the GPU, as NVML writes it.
    pub gpu: String,
    /// The kernel's id of the boot.
    pub boot: String,
}

impl SelfTestSubject {
    /// This GPU with the driver of this version, in the current boot.
    pub fn now(driver: &str, gpu: &str) -> Self {
        Self { driver: driver.to_owned(), gpu: gpu.to_owned(), boot: boot_id() }
    }
}

/// The result of a self-test.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SelfTestResult {
    /// The driver, GPU and boot that it applies to.
    pub about: SelfTestSubject,
    /// SET_TIMESLICE: GPU shares follow the time slices.
    pub slices: Effect,
    /// DISABLE_CHANNELS: a disabled program stops, and continues when it is enabled.
    pub stops: Effect,
    /// GET_CTXSW_STATS: the counts increase while two programs share the GPU.
    pub counts: Effect,
}

/// The controls of a driver that can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsableControls {
    /// Disabling channels and setting time slices.
    All,
    /// Disabling channels; time slices have no effect.
    DisableOnly,
    /// None: all processes are token-scheduled.
    NoControls,
}

impl SelfTestResult {
    /// Whether the result applies to this driver, to this GPU if one is named, and to this boot. A driver without a visible version is
    /// assumed to be the tested one; an unknown boot id matches none.
    pub fn applies_to(&self, driver: &DriverVersion, gpu: Option<&str>, boot: &str) -> bool {
        let same_driver = match driver {
            DriverVersion::NotVisible => true,
            DriverVersion::Compared(version) | DriverVersion::Unknown(version) => {
                *version == self.about.driver
            }
        };
        let same_gpu = gpu.is_none_or(|gpu| gpu == self.about.gpu);
        same_driver
            && same_gpu
            && !boot.is_empty()
            && boot == self.about.boot
            && !self.stops.is_inconclusive()
    }

    /// The controls that can be relied on after this result.
    pub fn usable_controls(&self) -> UsableControls {
        match (self.stops.is_proven(), self.slices.is_proven()) {
            (true, true) => UsableControls::All,
            (true, false) => UsableControls::DisableOnly,
            (false, _) => UsableControls::NoControls,
        }
    }

    /// Whether repeating the test may give another result.
    pub fn is_inconclusive(&self) -> bool {
        self.stops.is_inconclusive() || self.slices.is_inconclusive()
    }

    /// Whether it applies to exactly this driver, GPU and boot. An unknown boot id matches none.
    pub fn is_for(&self, now: &SelfTestSubject) -> bool {
        !now.boot.is_empty() && self.about == *now
    }
}
