//! The level full: somebody else's controls, one at a time for each queue.

use super::Engine;
use crate::config::PreemptionLevel;
use crate::driver::{ChannelGroupError, Clock, Driver, Observer};
use crate::ids::Context;
use crate::queue::Queue;
use crate::queue_table::GroupControl;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Takes the GPU from the stream, unless the preemption of this epoch has been given up.
    pub(super) fn disable_group(&self, queue: &Queue, epoch: u64) -> Result<(), ChannelGroupError> {
        if self.driver.channel_groups().is_none() {
            return Err(ChannelGroupError::Unsupported("nobody works slices here"));
        }
        {
            let mut table = self.lock_table();
            if table.is_yielding(queue.id()) {
                return Err(ChannelGroupError::Unsupported("a call waits for the whole context"));
            }
            let Some(queue_state) =
                table.queue_state_mut(queue.id()).filter(|queue_state| queue_state.epoch == epoch)
            else {
                return Ok(());
            };
            queue_state.group_control.disable_wanted = true;
        }
        self.apply_group_control(queue)
    }

    /// Gives the GPU back, if it is or is being taken.
    pub(super) fn enable_group(&self, queue: &Queue) {
        let idle = self.lock_table().queue_state(queue.id()).is_none_or(|queue_state| {
            !queue_state.group_control.disabled && !queue_state.group_control.changing
        });
        if !idle {
            // What fails is a hold, and none is wanted.
            let _ = self.apply_group_control(queue);
        }
    }

    /// Somebody needs the GPU in a context that streams were taken off for: all of them but `except` are held by gates from here
    /// on, or the admission alone.
    pub fn enable_groups_of(&self, context: Context, except: Option<&Queue>) {
        let held: Vec<_> = {
            let table = self.lock_table();
            let queue_states = table.queue_states().filter(|(id, queue_state)| {
                queue_state.group_control.disable_wanted
                    && queue_state.queue.stream().context == context
                    && except.is_none_or(|except| except.id() != *id)
            });
            queue_states.map(|(_, queue_state)| queue_state.queue.clone()).collect()
        };
        held.iter().for_each(|queue| self.give_up_group(queue));
    }

    /// Somebody who runs waits for the stream: from here on gates hold it, or the admission alone.
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

    /// Makes what is into what is wanted. Only one thread is at it; it goes on until both agree, so nobody has to wait for it
    /// who wants the GPU given back. For the stream it is a look from beginning to end.
    fn apply_group_control(&self, queue: &Queue) -> Result<(), ChannelGroupError> {
        let Some(groups) = self.driver.channel_groups() else { return Ok(()) };
        if !self.begin_group_change(queue) {
            return Ok(());
        }
        let result = loop {
            let take = {
                let mut table = self.lock_table();
                // It stays for as long as it is looked at.
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

    /// Whether there is something to do about slices that is this thread's to do. Waits for who is at it only if the GPU is to be
    /// taken.
    fn begin_group_change(&self, queue: &Queue) -> bool {
        let mut table = self.lock_table();
        loop {
            let Some(queue_state) = table.queue_state(queue.id()) else { return false };
            let GroupControl { disable_wanted, disabled, changing } = queue_state.group_control;
            match (changing, disable_wanted) {
                (true, true) => table = self.await_change(table),
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
