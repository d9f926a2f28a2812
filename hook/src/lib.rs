//! `libsluice.so`: exports the CUDA driver API, applies the client's share and memory limit, and calls the real driver.
//!
//! Programs load it by `LD_PRELOAD` or `/etc/ld.so.preload`, or find it as `libcuda.so.1` in front of the real one (shim). So nothing in
//! this crate may end the process, print, change descriptors 0-2 or signal masks, or let a panic out.
//!
//! Each module imports only modules of its own row of this table and of the rows below it, and no modules import each other in a circle
//! (`xtask/tests/it` checks both). What a lower module needs of a higher one comes as an argument, as a trait object or as a result.
//!
//! | modules, from what the program calls down to the ground | |
//! |---|---|
//! | `lookups` | `dlsym`, `dlvsym`: answered with the exports |
//! | `exports`, `nvml`, `ioctl`, `api`, `load` | the symbols: driver API, NVML, `ioctl`, `sluice.h`, constructor and fork handler |
//! | `governed` | what the hook does in a call of the driver or of NVML, by subject; `governed::lookup` answers `cuGetProcAddress` |
//! | `tracker` | the thread of each device that keeps its connections |
//! | `residency` | memory that may leave the GPU: allocation in chunks, and the thread that moves them |
//! | `copy_kernel` | makes small copies of a latency-critical process by a kernel |
//! | `hold_kernel` | switches the GPU to a latency-critical process before its kernels arrive |
//! | `process` | the devices and allocations of this process |
//! | `known_contexts` | the contexts that the program has made |
//! | `active_hold`, `gpu_driver` | parts of a device: its hold kernel, the `Driver` of `sluice_hook_core` |
//! | `preempt`, `memory_accounts` | stops and restores streams, for the program or the manager; memory accounts by GPU |
//! | `link` | connections to a manager |
//! | `group_recovery` | enables channel groups again when the manager that may have disabled them is lost |
//! | `channel_groups` | the process's channel groups, derived from its ioctls |
//! | `gpu`, `guard`, `settings`, `thread`, `wakeup_eventfd` | questions to the driver; protection of the program from panics and cancellation; configuration and log; threads; the eventfd that wakes the manager |
//! | `real`, `real_nvml`, `clock`, `counters`, `host_memory`, `log`, `manager_presence` | the real libraries; the `Clock` of `sluice_hook_core`; the host memory for memory that leaves the GPU; whether the manager runs |
//! | `symbols`, `captures`, `descriptor`, `fork`, `hold_page`, `leaked`, `manager_clock`, `polling`, `report_page`, `thread_state` | the ground: these import no other module |

mod active_hold;
mod api;
mod captures;
mod channel_groups;
mod clock;
mod copy_kernel;
mod counters;
mod descriptor;
mod exports;
mod fork;
mod governed;
mod gpu;
mod gpu_driver;
mod group_recovery;
mod guard;
mod hold_kernel;
mod hold_page;
mod host_memory;
mod ioctl;
mod known_contexts;
mod leaked;
mod link;
mod load;
mod log;
mod lookups;
mod manager_clock;
mod manager_presence;
mod memory_accounts;
mod nvml;
mod polling;
mod preempt;
mod process;
mod real;
mod real_nvml;
mod report_page;
mod residency;
mod settings;
mod symbols;
mod thread;
mod thread_state;
mod tracker;
mod wakeup_eventfd;
