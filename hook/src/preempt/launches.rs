//! Deferral of launches: what is copied, and how the launch is made later.

use std::ffi::c_void;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_preempt::command::{Command, Deferral, Launch};
use sluice_preempt::ids::{Code, Stream};

use super::own_calls::code;
use super::parameters::{BUFFER, BUFFER_SIZE, Given};
use crate::gpu::pointer;
use crate::real;

type Params = *mut *mut c_void;

/// Makes a deferred launch.
pub(super) fn submit(stream: Stream, launch: &Launch) -> Result<(), Code> {
    let mut size = launch.parameters.len();
    let mut extra = [
        std::ptr::without_provenance_mut(BUFFER),
        launch.parameters.as_ptr().cast_mut().cast::<c_void>(),
        std::ptr::without_provenance_mut(BUFFER_SIZE),
        (&raw mut size).cast(),
        std::ptr::null_mut(),
    ];
    let extra = if size == 0 { std::ptr::null_mut() } else { extra.as_mut_ptr() };
    let mut attributes = attributes(launch);
    let ([gx, gy, gz], [bx, by, bz], on) = (launch.grid, launch.block, pointer(stream.handle));
    let (function, none) = (pointer(launch.function), std::ptr::null_mut());
    let table = real::table();
    if attributes.is_empty() {
        let Some(make) = table.cuLaunchKernel else { return Err(Code(CUresult::ERROR_NOT_FOUND.0)) };
        // SAFETY: the program launched this; function and stream are kept alive by its own rules until it has been done.
        return code(unsafe { make(function, gx, gy, gz, bx, by, bz, launch.shared_bytes, on, none, extra) });
    }
    let config = CUlaunchConfig {
        gridDimX: gx,
        gridDimY: gy,
        gridDimZ: gz,
        blockDimX: bx,
        blockDimY: by,
        blockDimZ: bz,
        sharedMemBytes: launch.shared_bytes,
        hStream: on,
        attrs: attributes.as_mut_ptr(),
        numAttrs: u32::try_from(attributes.len()).unwrap_or(0),
    };
    let Some(make) = table.cuLaunchKernelEx else { return Err(Code(CUresult::ERROR_NOT_FOUND.0)) };
    // SAFETY: as above; the attributes live until the call returns.
    code(unsafe { make(&raw const config, function, none, extra) })
}

/// The launch attributes, including the one that the name of the call implies.
fn attributes(launch: &Launch) -> Vec<CUlaunchAttribute> {
    const BYTES: usize = size_of::<CUlaunchAttribute>();
    let kept = launch.attributes.chunks_exact(BYTES).map(|bytes| {
        // SAFETY: these are the bytes of an attribute, in which every pattern is one.
        unsafe { bytes.as_ptr().cast::<CUlaunchAttribute>().read_unaligned() }
    });
    let mut value = [0; 8];
    value[0] = 1;
    let cooperative = CUlaunchAttribute { id: CU_LAUNCH_ATTRIBUTE_COOPERATIVE, pad: [0; 4], value };
    kept.chain(launch.cooperative.then_some(cooperative)).collect()
}

/// Whether an attribute is a plain value. Others name events or graph nodes, or are unknown.
fn is_value(id: CUlaunchAttributeID) -> bool {
    !matches!(
        id,
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
            | CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT
            | CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE
    ) && id <= CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE
}

fn command(mut launch: Launch, given: Given) -> Result<Deferral, Code> {
    launch.check()?;
    Ok(match given.copied(launch.function)? {
        Some(parameters) => {
            launch.parameters = parameters;
            Deferral::Queue(Command::Launch(launch))
        }
        None => Deferral::ByCaller,
    })
}

/// The deferral of a launch with its grid among the arguments.
#[expect(clippy::too_many_arguments, reason = "the driver's signature")]
pub(crate) fn with_grid(
    f: CUfunction,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared_bytes: c_uint,
    _: CUstream,
    params: Params,
    extra: Params,
    cooperative: bool,
) -> Result<Deferral, Code> {
    let launch = Launch {
        function: f.expose_provenance() as u64,
        grid: [gx, gy, gz],
        block: [bx, by, bz],
        shared_bytes,
        cooperative,
        ..Launch::default()
    };
    command(launch, Given { params, extra })
}

/// Whether a launch is cooperative.
///
/// # Safety
/// `config` is null, or a configuration that is readable.
pub(super) unsafe fn is_cooperative(config: *const CUlaunchConfig) -> bool {
    // SAFETY: as the caller guarantees.
    let Some(config) = (unsafe { config.as_ref() }).filter(|config| !config.attrs.is_null()) else {
        return false;
    };
    // SAFETY: not null, so by the driver's contract as many attributes as `numAttrs` are readable.
    let attributes = unsafe { std::slice::from_raw_parts(config.attrs, config.numAttrs as usize) };
    attributes.iter().any(|attribute| attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
}

/// The deferral of a launch by a configuration.
pub(crate) fn with_config(
    config: *const CUlaunchConfig,
    f: CUfunction,
    params: Params,
    extra: Params,
) -> Result<Deferral, Code> {
    // SAFETY: the program passes null, which the driver would refuse, or a configuration that is readable.
    let Some(config) = (unsafe { config.as_ref() }) else { return Err(Code::INVALID_VALUE) };
    let count = if config.attrs.is_null() { 0 } else { config.numAttrs as usize };
    let attributes = match count {
        0 => &[],
        // SAFETY: not null, so by the driver's contract as many attributes as `numAttrs` are readable.
        _ => unsafe { std::slice::from_raw_parts(config.attrs, count) },
    };
    if !attributes.iter().all(|attribute| is_value(attribute.id)) {
        return Ok(Deferral::ByCaller);
    }
    // SAFETY: the same memory as bytes.
    let bytes =
        unsafe { std::slice::from_raw_parts(attributes.as_ptr().cast::<u8>(), size_of_val(attributes)) };
    let launch = Launch {
        function: f.expose_provenance() as u64,
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared_bytes: config.sharedMemBytes,
        attributes: bytes.into(),
        ..Launch::default()
    };
    command(launch, Given { params, extra })
}

/// Makes a launch by a configuration at once, on `stream` in place of the configuration's own.
#[inline]
pub(crate) fn with_config_on(
    stream: CUstream,
    config: *const CUlaunchConfig,
    real: impl FnOnce(*const CUlaunchConfig) -> CUresult,
) -> CUresult {
    // SAFETY: the program passes null, which the driver refuses, or a configuration that is readable.
    match unsafe { config.as_ref() } {
        Some(config) => real(std::ptr::from_ref(&CUlaunchConfig { hStream: stream, ..*config })),
        None => real(config),
    }
}

/// The deferral of a graph's launch.
pub(crate) fn of_graph(graph: CUgraphExec) -> Deferral {
    Deferral::Queue(Command::Graph(graph.expose_provenance() as u64))
}
