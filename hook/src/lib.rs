//! `libsluice.so`: exports the CUDA driver API, governs what has to be governed, and hands everything to the real driver.
//!
//! Loaded into strangers' processes by `LD_PRELOAD` or `/etc/ld.so.preload`, or found as `libcuda.so.1` in front of the real
//! one (shim). Nothing in here may end the process, print, leave descriptors 0-2 or signal masks changed, or let a panic out.
//!
//! * `exports` expands the table: every symbol, and the way each policy word goes to [`governed`].
//! * `symbols` interposes `dlsym` and `dlvsym`; `governed::lookup` does `cuGetProcAddress`.
//! * `real` finds the real driver; `gpu`, `link` and `clock` stand behind the traits of `sluice_hook_core`.
//! * `hold` gets a latency-critical process onto the GPU before its kernels are there.
//! * `process` owns what this process has: configuration, devices, ledger; `start` runs at load and at fork.

mod api;
mod background;
mod clock;
mod exports;
mod governed;
mod gpu;
mod hold;
mod link;
mod log;
mod process;
mod real;
mod report;
mod start;
mod symbols;
mod tracker;
