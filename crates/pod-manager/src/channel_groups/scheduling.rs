//! The scheduler on the event loop: activity of processes goes in, one control at a time comes out, its report comes back.

use super::{ChannelGroups, ControlFailure, ControlReport, ControlRequest};
use crate::clients::Processes;
use crate::connections::Reason;
use crate::effect::{Effect, Effects};
use crate::io::Io;
use crate::shared::Shared;
use sluice_core::ProcessId;
use sluice_core::channel_groups::{Activity, ControlOp, ControlOutcome, Event, QuantumState, Released};
use sluice_core::ledger::Action;
use tracing::{debug, warn};

impl ChannelGroups {
    /// Reads the activity of all processes that matter to the scheduler.
    pub(crate) fn read_activity(&mut self, processes: &Processes) {
        let watched: Vec<ProcessId> = self.scheduler.observed_processes().collect();
        for id in watched {
            let activity = processes.get(id).map_or(Activity::UNKNOWN, |process| process.activity());
            self.scheduler.set_activity(id, activity);
        }
    }

    /// Whether the scheduler needs a wake-up when this process becomes busy.
    pub(crate) fn needs_wakeup(&self, id: ProcessId) -> bool {
        self.scheduler.quantum_state(id) == Some(QuantumState::Idle)
    }

    /// Whether a process uses the GPU, or `None` if it is not hardware-scheduled.
    pub(crate) fn is_using_gpu(&self, id: ProcessId) -> Option<bool> {
        self.scheduler.quantum_state(id).map(|state| state != QuantumState::Idle)
    }

    /// Takes an action that concerns a hardware-scheduled process. `false` if the action is for the page.
    pub(crate) fn act(&mut self, action: &Action, io: &Io) -> bool {
        let taken = self.scheduler.apply_action(action);
        if taken && matches!(action, Action::Grant { .. }) {
            io.metrics.channel_groups.quanta.inc();
        }
        taken
    }

    /// Requests the next control, if there is one to make and none is in flight.
    pub(crate) fn begin_control(&mut self, io: &Io) {
        let metrics = &io.metrics.channel_groups;
        let forced = self.scheduler.forced_hand_offs();
        if let Some(control) = self.scheduler.begin_control(io.now()) {
            debug!(?control, "control requested");
            metrics.in_flight.set(1);
            self.executor.request(ControlRequest::Make(control));
        }
        metrics.forced.inc_by(self.scheduler.forced_hand_offs() - forced);
    }

    /// Finishes the groups that were released, whether that took a control or not.
    pub(crate) fn take_released(&mut self, processes: &Processes) -> Effects {
        let released = self.scheduler.take_released().into_iter();
        released.filter_map(|group| self.released(group, processes)).collect()
    }

    /// A control has ended.
    pub(crate) fn control_ended(&mut self, report: &ControlReport, shared: &mut Shared) -> Effects {
        let Shared { clients, processes, grants, io } = shared;
        let ControlReport { control, result, took } = report;
        let outcome = match result {
            Ok(()) => ControlOutcome::Done,
            Err(ControlFailure::Gone) => ControlOutcome::Gone,
            Err(ControlFailure::Failed(..)) => ControlOutcome::Failed,
        };
        io.metrics.channel_groups.in_flight.set(0);
        io.metrics.channel_groups.count(control.op, outcome, *took);
        if control.op == ControlOp::Disable {
            io.metrics.preemptions.count_hardware(result.into());
        }
        let owner = self.groups.get(&control.group).map(|group| group.process);
        let client = owner.and_then(|owner| processes.client_of(owner));
        if let Err(ControlFailure::Failed(_, why)) = result
            && io.may_log("control").is_some()
        {
            let client = clients.name_or_removed(client);
            warn!(client, op = ?control.op, "control failed: {why}");
        }
        let had_failed = client.is_some_and(|client| self.scheduler.has_failed(client));
        let mut effects = Effects::new();
        for event in self.scheduler.finish_control(outcome, &mut grants.ledger, io.now()) {
            match event {
                Event::ControlFailed(id) => {
                    effects.push(if owner == Some(id) {
                        Effect::ControlFailed { process: id, had_failed }
                    } else {
                        Effect::InspectAgain(id)
                    });
                    io.metrics.channel_groups.given_up.inc();
                    let client = clients.name_or_removed(processes.client_of(id));
                    warn!(client, "a control of the client failed: it is scheduled by token from now on");
                    effects.push(Effect::SchedulingChanged(id));
                }
                Event::GroupsDestroyed(id) => effects.push(Effect::SchedulingChanged(id)),
                Event::Released(released) => effects.extend(self.released(released, processes)),
            }
        }
        effects
    }

    /// A group was released. One that could not be freed can be freed by its own process only, which does so when it loses the
    /// connection.
    fn released(&mut self, released: Released, processes: &Processes) -> Option<Effect> {
        let Released { group, is_free } = released;
        let owner = self.groups.get(&group).and_then(|controlled| processes.get(controlled.process));
        let Some(owner) = owner.filter(|_| !is_free) else { return self.forget_group(group) };
        self.executor.request(ControlRequest::Forget(group));
        if let Some(controlled) = self.groups.get_mut(&group) {
            controlled.stuck = true;
        }
        let connection = owner.token?;
        // The process attaches again. If that did not help, disconnecting it again would not either.
        let is_first = self.disconnected.insert((owner.client, owner.pid));
        is_first.then_some(Effect::Close { connection, reason: Reason::NotFreed })
    }
}
