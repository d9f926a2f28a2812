//! Memory pools and stream-ordered allocation.

pub(crate) use super::memory::*;
