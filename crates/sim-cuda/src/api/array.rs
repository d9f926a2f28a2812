//! Arrays and mipmapped arrays.

pub(crate) use super::vmm::*;
