//! Forecast: the earliest time at which a command can be done, until which a daemon may sleep.

use super::stream::Progress;
use super::{Access, Command, Engine, GroupId, StreamId};

impl Engine {
    /// The least time until a group's kernels can go on.
    fn least_wait(&self, group: GroupId) -> u64 {
        // The forecast ends at the next control, because a control may change it.
        let until_control = self.controls.next_event().map(|at| at.saturating_sub(self.now));
        match self.runlist.least_wait(group, self.now) {
            Some(wait) => until_control.map_or(wait, |control| wait.min(control)),
            None => until_control.unwrap_or(u64::MAX),
        }
    }

    /// A time before which a stream cannot be as far as `seq`, whatever happens; none if it is that far.
    pub fn earliest(&self, id: StreamId, seq: u64) -> Option<u64> {
        let stream = self.streams.get(&id).filter(|stream| stream.completed < seq)?;
        let wait = self.least_wait(stream.group);
        let is_stopped =
            self.runlist.groups.get(&stream.group).is_some_and(|group| group.access != Access::Enabled);
        let running = self.runlist.groups.get(&stream.group).map(|group| &group.running);
        let mut ns = 0u64;
        for op in stream.queue.iter().take_while(|op| op.seq <= seq) {
            let left = match op.progress {
                Progress::Waiting => {
                    ns = ns.max(op.arrival.saturating_sub(self.now));
                    op.command.least_ns()
                }
                // Of the commands in progress, only a kernel's time is known directly.
                Progress::Begun { .. } => {
                    let mine = running.into_iter().flatten().find(|running| running.task.stream == id);
                    mine.filter(|mine| matches!(op.command, Command::Work(_)) && mine.task.hold.is_none())
                        .map_or(0, |running| running.left_ns)
                }
            };
            let is_suspended = is_stopped && matches!(op.progress, Progress::Waiting);
            let wait = if op.command.needs_slice() || is_suspended { wait } else { 0 };
            ns = match (&op.command, &op.progress) {
                // Which of a graph's nodes wait for the time slice is not examined: some may run without it.
                (Command::Graph(_), Progress::Waiting) => ns.saturating_add(left).max(wait),
                (Command::Graph(_), Progress::Begun { .. }) => ns,
                _ => ns.max(wait).saturating_add(left),
            };
        }
        Some(self.now.saturating_add(ns))
    }
}
