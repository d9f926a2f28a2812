//! Level *full*: disabling the channel group of a stream's context. One thread at a time controls the group of each
//! queue.

use super::Engine;
use crate::config::PreemptionLevel;
use crate::driver::{ChannelGroupError, Clock, Driver, Observer};
use crate::ids::Context;
use crate::queue::Queue;
use crate::queue_table::GroupControl;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Disables the stream's channel group, unless the preemption of this epoch was given up.
    pub(super) fn disable_group(&self, queue: &Queue, epoch: u64) -> Result<(), ChannelGroupError> {
        if self.driver.channel_groups().is_none() {
            return Err(ChannelGroupError::Unsupported("no control of channel groups"));
        }
        {
            let mut table = self.lock_table();
            if table.is_yielding(queue.id()) {
                return Err(ChannelGroupError::Unsupported("a call waits for the whole context"));
            }
            let Ok(queue_state) = table.in_epoch(queue.id(), epoch) else { return Ok(()) };
            queue_state.group_control.disable_wanted = true;
        }
        self.apply_group_control(queue)
    }

    /// Enables the stream's channel group, if it is disabled or being disabled.
    pub(super) fn enable_group(&self, queue: &Queue) {
        let idle = self.lock_table().queue_state(queue.id()).is_none_or(|queue_state| {
            !queue_state.group_control.disabled && !queue_state.group_control.changing
        });
        if !idle {
            // Only disabling can fail, and it is not wanted here.
            let _ = self.apply_group_control(queue);
        }
    }

    /// Enables the channel groups of a context because a thread needs the GPU there. Preempted streams other than
    /// `except` stop at their gates from here on, or are held in the host queue only.
    pub fn enable_groups_of(&self, context: Context, except: Option<&Queue>) {
        let held = self.lock_table().queues(|queue_state| {
            queue_state.group_control.disable_wanted
                && queue_state.stream().context == context
                && except.is_none_or(|except| except.id() != queue_state.id())
        });
        held.iter().for_each(|queue| self.give_up_group(queue));
    }

    /// Enables the channel group of a preempted stream because a running stream waits for it. Gates stop it from here
    /// on, or it is held in the host queue only.
    pub(super) fn give_up_group(&self, queue: &Queue) {
        {
            let mut table = self.lock_table();
            let Some(queue_state) = table
                .queue_state_mut(queue.id())
                .filter(|queue_state| queue_state.group_control.disable_wanted)
            else {
                return;
            };
            queue_state.group_control.disable_wanted = false;
            let level = if queue.is_gated() { PreemptionLevel::Device } else { PreemptionLevel::Host };
            queue_state.preemption.level = queue_state.preemption.level.map(|held| held.min(level));
        }
        self.enable_group(queue);
    }

    /// Brings the channel group into the wanted state. One thread does so and goes on until both states agree. A
    /// thread that wants the group enabled therefore need not wait for it. The whole call is a driver use of the
    /// stream.
    fn apply_group_control(&self, queue: &Queue) -> Result<(), ChannelGroupError> {
        let Some(groups) = self.driver.channel_groups() else { return Ok(()) };
        if !self.begin_group_change(queue) {
            return Ok(());
        }
        let result = loop {
            let take = {
                let mut table = self.lock_table();
                // The queue exists for as long as the driver use lasts.
                let Some(queue_state) = table.queue_state_mut(queue.id()) else { break Ok(()) };
                queue_state.group_control.changing =
                    queue_state.group_control.disable_wanted != queue_state.group_control.disabled;
                if !queue_state.group_control.changing {
                    self.notify_waiters(&table);
                    break Ok(());
                }
                queue_state.group_control.disable_wanted
            };
            let result = if take {
                groups.disable(queue.stream())
            } else {
                groups.enable(queue.stream());
                Ok(())
            };
            let mut table = self.lock_table();
            let Some(queue_state) = table.queue_state_mut(queue.id()) else { break result };
            match result {
                Ok(()) => queue_state.group_control.disabled = take,
                Err(error) => {
                    (queue_state.group_control.disable_wanted, queue_state.group_control.changing) =
                        (false, false);
                    self.notify_waiters(&table);
                    break Err(error);
                }
            }
        };
        self.end_driver_use(queue);
        result
    }

    /// Whether this thread has to change the channel group. Waits for another thread that changes it only if the
    /// group is to be disabled.
    fn begin_group_change(&self, queue: &Queue) -> bool {
        let mut table = self.lock_table();
        loop {
            let Some(queue_state) = table.queue_state(queue.id()) else { return false };
            let GroupControl { disable_wanted, disabled, changing } = queue_state.group_control;
            match (changing, disable_wanted) {
                (true, true) => table = self.await_change(table, None),
                (true, false) => return false,
                (false, _) if disable_wanted == disabled => return false,
                (false, _) => break,
            }
        }
        let Some(queue_state) = table.begin_driver_use(queue.id()) else { return false };
        queue_state.group_control.changing = true;
        true
    }
}
