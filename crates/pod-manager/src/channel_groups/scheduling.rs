//! The scheduler on the event loop: activity of processes goes in, one control at a time comes out, its report comes back.

use super::{ChannelGroups, ControlFailure, ControlReport, ControlRequest};
use crate::clients::Processes;
use crate::effect::{Effect, Effects};
use crate::io::Io;
use crate::shared::Shared;
use sluice_core::ProcessId;
use sluice_core::channel_groups::{Activity, ControlOp, ControlOutcome, Event, QuantumState};
use sluice_core::ledger::Action;
use tracing::{debug, info, warn};

impl ChannelGroups {
    /// Reads the activity, and the wanted slices, of all processes that matter to the scheduler.
    pub(crate) fn read_activity(&mut self, processes: &Processes) {
        let watched: Vec<ProcessId> = self.scheduler.observed_processes().collect();
        for id in watched {
            let activity = processes.get(id).map_or(Activity::UNKNOWN, |process| process.activity());
            self.scheduler.set_activity(id, activity);
            let wants = processes.get(id).is_some_and(|process| process.wants_default_slices());
            self.scheduler.set_wants_default_slices(id, wants);
        }
    }

    /// Whether the scheduler needs a wake-up when this process becomes busy.
    pub(crate) fn needs_wakeup(&self, id: ProcessId, now: u64) -> bool {
        self.scheduler.quantum_state(id) == Some(QuantumState::Idle) || self.scheduler.is_absent(id, now)
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
    pub(crate) fn take_released(&mut self) -> Effects {
        let released = self.scheduler.take_released().into_iter();
        released.filter_map(|group| self.forget_group(group)).collect()
    }

    /// A control has ended.
    pub(crate) fn control_ended(&mut self, report: &ControlReport, shared: &mut Shared) -> Effects {
        let Shared { clients, processes, grants, io, .. } = shared;
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
            && io.may_log("control", client.into()).is_some()
        {
            let client = clients.name_or_removed(client);
            warn!(client, op = ?control.op, "control failed: {why}");
        }
        let mut effects = Effects::new();
        for event in self.scheduler.finish_control(outcome, &mut grants.ledger, io.now()) {
            match event {
                Event::ProbationBegan(id) => {
                    io.metrics.channel_groups.given_up.inc();
                    if io.may_log("probation", processes.client_of(id).into()).is_some() {
                        let client = clients.name_or_removed(processes.client_of(id));
                        let peer = processes.label(id);
                        warn!(
                            client,
                            peer, "controls of the process fail: it is scheduled by token meanwhile"
                        );
                    }
                    effects.push(Effect::SchedulingChanged(id));
                }
                Event::GroupsDestroyed(id) => effects.push(Effect::SchedulingChanged(id)),
                Event::Released(group) => effects.extend(self.forget_group(group)),
            }
        }
        effects
    }

    /// Takes the processes from probation whose groups can be controlled again. A child that has such a process's file open may have been
    /// given its groups meanwhile: it is inspected again.
    pub(crate) fn end_probation(&mut self, shared: &mut Shared) -> Effects {
        let Shared { clients, processes, grants, io, .. } = shared;
        let ended = self.scheduler.end_probation(&mut grants.ledger, io.now());
        for id in &ended {
            if io.may_log("probation", processes.client_of(*id).into()).is_some() {
                let client = clients.name_or_removed(processes.client_of(*id));
                let peer = processes.label(*id);
                info!(client, peer, "the process can be controlled again");
            }
        }
        let others = ended.iter().flat_map(|id| {
            let client = processes.get(*id).map(|process| process.client);
            let of_client = client.into_iter().flat_map(|client| processes.of_client(client));
            of_client.filter(move |(other, process)| other != id && process.unhooked).map(|(other, _)| other)
        });
        let inspections: Effects = others.map(Effect::InspectAgain).collect();
        ended.into_iter().map(Effect::SchedulingChanged).chain(inspections).collect()
    }
}
