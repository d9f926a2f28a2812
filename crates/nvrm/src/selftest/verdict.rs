//! What was proven of a driver, and for how long that holds.

use std::fs;
use std::path::Path;

use super::Effect;
use crate::Driver;

/// Where the kernel says which boot this is.
const BOOT_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// The kernel's number of this boot; empty if it does not say.
#[must_use]
pub fn boot() -> String {
    fs::read_to_string(Path::new(BOOT_FILE)).unwrap_or_default().trim().to_owned()
}

/// What a verdict holds for. With another driver, GPU or boot everything may be different.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct About {
    /// Version of the driver.
    pub driver: String,
    /// UUID of the GPU, as NVML writes it.
    pub gpu: String,
    /// The kernel's number of this boot.
    pub boot: String,
}

impl About {
    /// A GPU under the driver of this version, from now to the next boot.
    #[must_use]
    pub fn now(driver: &str, gpu: &str) -> Self {
        Self { driver: driver.to_owned(), gpu: gpu.to_owned(), boot: boot() }
    }
}

/// The outcome of a self-test.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Verdict {
    /// What it holds for.
    pub about: About,
    /// SET_TIMESLICE: shares follow slices.
    pub slices: Effect,
    /// DISABLE_CHANNELS: who is stopped stands, and goes on when started.
    pub stops: Effect,
    /// GET_CTXSW_STATS: the counts move while programs take turns.
    pub counts: Effect,
}

/// What may be built on a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allows {
    /// Turns and slices.
    Everything,
    /// Turns; slices do nothing.
    Stops,
    /// Nothing: everybody takes turns by token.
    Nothing,
}

impl Verdict {
    /// Whether it says anything of this driver as this machine shows it, of this GPU if one is named, in this boot. A driver
    /// that does not show its version is taken for the one that was tested; a boot that cannot be told is no boot.
    #[must_use]
    pub fn holds_for(&self, driver: &Driver, gpu: Option<&str>, boot: &str) -> bool {
        let same_driver = match driver {
            Driver::Unseen => true,
            Driver::Compared(version) | Driver::Unknown(version) => *version == self.about.driver,
        };
        let same_gpu = gpu.is_none_or(|gpu| gpu == self.about.gpu);
        same_driver
            && same_gpu
            && !boot.is_empty()
            && boot == self.about.boot
            && !self.stops.is_inconclusive()
    }

    /// What may be built on it.
    #[must_use]
    pub fn allows(&self) -> Allows {
        match (self.stops.is_proven(), self.slices.is_proven()) {
            (true, true) => Allows::Everything,
            (true, false) => Allows::Stops,
            (false, _) => Allows::Nothing,
        }
    }

    /// Whether the same test may come to something else another time.
    #[must_use]
    pub fn is_inconclusive(&self) -> bool {
        self.stops.is_inconclusive() || self.slices.is_inconclusive()
    }

    /// Whether it is about exactly this. A boot that cannot be told is no boot.
    #[must_use]
    pub fn is_about(&self, now: &About) -> bool {
        !now.boot.is_empty() && self.about == *now
    }
}
