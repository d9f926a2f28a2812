//! SHA-256.

use sha2::{Digest, Sha256};

/// The digest of bytes, in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}
