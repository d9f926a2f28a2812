//! Modules, libraries, functions and kernels.

pub(crate) use super::context::*;
// Functions that differ in name only.
pub(crate) use self::cuModuleLoadData as cuModuleLoadFatBinary;

use super::functions;
use crate::border::{Ptr, Status};
use crate::state::context::{Context, current, current_or_none};
use crate::state::driver::driver;
use crate::state::module::{Function, ModuleObject, add_library, add_module, parse, remove};
use sluice_driver_api::types::*;
use sluice_sim::params;
use std::sync::Arc;

/// The function of a handle; a CUkernel is one, too.
pub(super) fn function<T>(handle: Ptr<T>) -> Result<Arc<Function>, CUresult> {
    driver()?.functions.get(handle.address()).ok_or(CUresult::ERROR_INVALID_HANDLE)
}

fn module<T>(handle: Ptr<T>) -> Result<Arc<ModuleObject>, CUresult> {
    driver()?.modules.get(handle.address()).ok_or(CUresult::ERROR_INVALID_HANDLE)
}

/// Waits for everything submitted to the context, as the driver does before a load (measured on an H200).
fn wait_for_work(context: Option<&Arc<Context>>) -> Status {
    context.map_or(Ok(()), |context| context.drain())
}

fn load(handle: Ptr<CUmodule>, image: Ptr<c_void>) -> Status {
    let context = current()?;
    let parsed = parse(image)?;
    wait_for_work(Some(&context))?;
    handle.write_handle(add_module(parsed, &context)?.handle)
}

pub(crate) fn cuModuleLoadDataEx(
    handle: Ptr<CUmodule>,
    image: Ptr<c_void>,
    _count: c_uint,
    _options: Ptr<CUjit_option>,
    _values: Ptr<*mut c_void>,
) -> Status {
    load(handle, image)
}

pub(crate) fn cuModuleLoad(handle: Ptr<CUmodule>, path: Ptr<c_char>) -> Status {
    let context = current()?;
    let bytes = std::fs::read(path.text()?).map_err(|_| CUresult::ERROR_FILE_NOT_FOUND)?;
    let text = String::from_utf8(bytes).map_err(|_| CUresult::ERROR_INVALID_IMAGE)?;
    let parsed = sluice_sim::module::Module::parse(&text).map_err(|_| CUresult::ERROR_INVALID_IMAGE)?;
    wait_for_work(Some(&context))?;
    handle.write_handle(add_module(parsed, &context)?.handle)
}

pub(crate) fn cuModuleUnload(handle: Ptr<CUmod_st>) -> Status {
    let context = current()?;
    module(handle)?;
    // Submitted work may still use the module.
    context.synchronize()?;
    remove(handle.address())
}

fn find(module: &ModuleObject, name: Ptr<c_char>) -> Result<usize, CUresult> {
    let name = name.text()?;
    let found = module.functions.iter().find(|function| function.kernel.name == name);
    found.map(|function| function.handle).ok_or(CUresult::ERROR_NOT_FOUND)
}

pub(crate) fn cuModuleEnumerateFunctions(out: Ptr<CUfunction>, count: c_uint, of: Ptr<CUmod_st>) -> Status {
    let module = module(of)?;
    for (index, function) in module.functions.iter().take(count as usize).enumerate() {
        out.at(index).write_handle(function.handle)?;
    }
    Ok(())
}

pub(crate) fn cuModuleGetGlobal_v2(
    _pointer: Ptr<CUdeviceptr>,
    _bytes: Ptr<usize>,
    of: Ptr<CUmod_st>,
    _name: Ptr<c_char>,
) -> Status {
    module(of)?;
    Err(CUresult::ERROR_NOT_FOUND)
}

pub(crate) fn cuLibraryLoadData(
    handle: Ptr<CUlibrary>,
    image: Ptr<c_void>,
    _jit_options: Ptr<CUjit_option>,
    _jit_values: Ptr<*mut c_void>,
    _jit_count: c_uint,
    _options: Ptr<CUlibraryOption>,
    _values: Ptr<*mut c_void>,
    _count: c_uint,
) -> Status {
    let parsed = parse(image)?;
    // With a current context, the library is loaded at once.
    let context = current_or_none();
    wait_for_work(context.as_ref())?;
    handle.write_handle(add_library(parsed, context.as_deref())?.handle)
}

pub(crate) fn cuLibraryGetModule(handle: Ptr<CUmodule>, of: Ptr<CUlib_st>) -> Status {
    current()?;
    handle.write_handle(module(of)?.handle)
}

pub(crate) fn cuKernelGetFunction(handle: Ptr<CUfunction>, kernel: Ptr<CUkern_st>) -> Status {
    current()?;
    handle.write_handle(function(kernel)?.handle)
}

pub(crate) fn cuFuncGetParamInfo(
    of: Ptr<CUfunc_st>,
    index: usize,
    offset: Ptr<usize>,
    size: Ptr<usize>,
) -> Status {
    let function = function(of)?;
    let param = function.kernel.params.get(index).ok_or(CUresult::ERROR_INVALID_VALUE)?;
    size.write_if_wanted(param.size);
    offset.write(param.offset)
}

pub(crate) fn cuFuncIsLoaded(state: Ptr<CUfunctionLoadingState>, of: Ptr<CUfunc_st>) -> Status {
    function(of)?;
    state.write(1)
}

/// Attributes of a small kernel for compute capability 9.0.
pub(crate) fn cuFuncGetAttribute(
    value: Ptr<c_int>,
    attribute: CUfunction_attribute,
    of: Ptr<CUfunc_st>,
) -> Status {
    let function = function(of)?;
    value.write(match attribute {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1_024,
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => function.kernel.local.cast_signed(),
        CU_FUNC_ATTRIBUTE_NUM_REGS => 32,
        CU_FUNC_ATTRIBUTE_PTX_VERSION | CU_FUNC_ATTRIBUTE_BINARY_VERSION => 90,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => 48 << 10,
        _ => 0,
    })
}

pub(crate) fn cuKernelGetAttribute(
    value: Ptr<c_int>,
    attribute: CUfunction_attribute,
    kernel: Ptr<CUkern_st>,
    device: CUdevice,
) -> Status {
    driver()?.device(device)?;
    cuFuncGetAttribute(value, attribute, kernel.cast())
}

pub(crate) fn cuKernelSetAttribute(
    _attribute: CUfunction_attribute,
    _value: c_int,
    kernel: Ptr<CUkern_st>,
    device: CUdevice,
) -> Status {
    driver()?.device(device)?;
    function(kernel).map(drop)
}

pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    count: Ptr<c_int>,
    of: Ptr<CUfunc_st>,
    block_size: c_int,
    _shared: usize,
) -> Status {
    function(of)?;
    let threads = u32::try_from(block_size).ok().filter(|threads| (1..=1_024).contains(threads));
    let threads = threads.ok_or(CUresult::ERROR_INVALID_VALUE)?;
    count.write((params::THREADS_PER_SM / threads).min(params::BLOCKS_PER_SM).cast_signed())
}

pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    count: Ptr<c_int>,
    of: Ptr<CUfunc_st>,
    block_size: c_int,
    shared: usize,
    _flags: c_uint,
) -> Status {
    cuOccupancyMaxActiveBlocksPerMultiprocessor(count, of, block_size, shared)
}

functions! {
    fn cuModuleLoadData(handle: Ptr<CUmodule>, image: Ptr<c_void>) = load(handle, image);
    fn cuModuleGetLoadingMode(mode: Ptr<CUmoduleLoadingMode>) = mode.write(1);
    fn cuModuleGetFunction(handle: Ptr<CUfunction>, of: Ptr<CUmod_st>, name: Ptr<c_char>)
        = handle.write_handle(find(&*module(of)?, name)?);
    fn cuModuleGetFunctionCount(count: Ptr<c_uint>, of: Ptr<CUmod_st>)
        = count.write(u32::try_from(module(of)?.functions.len()).unwrap_or(u32::MAX));
    fn cuLibraryUnload(handle: Ptr<CUlib_st>) = remove(handle.address());
    fn cuLibraryGetKernel(handle: Ptr<CUkernel>, of: Ptr<CUlib_st>, name: Ptr<c_char>)
        = handle.write_handle(find(&*module(of)?, name)?);
    fn cuLibraryGetKernelCount(count: Ptr<c_uint>, of: Ptr<CUlib_st>) = cuModuleGetFunctionCount(count, of.cast());
    fn cuLibraryEnumerateKernels(out: Ptr<CUkernel>, count: c_uint, of: Ptr<CUlib_st>)
        = cuModuleEnumerateFunctions(out.cast(), count, of.cast());
    fn cuKernelGetLibrary(handle: Ptr<CUlibrary>, kernel: Ptr<CUkern_st>)
        = handle.write_handle(function(kernel)?.module);
    fn cuKernelGetName(name: Ptr<*const c_char>, kernel: Ptr<CUkern_st>)
        = name.write(function(kernel)?.c_name.as_ptr());
    fn cuFuncGetName(name: Ptr<*const c_char>, of: Ptr<CUfunc_st>) = name.write(function(of)?.c_name.as_ptr());
    fn cuFuncGetModule(handle: Ptr<CUmodule>, of: Ptr<CUfunc_st>) = handle.write_handle(function(of)?.module);
    fn cuKernelGetParamInfo(of: Ptr<CUkern_st>, index: usize, offset: Ptr<usize>, size: Ptr<usize>)
        = cuFuncGetParamInfo(of.cast(), index, offset, size);
    fn cuFuncGetParamCount(of: Ptr<CUfunc_st>, count: Ptr<usize>) = count.write(function(of)?.kernel.params.len());
    fn cuKernelGetParamCount(of: Ptr<CUkern_st>, count: Ptr<usize>) = cuFuncGetParamCount(of.cast(), count);
    fn cuFuncLoad(of: Ptr<CUfunc_st>) = function(of).map(drop);
    fn cuFuncSetAttribute(of: Ptr<CUfunc_st>, _attribute: CUfunction_attribute, _value: c_int)
        = function(of).map(drop);
    fn cuFuncSetCacheConfig(of: Ptr<CUfunc_st>, _config: CUfunc_cache) = function(of).map(drop);
    fn cuKernelSetCacheConfig(kernel: Ptr<CUkern_st>, _config: CUfunc_cache, _device: CUdevice)
        = function(kernel).map(drop);
    fn cuFuncSetSharedMemConfig(of: Ptr<CUfunc_st>, _config: CUsharedconfig) = function(of).map(drop);
}
