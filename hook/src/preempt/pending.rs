//! Commands in host queues, of which the driver does not know.

use std::sync::Arc;

use sluice_preempt::queue::Queue;

use super::engine::{engine, is_engaged};
use super::{preempted_streams, streams};
use crate::guard::guarded;

/// Whether commands of a context are in host queues, so that the driver does not know of them. Those that a stop by the program may keep
/// there do not count: the program may never resume the stream.
pub(crate) fn has_queued_commands(context: u64) -> bool {
    has_pending_commands(|| streams::of_context(context)) || has_queued_commands_of_destroyed(context)
}

/// The same for commands of destroyed streams only.
pub(crate) fn has_queued_commands_of_destroyed(context: u64) -> bool {
    has_pending_commands(|| {
        let mut ended = streams::ended();
        ended.retain(|queue| queue.stream().context.0 == context);
        ended
    })
}

fn has_pending_commands(queues: impl FnOnce() -> Vec<Arc<Queue>>) -> bool {
    is_engaged()
        && engine().is_some_and(|engine| {
            guarded(false, || {
                queues()
                    .iter()
                    .any(|queue| engine.pending_commands(queue) > 0 && !preempted_streams::is_any_preempted())
            })
        })
}
