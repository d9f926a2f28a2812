//! A context beside the primary one, destroyed with work and memory in it.

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use sluice_driver_api::types::{CUcontext, CUdeviceptr, CUfunction, CUmodule};

use super::caller::DEFAULT;
use super::random::Random;
use crate::driver::{Error, call};
use crate::kernel;
use crate::session::Session;

/// Memory of the context, and the words of it that its kernel changes.
const BYTES: usize = 4 << 20;
const WORDS: u32 = 256;

/// Creates a context, uses it and destroys it. The session's context is current again afterwards.
pub(crate) fn use_one(session: &Session, random: &mut Random) -> Result<(), Error> {
    let (driver, mut context): (_, CUcontext) = (session.driver(), ptr::null_mut());
    // SAFETY: the driver writes one handle to a local.
    unsafe { call!(driver, cuCtxCreate_v2(&raw mut context, 0, session.device()))? };
    let used = allocate_and_launch(session, random);
    // SAFETY: created just above. Memory and work in it end with it.
    unsafe { call!(driver, cuCtxDestroy_v2(context))? };
    session.use_on_this_thread()?;
    match used {
        Err(error) if error.is_out_of_memory() => Ok(()),
        other => other,
    }
}

/// Uses the current context.
fn allocate_and_launch(session: &Session, random: &mut Random) -> Result<(), Error> {
    let driver = session.driver();
    let mut memory: CUdeviceptr = 0;
    // SAFETY: the driver writes one address to a local.
    unsafe { call!(driver, cuMemAlloc_v2(&raw mut memory, BYTES))? };
    let function = load(session)?;
    let (mut pointer, mut words) = (memory, WORDS);
    let mut iterations = kernel::iterations(Duration::from_micros(random.below(500)));
    let mut parameters: [*mut c_void; 3] =
        [(&raw mut pointer).cast(), (&raw mut words).cast(), (&raw mut iterations).cast()];
    let (parameters, none) = (parameters.as_mut_ptr(), ptr::null_mut());
    for _ in 0..1 + random.below(3) {
        // SAFETY: the function takes (u64, u32, u32), which is what the three pointers lead to, and the driver copies them before it
        // returns. The memory has `words` words and exists as long as the context.
        unsafe {
            call!(
                driver,
                cuLaunchKernel(function, 8, 1, 1, kernel::BLOCK, 1, 1, 0, DEFAULT, parameters, none)
            )?
        };
    }
    match random.below(3) {
        // SAFETY: it takes no arguments; the context is current.
        0 => unsafe { call!(driver, cuCtxSynchronize()) },
        // SAFETY: allocated above and freed only here; the driver waits for its last use.
        1 => unsafe { call!(driver, cuMemFree_v2(memory)) },
        _ => Ok(()),
    }
}

fn load(session: &Session) -> Result<CUfunction, Error> {
    let (driver, mut module): (_, CUmodule) = (session.driver(), ptr::null_mut());
    let mut image = kernel::module_for(session.device_name()).into_bytes();
    image.push(0);
    // SAFETY: the image is text with a terminating zero byte, and outlives the call.
    unsafe { call!(driver, cuModuleLoadData(&raw mut module, image.as_ptr().cast()))? };
    let mut function: CUfunction = ptr::null_mut();
    // SAFETY: the module was just loaded and lives as long as the context; the name is a C string.
    unsafe { call!(driver, cuModuleGetFunction(&raw mut function, module, c"spin".as_ptr()))? };
    Ok(function)
}
