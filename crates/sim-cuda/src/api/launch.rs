//! Kernel launches.

pub(crate) use super::stream::*;

use super::module::function;
use super::with_twin;
use crate::border::{Ptr, Span, Status};
use crate::state::context::Context;
use crate::state::driver::driver;
use crate::state::host;
use crate::state::module::Function;
use crate::state::stream::{Effect, Null, Stream, stream};
use sluice_driver_api::types::*;
use sluice_sim::client::StreamCommand;
use sluice_sim::effect;
use sluice_sim::engine::{HoldParams, Work};
use sluice_sim::module::{CopyParams, Launch};
use sluice_sim::params;
use std::sync::Arc;

/// Dynamic shared memory that a block of this GPU can have at most, in bytes.
const MAX_SHARED: u32 = 227 << 10;

/// Offsets from the word of a hold kernel, in bytes, at which the kernel writes: its ticket when it ends, the times by the GPU's clock at
/// which it began and first saw a change of the activity, and how long it and those before it ran without work of the program.
const TICKET: usize = 64;
const BEGAN: usize = 72;
const SEEN: usize = 88;
const IDLE: usize = 96;

struct Geometry {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
}

impl Geometry {
    /// Blocks and threads per block. Refuses a geometry that the driver would refuse.
    fn check(&self) -> Result<(u64, u32), CUresult> {
        let limits =
            [(self.grid, [i32::MAX.cast_unsigned(), 65_535, 65_535]), (self.block, [1_024, 1_024, 64])];
        let fits =
            limits.iter().all(|(size, limit)| size.iter().zip(limit).all(|(n, max)| (1..=*max).contains(n)));
        let product =
            |[x, y, z]: [c_uint; 3]| u64::from(x).saturating_mul(u64::from(y)).saturating_mul(u64::from(z));
        let threads = u32::try_from(product(self.block)).ok().filter(|threads| *threads <= 1_024);
        match threads {
            Some(threads) if fits && self.shared <= MAX_SHARED => Ok((product(self.grid), threads)),
            _ => Err(CUresult::ERROR_INVALID_VALUE),
        }
    }
}

/// The parameters of a launch as a packed buffer, from either form in which the caller passes them.
fn packed(
    function: &Function,
    kernel_params: Ptr<*mut c_void>,
    extra: Ptr<*mut c_void>,
) -> Result<Vec<u8>, CUresult> {
    let kernel = &function.kernel;
    if !extra.is_null() {
        return packed_extra(extra);
    }
    let mut buffer = vec![0; kernel.params_size];
    for (index, param) in kernel.params.iter().enumerate() {
        let value = kernel_params.at(index);
        if kernel_params.is_null() {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        let bytes = value.read_pointer()?.cast::<u8>().read_all(param.size)?;
        buffer[param.offset..param.offset + bytes.len()].copy_from_slice(&bytes);
    }
    Ok(buffer)
}

/// The list (1, buffer), (2, pointer to its size), 0.
fn packed_extra(extra: Ptr<*mut c_void>) -> Result<Vec<u8>, CUresult> {
    let (mut buffer, mut size) = (Ptr::<u8>::null(), 0);
    for index in (0..).step_by(2).take(8) {
        match extra.at(index).read_pointer()?.address() {
            0 => break,
            1 => buffer = extra.at(index + 1).read_pointer()?.cast(),
            2 => size = extra.at(index + 1).read_pointer()?.cast::<usize>().read()?,
            _ => return Err(CUresult::ERROR_INVALID_VALUE),
        }
    }
    if size == 0 { Ok(Vec::new()) } else { buffer.read_all(size) }
}

/// The kernel's effect, which is applied when the kernel completes. Its addresses are translated then, as on a GPU.
fn effect_of(context: &Arc<Context>, launch: Launch) -> Option<Effect> {
    if launch.effect == effect::Effect::None || launch.words == 0 {
        return None;
    }
    let context = context.clone();
    Some(Arc::new(move || {
        let target = || {
            let address = usize::try_from(launch.ptr).ok()?;
            let len = usize::try_from(launch.words).ok()?.checked_mul(8)?;
            driver().ok()?.memory.span(address, len)
        };
        match target() {
            None => context.fail(CUresult::ERROR_ILLEGAL_ADDRESS),
            Some(span) if driver().is_ok_and(|driver| driver.memory.is_read_only(span)) => {
                context.fail(CUresult::ERROR_LAUNCH_FAILED);
            }
            Some(span) => {
                if span.with_words(|words| launch.effect.apply(words)).is_none() {
                    context.fail(CUresult::ERROR_MISALIGNED_ADDRESS);
                }
            }
        }
    }))
}

/// The effect of a copy kernel. Its addresses are translated when it completes, so memory that was freed before is an error.
fn effect_of_copy(context: &Arc<Context>, CopyParams { to, from, bytes }: CopyParams) -> Effect {
    let context = context.clone();
    Arc::new(move || {
        let Ok(memory) = driver().map(|driver| &driver.memory) else { return };
        let span = |address: u64| memory.span(usize::try_from(address).ok()?, usize::try_from(bytes).ok()?);
        match (span(to), span(from)) {
            _ if bytes == 0 => {}
            (Some(to), Some(_)) if memory.is_read_only(to) => context.fail(CUresult::ERROR_LAUNCH_FAILED),
            (Some(to), Some(from)) => from.copy_to(to),
            _ => context.fail(CUresult::ERROR_ILLEGAL_ADDRESS),
        }
    })
}

fn launch(
    of: Ptr<CUfunc_st>,
    geometry: &Geometry,
    stream: &Arc<Stream>,
    kernel_params: Ptr<*mut c_void>,
    extra: Ptr<*mut c_void>,
) -> Status {
    let function = function(of)?;
    let (blocks, threads) = geometry.check()?;
    let packed = packed(&function, kernel_params, extra)?;
    let launch = function.kernel.launch(blocks, threads, &packed).ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let name = function.name_on(&stream.context.device)?;
    if function.kernel.local > 0 && !stream.is_captured(|_| Ok(()))? {
        stream.context.reserve_local(function.kernel.local)?;
    }
    if let Some(params) = launch.hold {
        return launch_hold(stream, &launch, params, name);
    }
    if let Some(copy) = launch.copy {
        let effect = effect_of_copy(&stream.context, copy);
        return stream.work(Work::Kernel { ns: launch.ns, sms: launch.sms, name }, Some(effect));
    }
    if let Some(rank) = launch.collective {
        return stream.work(Work::Collective { rank, ns: launch.ns, sms: launch.sms, name }, None);
    }
    stream.work(Work::Kernel { ns: launch.ns, sms: launch.sms, name }, effect_of(&stream.context, launch))
}

/// Launches a hold kernel: it occupies the GPU until a word or a time ends it.
fn launch_hold(on: &Arc<Stream>, launch: &Launch, params: HoldParams, name: usize) -> Status {
    on.is_captured(|part| {
        part.capture.invalidate();
        Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED)
    })?;
    let context = on.context.clone();
    let device = &context.device;
    let memory = &driver()?.memory;
    let address = usize::try_from(launch.ptr).map_err(|_| CUresult::ERROR_INVALID_VALUE)?;
    let found = memory.span(address, 8).filter(|_| address.is_multiple_of(8));
    let Some(word) = found else {
        let failing = context.clone();
        let work = Work::Kernel { ns: params::MIN_KERNEL_NS, sms: 1, name };
        let effect = move || failing.fail(CUresult::ERROR_ILLEGAL_ADDRESS);
        return on.submit(StreamCommand::Work(work), Some(Box::new(effect))).map(drop);
    };
    let events = [device.gpu.open_event(), device.gpu.open_event(), device.gpu.open_event()];
    let [Ok(begin), Ok(change), Ok(idle)] = events else { return Err(CUresult::ERROR_OUT_OF_MEMORY) };
    let registration = device.words.watch(&device.gpu, word);
    let times = [begin as u64, change as u64, idle as u64];
    let work = Work::Hold { address: launch.ptr, params, name, times };
    let gpu = device.gpu.clone();
    let effect = move || {
        let [began, seen, idle_until] = [begin, change, idle].map(|event| {
            let at = gpu.event_time(event);
            gpu.close_event(event);
            at
        });
        // Without room for these values, the kernel is another one of that name, which writes none.
        let Ok(memory) = driver().map(|driver| &driver.memory) else { return };
        if memory.span(address, IDLE + 8).is_none_or(|span| memory.is_read_only(span)) {
            return;
        }
        Span::found(address + BEGAN, 8).store(began);
        // An older time is that of an earlier kernel.
        if seen >= began {
            Span::found(address + SEEN, 8).store(seen);
        }
        let idle = Span::found(address + IDLE, 8);
        idle.store(idle.load() + (idle_until - began));
        Span::found(address + TICKET, 4).store(params.ticket.into());
    };
    let mark = on.submit(StreamCommand::Work(work), Some(Box::new(effect)))?;
    registration.submitted(mark, &context);
    host::apply_effects_at(on, mark);
    Ok(())
}

/// Checks that all blocks of a cooperative launch can run at the same time.
fn fits_at_once(geometry: &Geometry) -> Status {
    let (blocks, threads) = geometry.check()?;
    let per_sm = (params::THREADS_PER_SM / threads).min(params::BLOCKS_PER_SM);
    if blocks > u64::from(per_sm * params::SMS) {
        Err(CUresult::ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)
    } else {
        Ok(())
    }
}

with_twin! {
    fn cuLaunchKernel / cuLaunchKernel_ptsz(
        of: Ptr<CUfunc_st>, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, on: Ptr<CUstream_st>, kernel_params: Ptr<*mut c_void>, extra: Ptr<*mut c_void>
    ) |null| = {
        let geometry = Geometry { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        launch(of, &geometry, &stream(on, null)?, kernel_params, extra)
    };

    fn cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz(
        of: Ptr<CUfunc_st>, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, on: Ptr<CUstream_st>, kernel_params: Ptr<*mut c_void>
    ) |null| = {
        let geometry = Geometry { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        fits_at_once(&geometry)?;
        launch(of, &geometry, &stream(on, null)?, kernel_params, Ptr::null())
    };

    fn cuLaunchKernelEx / cuLaunchKernelEx_ptsz(
        config: Ptr<CUlaunchConfig>, of: Ptr<CUfunc_st>, kernel_params: Ptr<*mut c_void>, extra: Ptr<*mut c_void>
    ) |null| = {
        let config = config.read()?;
        let geometry = Geometry {
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            block: [config.blockDimX, config.blockDimY, config.blockDimZ],
            shared: config.sharedMemBytes,
        };
        let on = Ptr::to_address(config.hStream.expose_provenance());
        launch(of, &geometry, &stream(on, null)?, kernel_params, extra)
    };
}
