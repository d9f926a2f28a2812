//! Load generators on the CUDA driver API: best-effort (BE) work that fills the GPU, and latency-critical (LC) requests.
//!
//! They are ordinary CUDA programs: they find `libcuda.so.1` as any program does, so a preloaded hook governs them, and the
//! same code runs on a GPU (PTX) and on the simulator (its module text). What they print is what a witness checks them by:
//! the checksum of their buffer follows from the number of kernels that ran ([`kernel::expected_checksum`]).

pub mod be;
pub mod checkpoint;
pub mod commanded;
pub mod driver;
pub mod facts;
pub mod gate;
pub mod graph;
pub mod grow;
pub mod kernel;
pub mod lc;
pub mod memory;
pub mod record;
pub mod report;
pub mod samples;
pub mod session;
pub mod steady;
pub mod stop;
