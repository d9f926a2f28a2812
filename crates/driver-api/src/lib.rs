//! The CUDA driver API as data: one table of all exported functions.
//!
//! * [`driver_api!`] passes each row (policy, symbol, key of `cuGetProcAddress`, signature) to a macro of the caller, which generates
//!   exports, wrappers or tests from it. So no function of the table is missing in any of them.
//! * [`RealDriver`] contains the typed addresses of a loaded driver's functions.
//! * [`lookup`] returns the row of the function that `cuGetProcAddress` would return.
//!
//! ```
//! use sluice_driver_api::{Policy, lookup};
//!
//! let entry = lookup("cuMemAlloc", 12_000, 0).unwrap();
//! assert_eq!((entry.symbol, entry.policy), ("cuMemAlloc_v2", Policy::Alloc));
//! ```
//!
//! [`nvml`] is the small table of the NVML functions that the hook answers.
//!
//! The rows of the driver are generated from NVIDIA's headers (`tools/driver-api/generate.py`), the policies from
//! `tools/driver-api/policies.toml`. The crate has no behaviour of its own.

#[rustfmt::skip]
#[macro_use]
mod table;

#[allow(non_upper_case_globals, reason = "the names are the driver's")]
#[rustfmt::skip]
mod constants;
mod entry;
#[rustfmt::skip]
#[allow(non_camel_case_types, reason = "the names are the driver's")]
mod handles;
pub mod nvml;
mod real;
mod status;
#[rustfmt::skip]
mod status_codes;
pub mod types;

pub use entry::{ENTRIES, Entry, Policy, Variant, find_symbol, lookup, lookup_index};
pub use real::RealDriver;
pub use status::CUresult;
