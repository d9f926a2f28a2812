//! What needs `unsafe` outside the hook, behind safe functions: mappings, seals, descriptor passing, pidfd, futex and
//! the time-stamp counter. Knows nothing of Sluice.
//!
//! It also runs inside the hook, that is in a stranger's process: no panics, no logging, and no allocation in `clock`,
//! `tsc` and `futex`, nor in `socket` beyond the list of received descriptors. Kernel interfaces younger than glibc
//! 2.17 are reached by `syscall`, so that no newer symbol is needed to load the hook.

pub mod clock;
pub mod eventfd;
pub mod futex;
pub mod kind;
mod mapping;
pub mod memfd;
pub mod page;
pub mod pidfd;
pub mod region;
pub mod socket;
pub mod tsc;
