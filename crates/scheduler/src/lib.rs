//! The cluster's half of Sluice: the scheduler extender that picks GPUs, and the admission webhook.
#![forbid(unsafe_code)]

pub mod extender;
pub mod webhook;
