//! Shares of GPUs as claims of Dynamic Resource Allocation (DRA): on nodes with the label [`NODE_LABEL`], in place of the device plugin.
//!
//! * `device`: GPUs to the devices of a ResourceSlice. Pure.
//! * `claim`: an allocated claim to the shares that it promises. Pure.
//! * `checkpoint`: the prepared claims on disk. `library_device`: the CDI device of what each container gets beside its GPU.
//! * `resource_slice`: publishes the devices. `driver`: what kubelet asks for. `run`: all parts, from their start to their end.
//! * `server`: the two sockets for kubelet. `registration`: the protocol of the one by which kubelet finds the driver.
//!
//! The prepared claims go the way of annotated pods: `pods::assign` makes clients of them.

mod checkpoint;
mod claim;
mod device;
mod driver;
mod library_device;
mod registration;
mod resource_slice;
mod run;
mod server;

pub(crate) use checkpoint::Checkpoint;
pub(crate) use driver::Inputs;
pub(crate) use resource_slice::withdraw as withdraw_devices;
pub(crate) use run::{Settings, run};

/// Label with the value `true` of a node whose GPUs are given by claims.
pub(crate) const NODE_LABEL: &str = "sluice.dev/dra";
