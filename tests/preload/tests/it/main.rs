//! All tests of real programs under the real hook, as one test program: one link instead of twenty.
//!
//! Each test starts its own simulator, pod-manager and tenants as processes. A test of the promised accuracy of shares holds the machine
//! alone (`exclusive`), and so does one of a choice by durations on the real clock. All others run side by side (`shared`), and a busy machine does not change their outcome. One test:
//! `cargo test -p sluice-preload-tests --test it MODULE::TEST`.

mod absent_pointers;
mod announcements;
mod bad_input;
mod benchmarks;
mod bypasses;
mod channel_group_scheduling;
mod contract;
mod copies;
mod deadlines;
mod dependent_work;
mod doctor;
mod driver_lookup;
mod energy;
mod escapes;
mod frozen_tenants;
mod gangs;
mod gemini_protocol;
mod hold_kernels;
mod host_bound;
mod ioctls;
mod killed_processes;
mod latencies;
mod load_command;
mod measured_memory;
mod memory_limits;
mod memory_pools;
mod nvml;
mod preemption;
mod processes;
mod races;
mod reef_example;
mod refused_processes;
mod release_command;
mod request_cost;
mod residency;
mod silent_manager;
mod soak_tenants;
mod streams;
mod time_namespaces;
mod time_shares;
mod unhooked_processes;
mod violations;
mod whole_requests;
