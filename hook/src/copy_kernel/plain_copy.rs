//! A copy that is described by two addresses and a length.

use sluice_driver_api::types::CUdeviceptr;

/// A copy between two unified addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlainCopy {
    pub(crate) to: CUdeviceptr,
    pub(crate) from: CUdeviceptr,
    pub(crate) bytes: usize,
}
