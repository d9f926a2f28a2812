//! The hook's and the manager's decisions together, on a simulated GPU in steps of simulated time.
#![allow(clippy::unwrap_used, reason = "tests")]

mod two_services;
