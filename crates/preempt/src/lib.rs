//! The preemption engine of the hook: it stops and restores CUDA streams without the program's notice.
//!
//! Every stream has a queue. While a stream runs, its calls go to the driver on the caller's own thread. While it is preempted, they
//! wait in its host queue and are submitted in order later. The engine controls only the *order of submission*, so a program cannot
//! tell a preemption from a slow GPU. Nothing is ever skipped or submitted twice.
//!
//! # Main types
//! * [`engine::Engine`]: all queues of a process, generic over [`driver::Driver`], [`driver::Clock`] and [`driver::Observer`].
//!   This crate calls no CUDA function, reads no clock and starts no thread.
//! * [`queue::Queue`]: one stream's queue, as submitting threads hold it.
//! * [`config::Config`] and [`config::PreemptionLevel`]: how a queue may be preempted.
//! * [`worker::run`]: the body of the thread that submits pending commands. Tests call [`engine::Engine::dispatch`] themselves.
//!
//! ```
//! use sluice_preempt::config::{Config, PreemptionLevel};
//! use sluice_preempt::stream_state::{StreamState, Transition};
//!
//! assert!(Config { level: PreemptionLevel::Device, ..Config::default() }.is_valid());
//! let preempting = StreamState::Running.after(Transition::Preempt).unwrap();
//! assert!(preempting.is_under_preemption());
//! ```
//!
//! # Levels
//! * *host*: the host queue alone. `preempt` with `sync` waits until submitted work has ended, within its time limit.
//! * *device*: stream gates (waits of the GPU for a word of memory) in front of at least 50 µs of work each. The stream stops in
//!   place at the next gate.
//! * *full*: the channel group of the context is disabled ([`driver::ChannelGroups`]). Used only where no other running stream
//!   waits for this one; otherwise the engine falls back. `preempt` returns the level achieved.
//!
//! # Cost
//! A call that passes changes one word before and one after it. While preemption is enabled for its stream it is also counted under
//! its queue's own lock. No lock is held during the driver call.
//!
//! # Duties of the caller
//! * A thread's own default stream is given to the engine as a blocking [`ids::Stream`] with a handle that every thread may use. The
//!   worker submits to it, and the driver's handle 2 would mean the worker's own stream.
//! * As soon as preemption is enabled for one stream of a context, the context's other streams need queues too: the legacy default
//!   stream orders all of them, and events connect them. Without pending commands they cost the one word.
//! * A deferred host function, callback or graph is named by handle; the driver's adapter makes the call.
//! * Copies to pageable memory, and from more than [`command::STAGED_MAXIMUM`] bytes of it, are [`command::Deferral::ByCaller`].
//! * IPC events always use the program's own event (`Engine::event_created`). A later record therefore disturbs a queued wait for an
//!   earlier one, as the other process cannot be told of a pooled event.
//! * The legacy default stream is preempted at level *host* only. A command of it that waits holds up all blocking streams, so the
//!   gates in front of what it waits for stay open.
//! * At level *full* without gates the engine does not know what others wait for on the GPU. A running stream that waits for a
//!   preempted one then waits until that one is restored.
//!
//! # The contract and its tests
//! The numbers are those of the preemption contract; tests are in `tests/it` unless the table says otherwise.
//!
//! | number | test |
//! |---|---|
//! | 1 order | `order::hundred_thousand_dependent_increments_survive_preemption_at_1_khz`, `random_programs` |
//! | 2 eight streams, event chains | `dependencies::eight_streams_in_a_ring_of_events_keep_their_order`, `random_programs` |
//! | 3 not idempotent, each level | `levels::non_idempotent_kernel_runs_once_at_every_level_cooperative_or_not`, `random_programs` |
//! | 4 queries and waits while preempted | `events::event_with_pending_record_is_not_ready_without_a_driver_call`, `threads::waits_for_a_preempted_stream_end_when_it_is_restored` |
//! | 5 nothing after preempt | `order::after_preempt_the_gpu_completes_submitted_work_and_after_a_synchronous_one_nothing`, `tests/loom_admission.rs` |
//! | 6 submissions return up to the bound | `threads::full_host_queue_makes_the_caller_wait_and_refuses_nothing`; the 5 µs: GPU |
//! | 7, 8 parameters, pageable source | `calls::deferred_call_uses_parameters_and_pageable_bytes_of_the_time_of_the_call`; which memory is pageable: hook |
//! | 9 copy to pageable memory | `legacy::call_that_cannot_be_queued_is_made_in_order_by_its_caller` |
//! | 10 stream-ordered allocation | `calls::deferred_launch_uses_memory_allocated_while_the_stream_was_preempted` |
//! | 11 destroy while preempted | `calls::destroy_of_preempted_stream_returns_at_once_and_its_work_completes_later`, `enable::ten_thousand_streams_destroyed_while_preempted_leave_nothing_behind` |
//! | 12 event destroyed while queued | `events::event_destroyed_while_its_record_and_a_wait_are_queued_is_still_used_by_both` |
//! | 13 host functions | `calls::host_functions_run_once_and_in_order`, `random_programs` |
//! | 14, 15 captures | `capture` |
//! | 16 legacy default stream | `legacy`, `random_programs` |
//! | 17 threads' own default streams | `threads::sixteen_threads_on_their_own_streams_keep_their_order`; `_ptsz` names: hook |
//! | 18 wait for a preempted recorder | `dependencies` |
//! | 19 errors | `errors` |
//! | 20 two contexts | `dependencies::preempted_context_delays_no_stream_of_another_context`; two devices: GPU |
//! | 21, 22 scheduler or preempting client dies | no other process stops a stream here; processes: `contract` in `tests/preload` |
//! | 23 fork | `threads::forked_child_calls_the_driver_directly_and_nothing_waits`; exec: simulator |
//! | 24, 25 frameworks, latencies | GPU |
//! | 26 endless kernel | `levels::endless_kernel_is_taken_off_the_gpu_at_level_full` |
//! | 27 no contention | `contract` in `tests/preload`; rates: GPU |
//! | 28 enable and disable | `enable::stream_enabled_and_disabled_a_hundred_thousand_times_runs_everything_in_order` |
//! | 29 unrelated context | `dependencies::preempted_context_delays_no_stream_of_another_context` |
//! | 30 cooperative launches | as 3; clusters: GPU |
//!
//! Loom also checks G1 and G4 over the whole engine (`tests/loom_admission.rs`), and stateright checks G1-G4 over the states
//! (`model`). The table in [`engine`] says what keeps handles alive. `lifetime`, `destroy`, `contexts` and `tests/loom_lifetime.rs`
//! end objects in the middle of calls.

#![forbid(unsafe_code)]

pub mod command;
pub mod config;
pub mod driver;
pub mod engine;
mod estimate;
mod events;
mod gate_sequence;
pub mod ids;
mod in_flight;
pub mod outcome;
pub mod queue;
mod queue_table;
pub mod stream_state;
mod sync;
pub mod worker;
