//! `libsluice.so`: exports the CUDA driver API, governs what has to be governed, and hands everything to the real driver.
//!
//! Loaded into strangers' processes by `LD_PRELOAD` or `/etc/ld.so.preload`, or found as `libcuda.so.1` in front of the real
//! one (shim). Nothing in here may end the process, print, leave descriptors 0-2 or signal masks changed, or let a panic out.
//!
//! * `exports` expands the table: every symbol, and the way each policy word goes to [`governed`].
//! * `symbols` interposes `dlsym` and `dlvsym`; `governed::lookup` does `cuGetProcAddress`.
//! * `ioctl` lets every call through and looks at those that the NVIDIA driver has accepted; `groups` keeps what they tell of
//!   the process's channel groups, `guard` starts them again when the manager that may have stopped them is lost.
//! * `real` finds the real driver; `gpu`, `link` and `clock` stand behind the traits of `sluice_hook_core`.
//! * `hold` gets a latency-critical process onto the GPU before its kernels are there.
//! * `preempt` stops streams and lets them go on, for the program itself or for the manager.
//! * `process` owns what this process has: configuration, devices, ledger; `start` runs at load and at fork.

mod api;
mod clock;
mod counters_export;
mod descriptor;
mod exports;
mod governed;
mod gpu;
mod group_recovery;
mod groups;
mod hold_kernel;
mod ioctl;
mod link;
mod load_and_fork;
mod log;
mod preempt;
mod process;
mod real;
mod symbols;
mod thread;
mod tracker_thread;
mod wakeup_eventfd;
