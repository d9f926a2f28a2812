//! The version of the loaded driver, and whether its layouts are those of [`crate::abi`].

use std::path::Path;

/// Driver branches of which the layouts were compared with the public sources. On 580 the effects were measured too.
const COMPARED: [u32; 2] = [580, 595];

/// The kernel's file with the version of the loaded module.
pub const VERSION_FILE: &str = "/sys/module/nvidia/version";

/// The driver of this machine, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverVersion {
    /// No NVIDIA module is loaded, or this mount namespace does not show it.
    NotVisible,
    /// A version of which the layouts were compared.
    Compared(String),
    /// Another version: its layouts may differ, so a control could have another effect than requested.
    Unknown(String),
}

impl DriverVersion {
    /// The loaded driver.
    pub fn loaded() -> Self {
        Self::of_file(Path::new(VERSION_FILE))
    }

    /// The driver named by a file of the form of [`VERSION_FILE`].
    pub fn of_file(path: &Path) -> Self {
        std::fs::read_to_string(path).map_or(Self::NotVisible, |text| Self::of_version(&text))
    }

    /// The driver of this version, as the kernel or NVML writes it.
    pub fn of_version(text: &str) -> Self {
        let version = text.trim().to_owned();
        let branch = version.split('.').next().and_then(|branch| branch.parse().ok());
        match branch {
            Some(branch) if COMPARED.contains(&branch) => Self::Compared(version),
            _ => Self::Unknown(version),
        }
    }
}
