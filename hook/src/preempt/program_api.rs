//! The implementation of the preemption functions of `sluice.h`.

use std::ffi::CStr;
use std::sync::Arc;

use sluice_driver_api::types::CUstream;
use sluice_hook_core::outcome::Bypass;
use sluice_hook_core::platform::StreamKind;
use sluice_preempt::config::{Config, PreemptionLevel};
use sluice_preempt::driver::Driver;
use sluice_preempt::engine::Request;
use sluice_preempt::outcome::{Achieved, Error};
use sluice_preempt::queue::Queue;

pub(crate) use super::worker::IdleCallback;

use super::preemptors::{self, Preemptor};
use super::{HookEngine, engage, engine, streams};
use super::{loads, manager, own_groups, worker};
use crate::{gpu, process};

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
    process::check_governed().map_err(Refusal::Bypassed)?;
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
    preemptors::forget(queue.id());
    // The manager may still want gates.
    manager::apply_to_new_stream(engine, &queue);
    worker::set_on_idle(queue.id(), None);
    Ok(())
}

pub(crate) fn preempt(stream: CUstream, sync: bool) -> Result<Achieved, Refusal> {
    let (engine, queue) = enabled(stream)?;
    let level = loads::is_any_untracked().then_some(PreemptionLevel::Host);
    Ok(preemptors::preempt_for(
        engine,
        &queue,
        Preemptor::Program,
        Request { sync, level, ..Request::default() },
    )?)
}

pub(crate) fn restore(stream: CUstream) -> Result<(), Refusal> {
    let (engine, queue) = enabled(stream)?;
    Ok(preemptors::restore_for(engine, &queue, Preemptor::Program)?)
}

/// The highest level at which a stream can be preempted.
pub(crate) fn level(stream: CUstream) -> Result<Supported, Refusal> {
    process::check_governed().map_err(Refusal::Bypassed)?;
    let (engine, queue) = engaged(stream)?;
    Ok(supported(engine, &queue, GateUse::Probe))
}

/// Whether the stream is to get a gate cell now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GateUse {
    Probe,
    Prepare,
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

/// Whether a stream can have gates; the reason if not.
pub(super) fn can_stop_on_gpu(
    engine: &HookEngine,
    queue: &Queue,
    gate_use: GateUse,
) -> Result<(), &'static CStr> {
    let stream = queue.stream();
    if stream.is_legacy() {
        return Err(c"all blocking streams wait for the legacy default stream on the GPU");
    }
    let gates = &engine.driver().gates;
    let possible = engine.with_stream(queue, || {
        let relaxed = engine.driver().exchange_capture_relaxed(true);
        let possible = match gate_use {
            GateUse::Probe => gates.probe(stream.context),
            GateUse::Prepare => gates.prepare(stream),
        };
        engine.driver().exchange_capture_relaxed(relaxed);
        possible
    });
    possible.unwrap_or(Err(c"the stream is being destroyed"))
}

/// A stream whose preemption is enabled. The driver is not asked, as the handle may belong to a destroyed stream.
fn enabled(stream: CUstream) -> Result<(&'static HookEngine, Arc<Queue>), Refusal> {
    process::check_governed().map_err(Refusal::Bypassed)?;
    if super::FORKED_CHILD.load(std::sync::atomic::Ordering::Acquire) {
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
