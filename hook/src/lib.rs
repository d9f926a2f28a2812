//! `libsluice.so`: exports the CUDA driver API, applies the client's share and memory limit, and calls the real driver.
//!
//! Programs load it by `LD_PRELOAD` or `/etc/ld.so.preload`, or find it as `libcuda.so.1` in front of the real one (shim). So nothing in
//! this crate may end the process, print, change descriptors 0-2 or signal masks, or let a panic out.
//!
//! * `exports` expands the table of driver functions: every symbol, and what each policy word calls in [`governed`].
//! * `symbols` interposes `dlsym` and `dlvsym`; `governed::lookup` replaces the answers of `cuGetProcAddress`.
//! * `nvml` exports some functions of NVML; `governed::nvml` shows the limit and the client's processes.
//! * `ioctl` passes every call on and observes those that the NVIDIA driver accepted. `channel_groups` derives the process's channel groups from
//!   them. `group_recovery` enables the groups again when the connection to the manager that may have disabled them is lost.
//! * `real` finds the real driver; `gpu`, `link` and `clock` implement the traits of `sluice_hook_core`.
//! * `hold_kernel` switches the GPU to a latency-critical process before its kernels arrive.
//! * `preempt` stops and restores streams, for the program or for the manager.
//! * `process` owns the state of this process: configuration, devices, allocations; `process::setup` runs at load and
//!   at fork. `leaked` holds values that are made once.

mod api;
mod channel_groups;
mod clock;
mod descriptor;
mod exports;
mod governed;
mod gpu;
mod group_recovery;
mod hold_kernel;
mod ioctl;
mod leaked;
mod link;
mod log;
mod nvml;
mod preempt;
mod process;
mod real;
mod symbols;
mod thread;
mod wakeup_eventfd;
