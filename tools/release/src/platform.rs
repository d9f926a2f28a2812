//! The processors for which a release has programs.

/// A processor architecture, under Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Platform {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Platform {
    pub(crate) const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// The architecture's name in the OCI's specifications and in Debian.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The target's name in Rust.
    pub(crate) fn triple(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }
}
