//! A version of the library, named by its content.

use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fmt;
use std::path::{Component, Path};

/// Digits of a SHA-256 in hexadecimal.
const DIGITS: usize = 64;

/// The SHA-256 of a libsluice.so, in lower-case hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(String);

impl Version {
    /// The version of this content.
    pub fn of(content: &[u8]) -> Self {
        let digest = Sha256::digest(content);
        Self(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Reads a name as [`Version::of`] creates it; `None` for any other.
    pub fn parse(name: &str) -> Option<Self> {
        let is_digit = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
        (name.len() == DIGITS && name.bytes().all(is_digit)).then(|| Self(name.to_owned()))
    }

    /// The versions that components of a path name, such as that of `/var/lib/sluice/lib/<sha256>/ld.so.preload`.
    pub fn all_in(path: &Path) -> impl Iterator<Item = Self> + '_ {
        path.components().filter_map(|part| match part {
            Component::Normal(name) => name.to_str().and_then(Self::parse),
            _ => None,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<OsStr> for Version {
    fn as_ref(&self) -> &OsStr {
        OsStr::new(&self.0)
    }
}

impl AsRef<Path> for Version {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

#[cfg(test)]
mod tests;
