//! RM_CONTROL.

use super::object::{Group, Kind};
use super::{Call, Rm, Support};
use crate::engine::{Access, Control, GroupId, Switches};
use crate::fault::ControlFault;
use crate::params;
use sluice_nvrm::NvStatus;
use sluice_nvrm::abi::{
    Command, ControlBlock, CtxswStats, DisableChannels, Preempt, class, gid, handle_info, timeslice,
};

/// The result of a control, for which the resource manager returns a status.
type Done = Result<(), NvStatus>;
/// The function that executes a control.
type Execute = fn(&mut Rm, &mut Call<'_>, &ControlBlock, &mut [u8]) -> Done;

impl Rm {
    pub(super) fn control(
        &mut self,
        call: &mut Call<'_>,
        fields: &ControlBlock,
        params: &mut [u8],
    ) -> NvStatus {
        let checked =
            self.check(call, fields, params).and_then(|control| control(self, call, fields, params));
        checked.err().unwrap_or(NvStatus::OK)
    }

    /// Checks a control in the driver's order. Returns the function that executes it.
    fn check(&mut self, call: &Call<'_>, fields: &ControlBlock, params: &[u8]) -> Result<Execute, NvStatus> {
        let (support, fault) = (self.support, self.fault);
        let client = self.client(call.file, fields.client)?;
        let command = Command::of(fields.command).ok_or(NvStatus::NOT_SUPPORTED)?;
        if command == Command::GET_HANDLE_INFO && fields.object == fields.client {
            // For this request it does not matter whether channel groups can be controlled.
            return if fields.params_len == command.params_len {
                Ok(Self::handle_info)
            } else {
                Err(NvStatus::INVALID_ARGUMENT)
            };
        }
        let object = client.objects.get(&fields.object).ok_or(NvStatus::INVALID_OBJECT_HANDLE)?;
        let control: Execute = match (command, &object.kind) {
            (Command::SET_TIMESLICE, Kind::Group(_)) => Self::set_timeslice,
            (Command::GET_TIMESLICE, Kind::Group(_)) => Self::get_timeslice,
            (Command::PREEMPT, Kind::Group(_)) => Self::preempt,
            (Command::GET_INFO, Kind::Group(_)) => Self::get_info,
            (Command::GPFIFO_SCHEDULE | Command::SET_INTERLEAVE_LEVEL, Kind::Group(_)) => Self::no_effect,
            (Command::DISABLE_CHANNELS, Kind::Subdevice) => Self::disable_channels,
            (Command::GET_CTXSW_STATS, Kind::Subdevice) => Self::get_ctxsw_stats,
            (Command::GET_GID_INFO, Kind::Subdevice) => Self::get_gid_info,
            // The calling process has no CAP_SYS_NICE here.
            (Command::MAKE_REALTIME, Kind::Group(_))
            | (Command::RESTART_RUNLIST, Kind::Channel { .. })
            | (Command::RUNLIST_SET_SCHED_POLICY, Kind::Subdevice) => {
                return Err(NvStatus::INSUFFICIENT_PERMISSIONS);
            }
            _ => return Err(NvStatus::NOT_SUPPORTED),
        };
        let is_exact = usize::try_from(fields.params_len).is_ok_and(|len| len == params.len());
        if fields.params_len != command.params_len || !is_exact || fields.flags != 0 {
            return Err(NvStatus::INVALID_ARGUMENT);
        }
        let controls = command != Command::GET_GID_INFO;
        match (support, fault) {
            (Support::None, _) if controls => Err(NvStatus::NOT_SUPPORTED),
            (_, Some(ControlFault::Refused)) if controls => Err(NvStatus::INVALID_STATE),
            (_, Some(ControlFault::SlicesRefused)) if command == Command::SET_TIMESLICE => {
                Err(NvStatus::INVALID_STATE)
            }
            _ => Ok(control),
        }
    }

    fn group(&mut self, call: &Call<'_>, fields: &ControlBlock, handle: u32) -> Result<&mut Group, NvStatus> {
        let client = self.client(call.file, fields.client)?;
        client.group_mut(handle).ok_or(NvStatus::INVALID_OBJECT_HANDLE)
    }

    /// Occupies the GPU with the control for `ns`, after the controls before it and the wait of a slow driver. Returns when this one
    /// begins.
    fn occupy(&mut self, call: &mut Call<'_>, ns: u64) -> u64 {
        let wait = if let Some(ControlFault::Slow { ns }) = self.fault { ns } else { 0 };
        let begin = self.busy_until.max(call.now).saturating_add(wait);
        self.busy_until = begin + ns;
        call.at_ns = self.busy_until;
        begin
    }

    /// Applies a control to a context at a time, if controls have an effect on this driver.
    fn apply(&self, call: &mut Call<'_>, at_ns: u64, context: Option<GroupId>, control: Control) {
        if let (Some(context), Support::Full) = (context, self.support) {
            call.engine.control_at(at_ns, context, control);
        }
    }

    fn no_effect(&mut self, call: &mut Call<'_>, _: &ControlBlock, _: &mut [u8]) -> Done {
        self.occupy(call, params::ASK_NS);
        Ok(())
    }

    fn set_timeslice(&mut self, call: &mut Call<'_>, fields: &ControlBlock, params: &mut [u8]) -> Done {
        let us = timeslice::decode(params).filter(|us| *us > 0).ok_or(NvStatus::INVALID_ARGUMENT)?;
        let group = self.group(call, fields, fields.object)?;
        group.timeslice_us = us;
        let context = group.context;
        self.occupy(call, params::SET_TIMESLICE_NS);
        self.apply(call, call.at_ns, context, Control::Timeslice(us.saturating_mul(1_000)));
        Ok(())
    }

    fn get_timeslice(&mut self, call: &mut Call<'_>, fields: &ControlBlock, params: &mut [u8]) -> Done {
        params.copy_from_slice(&timeslice::encode(self.group(call, fields, fields.object)?.timeslice_us));
        Ok(())
    }

    fn get_info(&mut self, call: &mut Call<'_>, fields: &ControlBlock, params: &mut [u8]) -> Done {
        params.copy_from_slice(&self.group(call, fields, fields.object)?.id.to_le_bytes());
        Ok(())
    }

    fn preempt(&mut self, call: &mut Call<'_>, fields: &ControlBlock, params: &mut [u8]) -> Done {
        let preempt = Preempt::decode(params).ok_or(NvStatus::INVALID_ARGUMENT)?;
        let context = self.group(call, fields, fields.object)?.context;
        let wait = if preempt.wait { params::PREEMPT_NS } else { 0 };
        let begin = self.occupy(call, params::PREEMPT_ASK_NS + wait);
        self.apply(call, begin + params::PREEMPT_ASK_NS, context, Control::Preempt);
        Ok(())
    }

    fn disable_channels(&mut self, call: &mut Call<'_>, _: &ControlBlock, params: &mut [u8]) -> Done {
        let wanted = DisableChannels::decode(params).ok_or(NvStatus::INVALID_ARGUMENT)?;
        let access = match (wanted.disable, wanted.only_scheduling) {
            (false, _) => Access::Enabled,
            (true, true) => Access::Draining,
            (true, false) => Access::Stopped,
        };
        let groups = self.set_access(call, &wanted.channels, access)?;
        let ns = match access {
            Access::Enabled => params::ENABLE_NS,
            Access::Draining => params::DISABLE_SCHEDULING_NS,
            Access::Stopped => params::DISABLE_NS,
        };
        let begin = self.occupy(call, ns);
        for (context, access) in groups {
            // The call returns when the group is saved.
            if access == Access::Stopped && call.engine.is_on(context) {
                self.busy_until = begin + ns + params::PREEMPT_NS;
                call.at_ns = self.busy_until;
            }
            let effect_ns = if access == Access::Enabled { params::ENABLED_AFTER_NS } else { ns };
            self.apply(call, begin + effect_ns, Some(context), Control::Access(access));
        }
        Ok(())
    }

    /// Changes the state of channels, all of them or none. Returns the contexts of their groups.
    fn set_access(
        &mut self,
        call: &Call<'_>,
        channels: &[(u32, u32)],
        access: Access,
    ) -> Result<Vec<(GroupId, Access)>, NvStatus> {
        let mut groups = Vec::new();
        for (client, channel) in channels {
            let object = self
                .client(call.file, *client)?
                .objects
                .get(channel)
                .ok_or(NvStatus::INVALID_OBJECT_HANDLE)?;
            let Kind::Channel { group, .. } = object.kind else {
                return Err(NvStatus::INVALID_OBJECT_HANDLE);
            };
            groups.push((*client, group));
        }
        for (client, channel) in channels {
            let object = self.client(call.file, *client)?.objects.get_mut(channel);
            if let Some(Kind::Channel { access: known, .. }) = object.map(|object| &mut object.kind) {
                *known = access;
            }
        }
        groups.sort_unstable();
        groups.dedup();
        let mut contexts = Vec::new();
        for (client, group) in groups {
            let client = self.client(call.file, client)?;
            let access = client.access(group);
            let context = client.group_mut(group).and_then(|group| group.context);
            contexts.extend(context.map(|context| (context, access)));
        }
        Ok(contexts)
    }

    /// Class or parent of an object. The client itself is an object without a parent.
    fn handle_info(&mut self, call: &mut Call<'_>, fields: &ControlBlock, params: &mut [u8]) -> Done {
        let (handle, what) = handle_info::decode_query(params).ok_or(NvStatus::INVALID_ARGUMENT)?;
        let client = self.client(call.file, fields.client)?;
        let (class, parent) = if handle == fields.client {
            (class::ROOT_CLIENT, 0)
        } else {
            let object = client.objects.get(&handle).ok_or(NvStatus::OBJECT_NOT_FOUND)?;
            (object.class, object.parent)
        };
        let answer = match what {
            handle_info::CLASS => class,
            handle_info::PARENT => parent,
            _ => return Err(NvStatus::INVALID_ARGUMENT),
        };
        params.copy_from_slice(&handle_info::encode(handle, what, answer));
        Ok(())
    }

    fn get_gid_info(&mut self, _: &mut Call<'_>, _: &ControlBlock, params: &mut [u8]) -> Done {
        params.copy_from_slice(&gid::encode(&self.gpu));
        Ok(())
    }

    fn get_ctxsw_stats(&mut self, call: &mut Call<'_>, fields: &ControlBlock, params: &mut [u8]) -> Done {
        let (handle, reset) = decode_stats_query(params).ok_or(NvStatus::INVALID_ARGUMENT)?;
        let group = self.group(call, fields, handle)?;
        let now = group.context.and_then(|context| call.engine.switches(context)).unwrap_or_default();
        let since = difference(now, group.before_reset);
        if reset {
            group.before_reset = now;
        }
        let stats = CtxswStats {
            saves: since.saves,
            restores: since.restores,
            wfi: since.idle_saves,
            cilp: since.mid_kernel_saves,
            ..CtxswStats::default()
        };
        params.copy_from_slice(&stats.encode(handle));
        self.occupy(call, params::ASK_NS);
        Ok(())
    }
}

/// The group of a statistics request, and whether its counters restart at 0.
fn decode_stats_query(params: &[u8]) -> Option<(u32, bool)> {
    let (group, rest) = params.split_first_chunk()?;
    Some((u32::from_le_bytes(*group), rest.first()? & 1 != 0))
}

fn difference(now: Switches, before: Switches) -> Switches {
    Switches {
        saves: now.saves.wrapping_sub(before.saves),
        restores: now.restores.wrapping_sub(before.restores),
        idle_saves: now.idle_saves.wrapping_sub(before.idle_saves),
        mid_kernel_saves: now.mid_kernel_saves.wrapping_sub(before.mid_kernel_saves),
    }
}
