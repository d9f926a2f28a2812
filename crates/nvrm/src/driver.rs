//! Which driver is loaded, and whether its layouts are those of [`crate::abi`].

use std::path::Path;

/// Branches of the driver of which the layouts were compared with the public sources, and on 580 the effects measured.
const COMPARED: [u32; 2] = [580, 595];

/// Where the kernel says which version of the module is loaded.
pub const VERSION_FILE: &str = "/sys/module/nvidia/version";

/// What is known of the driver on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// No NVIDIA module, or none that this mount namespace shows.
    Unseen,
    /// Its layouts are ours.
    Compared(String),
    /// Its layouts may be others: a control could do something else than what was asked.
    Unknown(String),
}

impl Driver {
    /// The one that is loaded.
    #[must_use]
    pub fn loaded() -> Self {
        Self::of_file(Path::new(VERSION_FILE))
    }

    /// The one that a file of the form of [`VERSION_FILE`] names.
    #[must_use]
    pub fn of_file(path: &Path) -> Self {
        std::fs::read_to_string(path).map_or(Self::Unseen, |text| Self::of_version(&text))
    }

    /// The one of this version, as the kernel or NVML writes it.
    #[must_use]
    pub fn of_version(text: &str) -> Self {
        let version = text.trim().to_owned();
        let branch = version.split('.').next().and_then(|branch| branch.parse().ok());
        match branch {
            Some(branch) if COMPARED.contains(&branch) => Self::Compared(version),
            _ => Self::Unknown(version),
        }
    }
}
