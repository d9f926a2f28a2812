//! The implementation of the preemption functions of `sluice.h`.

use std::ffi::CStr;
use std::sync::Arc;

use sluice_driver_api::types::CUstream;
use sluice_hook_core::outcome::Bypass;
use sluice_hook_core::platform::StreamKind;
use sluice_preempt::config::{Config, PreemptionLevel};
use sluice_preempt::engine::Request;
use sluice_preempt::outcome::{Achieved, Error};
use sluice_preempt::queue::Queue;

pub(crate) use super::worker::IdleCallback;

use super::engagement::engage;
use super::engine::{HookEngine, engine, is_forked_child};
use super::gate_use::{GateUse, can_stop_on_gpu};
use super::untracked_loads::is_any_untracked;
use super::{own_groups, preempted_streams, streams, worker};
use crate::gpu;
use crate::settings::check_governed;

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The hook is switched off, or the process is the child of a fork.
    Bypassed(Bypass),
    /// The calling thread has no context, which a default stream needs.
    NoContext,
    NoThread,
    Engine(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// The highest level possible for a stream, and the reason if it is not the highest of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Supported {
    pub(crate) level: PreemptionLevel,
    pub(crate) reason: Option<&'static CStr>,
}

/// The callback of a stream, if the program wants one.
pub(crate) type OnIdle = Option<IdleCallback>;

/// Enables preemption at the configured level, or the highest possible one below it.
pub(crate) fn enable(stream: CUstream, mut config: Config, idle: OnIdle) -> Result<(), Refusal> {
    check_governed().map_err(Refusal::Bypassed)?;
    if !config.is_valid() {
        return Err(Error::InvalidConfig.into());
    }
    let (engine, queue) = engaged(stream)?;
    // The worker submits pending commands: without it a preempted stream would never go on.
    if !worker::wake_worker() {
        return Err(Refusal::NoThread);
    }
    if config.level > PreemptionLevel::Host {
        config.level = config.level.min(supported(engine, &queue, GateUse::Prepare).level);
    }
    let result = engine.enable(&queue, config);
    if matches!(result, Ok(()) | Err(Error::AlreadyEnabled)) {
        worker::set_on_idle(queue.id(), idle);
    }
    Ok(result?)
}

pub(crate) fn disable(stream: CUstream) -> Result<(), Refusal> {
    let (engine, queue) = enabled(stream)?;
    engine.disable(&queue)?;
    preempted_streams::forget(queue.id());
    worker::set_on_idle(queue.id(), None);
    Ok(())
}

pub(crate) fn preempt(stream: CUstream, sync: bool) -> Result<Achieved, Refusal> {
    let (engine, queue) = enabled(stream)?;
    let level = is_any_untracked().then_some(PreemptionLevel::Host);
    Ok(preempted_streams::preempt(engine, &queue, Request { sync, level, ..Request::default() })?)
}

pub(crate) fn restore(stream: CUstream) -> Result<(), Refusal> {
    let (engine, queue) = enabled(stream)?;
    Ok(preempted_streams::restore(engine, &queue)?)
}

/// The highest level at which a stream can be preempted.
pub(crate) fn level(stream: CUstream) -> Result<Supported, Refusal> {
    check_governed().map_err(Refusal::Bypassed)?;
    let (engine, queue) = engaged(stream)?;
    Ok(supported(engine, &queue, GateUse::Probe))
}

fn supported(engine: &HookEngine, queue: &Queue, gate_use: GateUse) -> Supported {
    match can_stop_on_gpu(engine, queue, gate_use) {
        Ok(()) => match own_groups::unsupported(queue.stream().context) {
            None => Supported { level: PreemptionLevel::Full, reason: None },
            reason => Supported { level: PreemptionLevel::Device, reason },
        },
        Err(reason) => Supported { level: PreemptionLevel::Host, reason: Some(reason) },
    }
}

/// A stream whose preemption is enabled. The driver is not asked, as the handle may belong to a destroyed stream.
fn enabled(stream: CUstream) -> Result<(&'static HookEngine, Arc<Queue>), Refusal> {
    check_governed().map_err(Refusal::Bypassed)?;
    if is_forked_child() {
        return Err(Refusal::Bypassed(Bypass::Forked));
    }
    let queue = streams::known(streams::named(stream, false));
    engine().zip(queue).ok_or(Refusal::Engine(Error::NotEnabled))
}

/// Any stream; from here on calls go through the engine.
fn engaged(stream: CUstream) -> Result<(&'static HookEngine, Arc<Queue>), Refusal> {
    let engine = engage().ok_or(Refusal::Bypassed(Bypass::Forked))?;
    Ok((engine, streams::find(engine, stream, false).ok_or_else(|| unknown(stream))?))
}

fn unknown(stream: CUstream) -> Refusal {
    let created = streams::named(stream, false).kind == StreamKind::Created;
    if created || gpu::current_context().is_some() {
        Refusal::Engine(Error::InvalidStream)
    } else {
        Refusal::NoContext
    }
}
