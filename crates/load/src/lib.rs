//! Load generators on the CUDA driver API: best-effort (BE) work that fills the GPU, and latency-critical (LC) requests.
//!
//! They are ordinary CUDA programs. They find `libcuda.so.1` as any program does, so a preloaded hook schedules them, and the same
//! code runs on a GPU (PTX) and on the simulator (its module text).
//!
//! * [`be::run`] and [`lc::run`] generate load until a [`stop::StopCondition`], and print [`record::Record`]s.
//! * [`command_driven`] has generators that execute commands from standard input, for measurements in blocks.
//! * [`steady`] is a program that is always busy and reports its count of kernels on request.
//! * [`random_calls`] makes random driver calls on several threads, for a soak.
//! * [`driver`], [`session`], [`memory`], [`graph`] and [`checkpoint`] are safe wrappers of the driver functions that these need.
//!   They return the driver's errors. A wait or a copy to the host may return the error of an earlier launch.
//! * [`stream_gate_test`] tests whether a driver supports stream gates; [`driver::DriverFacts`] is what the driver reports.
//!
//! The output can be checked: the checksum of a generator's buffer follows from the number of kernels that ran.
//!
//! ```
//! use sluice_load::kernel::{checksum, expected_checksum, initial, mix};
//!
//! // A buffer of four words after two kernels.
//! let words = (0..4).map(|index| mix(mix(initial(index), index), index));
//! assert_eq!(checksum(words), expected_checksum(4, 2));
//! ```

pub mod be;
pub mod checkpoint;
pub mod command_driven;
pub mod driver;
pub mod graph;
pub mod kernel;
pub mod lc;
pub mod memory;
pub mod random_calls;
pub mod record;
pub mod samples;
pub mod session;
pub mod steady;
pub mod stop;
pub mod stream_gate_test;
