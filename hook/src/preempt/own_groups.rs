//! Level *full*: disables the context's channel group through the process's own control descriptor, in the middle of
//! a kernel.
//!
//! A group is a whole context, so this is for a stream whose context has no other work. As soon as another of its
//! streams is used, or a call needs the GPU, the group is enabled and gates hold the stream.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::*};

use sluice_comm::attach::MAX_CHANNELS;
use sluice_hook_core::lock;
use sluice_nvrm::ioctl_observation::ComputeGroup;
use sluice_nvrm::{ControlError, Controls, DriverVersion as Module};
use sluice_preempt::driver::{ChannelGroupError, ChannelGroups, Driver};
use sluice_preempt::ids::{Code, Context, Stream};
use sluice_preempt::queue::Queue;

use super::disabled_groups::{DisabledGroup, OwnChannelGroups};
use super::engine::{engine, engine_for_call, is_engaged};
use super::own_calls::within;
use super::{links, streams};
use crate::guard::guarded;
use crate::{channel_groups, gpu, real, settings};

static ANY_DISABLED: AtomicBool = AtomicBool::new(false);

/// The driver's statuses for too little memory to save the context (`NV_ERR_INSUFFICIENT_RESOURCES`,
/// `NV_ERR_NO_MEMORY`).
const OUT_OF_MEMORY_STATUSES: [u32; 2] = [0x1a, 0x51];

/// Enables the group of the context that needs the GPU: that of `queue`, or the calling thread's.
#[inline]
pub(super) fn yield_group(queue: Option<&Queue>) {
    if ANY_DISABLED.load(Relaxed) && is_engaged() {
        yield_disabled_group(queue);
    }
}

/// Runs a call that may need the GPU. A stream of the context at level *full* gives the GPU back first.
#[inline]
pub(crate) fn give_gpu_back_for<R>(call: impl FnOnce() -> R) -> R {
    yield_group(None);
    call()
}

#[cold]
fn yield_disabled_group(queue: Option<&Queue>) {
    let Some(engine) = engine_for_call() else { return };
    let context = queue.map(|queue| queue.stream().context).or_else(|| gpu::current_context().map(Context));
    if let Some(context) = context {
        guarded((), || engine.enable_groups_of(context, queue));
    }
}

/// Why level *full* is not possible for streams of a context; `None` if it is.
pub(super) fn unsupported(context: Context) -> Option<&'static CStr> {
    find_group(context).err()
}

/// The only compute group that the process has on the context's device.
fn find_group(context: Context) -> Result<ComputeGroup, &'static CStr> {
    static MODULE: OnceLock<Module> = OnceLock::new();
    let module = MODULE.get_or_init(Module::loaded);
    if real::simulated_ioctl().is_none() && !matches!(module, Module::Compared(_)) {
        return Err(c"the control layouts of this driver version were not compared");
    }
    let device = within(context, || gpu::current_device().ok_or(Code::INVALID_VALUE));
    let ordinal =
        device.ok().and_then(|device| u32::try_from(device).ok()).ok_or(c"the context is not known")?;
    if links::of_device(ordinal).is_some_and(|link| link.announces_groups()) {
        return Err(c"the manager schedules this process's channel groups");
    }
    let mut found = channel_groups::groups_of_device(ordinal);
    match (found.pop(), found.len()) {
        (Some(group), 0) if !group.has_unknown_engine && group.handles.subdevice != 0 => Ok(group),
        (None, _) => Err(c"the context's channel group is not known"),
        (Some(_), 0) => Err(c"the context's channel group is not known for certain"),
        _ => Err(c"the process has more than one context on the device"),
    }
}

impl ChannelGroups for OwnChannelGroups {
    fn disable(&self, stream: Stream) -> Result<(), ChannelGroupError> {
        let mut disabled = lock(&self.disabled);
        if let Some(known) = disabled.get_mut(&stream.context.0) {
            known.streams.push(stream.handle);
            return Ok(());
        }
        let group = find_group(stream.context)
            .map_err(|_| ChannelGroupError::Unsupported("the process may not disable the channel group"))?;
        if has_other_work(stream) {
            return Err(ChannelGroupError::Unsupported("another stream of the context has work"));
        }
        // From here on a call with other work enables the group.
        ANY_DISABLED.store(true, SeqCst);
        if let Err(error) = control_channels(&group, Controls::disable) {
            let _started = control_channels(&group, Controls::enable);
            ANY_DISABLED.store(!disabled.is_empty(), SeqCst);
            return Err(error);
        }
        disabled.insert(stream.context.0, DisabledGroup { group, streams: vec![stream.handle] });
        Ok(())
    }

    fn enable(&self, stream: Stream) {
        let mut disabled = lock(&self.disabled);
        let Some(known) = disabled.get_mut(&stream.context.0) else { return };
        known.streams.retain(|handle| *handle != stream.handle);
        if !known.streams.is_empty() {
            return;
        }
        let Some(known) = disabled.remove(&stream.context.0) else { return };
        ANY_DISABLED.store(!disabled.is_empty(), SeqCst);
        if let Err(error) = control_channels(&known.group, Controls::enable) {
            settings::log(format_args!("enabling a channel group failed: {error}"));
        }
    }
}

/// Whether another stream of the context has work and is not preempted.
fn has_other_work(stream: Stream) -> bool {
    let Some(engine) = engine() else { return true };
    streams::of_context(stream.context.0).iter().any(|queue| {
        queue.stream() != stream
            && !engine.state(queue).is_some_and(sluice_preempt::stream_state::StreamState::is_under_preemption)
            // Another thread may destroy the stream at the same time.
            && engine.with_stream(queue, || engine.driver().query_stream(queue.stream()))
                == Some(Err(Code::NOT_READY))
    })
}

/// Makes a control request for all channels of a group.
fn control_channels(
    group: &ComputeGroup,
    control: impl Fn(&Controls, u32, u32, &[u32]) -> Result<(), ControlError>,
) -> Result<(), ChannelGroupError> {
    const GONE: ChannelGroupError = ChannelGroupError::Unsupported("the control descriptor is gone");
    let descriptor = channel_groups::copy_control_descriptor(group.fd).ok_or(GONE)?;
    let controls =
        Controls::from_descriptor(descriptor, real::simulated_ioctl().is_some()).map_err(|_| GONE)?;
    for channels in group.handles.channels.chunks(MAX_CHANNELS) {
        control(&controls, group.handles.client, group.handles.subdevice, channels).map_err(|error| {
            match error {
                ControlError::Timeout => ChannelGroupError::Timeout,
                ControlError::Refused(status) if OUT_OF_MEMORY_STATUSES.contains(&status.0) => {
                    ChannelGroupError::InsufficientMemory
                }
                ControlError::Refused(status) if status.is_gone() => GONE,
                ControlError::Refused(_) | ControlError::Io(_) => ChannelGroupError::ContextSaveFailed,
            }
        })?;
    }
    Ok(())
}
