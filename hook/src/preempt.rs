//! Preemptible streams: the engine of `sluice_preempt` behind the exported driver functions.
//!
//! Until a program enables preemption, nothing here runs: each exported function reads one flag. From then on every call
//! on a stream or an event goes through the engine, because streams that are not preempted have to wait for preempted
//! ones where the program orders them. The flag is never cleared: only the engine knows what events refer to.
//!
//! * `engine` holds the engine and the flag; `engagement` makes it. `own_calls` marks the driver calls that are not the
//!   program's.
//! * `streams` finds the queue of a handle. `submit`, `launches`, `copies`, `events` and `waits` implement the calls;
//!   `arguments` and `parameters` keep their arguments. `pending` tells which commands are in host queues.
//! * `driver`, `stream_gates` (with `gate_cells`) and `own_groups` (with `disabled_groups`, `links`) implement the
//!   engine's traits. `worker` is the thread that submits pending commands.
//! * `program_api` implements the C functions, `preempted_streams` records which streams the program preempts, and
//!   `gate_use` finds out whether a stream can have gates. `loads` and `untracked_loads` are the calls to which a stream
//!   at a gate yields.

mod arguments;
pub(crate) mod copies;
mod disabled_groups;
mod driver;
mod engagement;
mod engine;
pub(crate) mod events;
mod gate_cells;
mod gate_use;
pub(crate) mod launches;
mod links;
mod loads;
mod own_calls;
mod own_groups;
mod parameters;
mod pending;
mod preempted_streams;
pub(crate) mod program_api;
mod stream_gates;
mod streams;
mod submit;
mod untracked_loads;
mod waits;
mod worker;

pub(crate) use arguments::{Argument, PlainArgument, SendableArguments};
pub(crate) use engine::{after_fork, is_engaged};
pub(crate) use links::introduce_link;
pub(crate) use loads::{make_loading_call, make_own_loading_call};
pub(crate) use own_groups::give_gpu_back_for;
pub(crate) use pending::{has_queued_commands, has_queued_commands_of_destroyed};
pub(crate) use submit::{
    destroy_graph, on_queue, own_stand_in, query_on_stream, stands_for, submit, submit_by_caller,
    submit_by_value, through_engine, update_graph,
};
pub(crate) use waits::{
    begin_context_end, cancel_context_end, capture, destroy_stream, finish_context_end, flush_context_before,
    synchronize_context, unload,
};
