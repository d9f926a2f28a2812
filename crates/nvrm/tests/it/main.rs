//! Integration tests of the driver interface. `abi` and `control` also run under Miri.

#![allow(clippy::unwrap_used, reason = "tests")]

mod abi;
mod client_search;
mod control;
mod driver;
mod group_discovery;
mod ioctl_observation;
mod ioctl_observation_model;
mod selftest;
mod transport;
