//! Virtual memory management.

pub(crate) use super::pool::*;
