//! The CUDA driver API as data: one table of all exported functions, and what follows from it.
//!
//! * [`driver_api!`] hands each row (policy word, symbol, key of `cuGetProcAddress`, signature) to a macro of the caller,
//!   which makes exports, wrappers or tests of it. A function that is in the table cannot be forgotten in one of them.
//! * [`RealDriver`] holds the addresses of a loaded driver, typed.
//! * [`lookup`] answers what `cuGetProcAddress` would answer, as a row of the table.
//!
//! The rows come from NVIDIA's headers (`tools/driver-api/generate.py`), the policy words from
//! `tools/driver-api/policies.toml`. The crate holds no behaviour.

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
mod real;
mod status;
#[rustfmt::skip]
mod status_codes;
pub mod types;

pub use entry::{ENTRIES, Entry, Policy, Variant, find_symbol, lookup, lookup_index};
pub use real::RealDriver;
pub use status::CUresult;
