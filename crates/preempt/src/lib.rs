//! The preemption engine.
//!
//! Every stream has a queue. While a stream runs, its calls go to the driver on the caller's own thread; while it is preempted
//! they wait in the host queue and are handed over in order later. Only the *order of submission* is controlled: the driver and
//! the GPU do the rest, so that a program cannot tell a preemption from a slow GPU.
//!
//! * [`engine::Engine`] is generic over the [`driver::Driver`] and the [`driver::Clock`]; nothing in here calls CUDA, reads a
//!   clock or starts a thread. [`worker::run`] is what the thread does that hands over; tests call [`engine::Engine::pump`].
//! * A call that passes costs one change of one word before and one after it. While a bound holds (`Config::adaptive`
//!   says when) it is counted under its queue's own lock, never across the driver call.
//! * Levels: *host* is the queue alone. *device* puts gates (waits of the GPU for a word of memory) in front of at least 50 µs of
//!   work each and stops in place at the next one. *full* asks [`driver::Slices`], works only where no other running stream
//!   waits for this one, and falls back. The level achieved is returned.
//! * Nothing is ever skipped and submitted again.
//!
//! # What the caller of the engine has to know
//! * A thread's own default stream is given to the engine as a [`ids::Stream`] stream with a handle that every thread
//!   may use: the worker submits to it, and the driver's handle 2 would mean the worker's own.
//! * Streams whose preemption is not enabled need queues as well, as soon as one of their context's is: the legacy default stream
//!   orders all of them, and events run between them. Without anything waiting they cost the one word.
//! * A deferred host function, callback or graph is named by handle; the driver's adapter makes the call.
//! * Copies to pageable memory, and from more than [`command::STAGED_MAXIMUM`] bytes of it, are [`command::Deferral::ByCaller`].
//! * IPC events always use the program's own event (`Engine::event_created`): a later record disturbs a queued wait for
//!   an earlier one, as the other process could not be told of a substitute.
//! * The legacy default stream is preempted at level host only. A command of it that waits holds up all blocking streams, so what it
//!   waits for passes their gates.
//! * At level full without gates nobody knows what others wait for on the GPU: a running stream that waits for one that is held
//!   stands still until that one is restored.
//! * Preemption below level full does not end a kernel; `preempt` with `sync` waits for it, within its time limit.
//!
//! # The contract and its tests
//! Numbers of `preemption.md` §11; tests are in `tests/contract` unless said otherwise.
//!
//! | number | test |
//! |---|---|
//! | 1 order | `order::a_hundred_thousand_dependent_increments_under_preemption_at_1_khz`, `program` |
//! | 2 eight streams, event chains | `depend::eight_streams_in_a_ring_of_events`, `program` |
//! | 3 not idempotent, each level | `levels::a_kernel_that_must_not_run_twice_runs_once_at_every_level_cooperative_or_not`, `program` |
//! | 4 queries and waits while preempted | `events::an_event_whose_record_waits_is_not_ready_without_asking_the_driver`, `threads::waits_for_a_preempted_stream_end_when_it_is_restored` |
//! | 5 nothing after preempt | `order::after_preempt_the_gpu_does_what_was_submitted_and_after_a_synchronous_one_nothing`, `tests/loom_door.rs` |
//! | 6 submissions return up to the bound | `threads::a_full_host_queue_makes_the_caller_wait_and_refuses_nothing`; the 5 µs: GPU |
//! | 7, 8 parameters, pageable source | `calls::parameters_and_pageable_bytes_are_those_of_the_call_not_of_the_submission`; which memory is pageable: hook |
//! | 9 copy to pageable memory | `legacy::a_call_that_cannot_be_queued_is_made_in_its_turn_by_its_caller` |
//! | 10 stream-ordered allocation | `calls::an_allocation_in_stream_order_is_made_at_once_and_usable` |
//! | 11 destroy while preempted | `calls::destroying_a_preempted_stream_returns_at_once_and_its_work_is_done_after_all`, `enable::ten_thousand_streams_destroyed_while_preempted_leave_nothing_behind` |
//! | 12 event destroyed while queued | `events::an_event_destroyed_while_its_record_and_a_wait_are_queued_is_still_used_by_both` |
//! | 13 host functions | `calls::host_functions_run_once_and_in_order`, `program` |
//! | 14, 15 captures | `capture` |
//! | 16 legacy default stream | `legacy`, `program` |
//! | 17 threads' own default streams | `threads::sixteen_threads_on_streams_of_their_own_keep_their_order`; `_ptsz` names: hook |
//! | 18 wait for a preempted recorder | `depend` |
//! | 19 errors | `errors` |
//! | 20 two contexts | `depend::a_context_that_is_preempted_holds_up_nobody_in_another`; two devices: GPU |
//! | 21, 22 scheduler or preempting client dies | `liveness::a_scheduler_that_is_not_heard_of_any_more_does_not_leave_the_stream_preempted`; processes: simulator |
//! | 23 fork | `threads::a_forked_child_calls_the_driver_and_nothing_waits`; exec: simulator |
//! | 24, 25 frameworks, latencies | GPU |
//! | 26 endless kernel | `levels::a_kernel_without_end_is_taken_off_the_gpu_at_level_full` |
//! | 27 no contention | `calls::without_another_client_an_adaptive_stream_costs_no_driver_call`; rates: GPU |
//! | 28 enable and disable | `enable::a_hundred_thousand_times_enabled_and_disabled` |
//! | 29 unrelated context | `depend::a_context_that_is_preempted_holds_up_nobody_in_another` |
//! | 30 cooperative launches | as 3; clusters: GPU |
//!
//! G1 and G4 are also checked by loom over the whole engine (`tests/loom_door.rs`), G1-G4 by stateright over the states (`model`).
//! What keeps handles alive is the table of [`engine`]; `lifetime`, `destroy`, `contexts` and `tests/loom_life.rs` end things in the middle of calls.

#![forbid(unsafe_code)]

mod admission;
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
