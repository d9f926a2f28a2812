//! What governed functions do, by policy word. Each file holds one; none of it runs for a `forward` row.

#![allow(non_snake_case, reason = "the names are the driver's")]

pub(crate) mod alloc;
pub(crate) mod arrays;
pub(crate) mod capture;
pub(crate) mod charge;
pub(crate) mod context;
pub(crate) mod free;
pub(crate) mod launch;
pub(crate) mod lookup;
pub(crate) mod physical;
pub(crate) mod query;
pub(crate) mod stream;
pub(crate) mod sync;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

use sluice_hook_core::outcome::Bypass;

use crate::process;

/// Runs the hook's own part of a call; a panic in it is counted and answered with `otherwise`.
fn guarded<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        process::COUNTERS.panics.fetch_add(1, Relaxed);
        process::count_bypass(Bypass::InternalError);
        otherwise
    })
}
