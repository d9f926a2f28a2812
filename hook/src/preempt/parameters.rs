//! Parameters of deferred launches. They are copied at the call, because the program may change them afterwards.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, OnceLock};

use sluice_driver_api::CUresult;
use sluice_hook_core::lock;
use sluice_preempt::ids::Code;

use super::own_calls::as_own_call;
use crate::gpu::pointer;
use crate::real;

/// Keys of the list of extra options (`CU_LAUNCH_PARAM_*`).
const END: usize = 0;
pub(super) const BUFFER: usize = 1;
pub(super) const BUFFER_SIZE: usize = 2;

/// More parameters than any kernel has.
const MAX_PARAMETERS: usize = 4096;

/// Offset and size of each parameter of a function.
type Layout = Arc<[(usize, usize)]>;

static LAYOUTS: OnceLock<Mutex<HashMap<u64, Layout>>> = OnceLock::new();

/// Forgets all layouts: after a module was unloaded, the driver may reuse its functions' handles.
pub(super) fn forget_layouts() {
    if let Some(layouts) = LAYOUTS.get() {
        lock(layouts).clear();
    }
}

/// The parameters as the program passes them.
#[derive(Clone, Copy)]
pub(super) struct Given {
    pub(super) params: *mut *mut c_void,
    pub(super) extra: *mut *mut c_void,
}

impl Given {
    /// A copy of the parameters, packed as the function takes them; `None` if their sizes are unknown.
    pub(super) fn copied(self, function: u64) -> Result<Option<Box<[u8]>>, Code> {
        if !self.extra.is_null() {
            // SAFETY: the program passes a list of extra options.
            return Ok(unsafe { packed(self.extra) });
        }
        let Some(layout) = layout(function) else { return Ok(None) };
        let end = layout.iter().map(|(offset, size)| offset + size).max().unwrap_or(0);
        let mut bytes = vec![0u8; end];
        if self.params.is_null() && end > 0 {
            return Err(Code::INVALID_VALUE);
        }
        for (index, (offset, size)) in layout.iter().enumerate() {
            // SAFETY: the program passes the address of each parameter, readable for its size.
            unsafe {
                let from = (*self.params.add(index)).cast::<u8>();
                std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr().add(*offset), *size);
            }
        }
        Ok(Some(bytes.into()))
    }
}

/// The buffer that a list of extra options names.
///
/// # Safety
/// `extra` is a list of pairs that ends with `END`.
unsafe fn packed(extra: *mut *mut c_void) -> Option<Box<[u8]>> {
    let (mut buffer, mut size) = (std::ptr::null::<u8>(), 0usize);
    for pair in 0..4 {
        // SAFETY: as the caller guarantees; what follows a marker belongs to it.
        unsafe {
            match (*extra.add(2 * pair)).addr() {
                END => break,
                BUFFER => buffer = (*extra.add(2 * pair + 1)).cast(),
                BUFFER_SIZE => size = *(*extra.add(2 * pair + 1)).cast::<usize>(),
                _ => return None,
            }
        }
    }
    if buffer.is_null() || size == 0 {
        return Some(Box::default());
    }
    // SAFETY: by the driver's contract the buffer has this size.
    Some(unsafe { std::slice::from_raw_parts(buffer, size) }.into())
}

fn layout(function: u64) -> Option<Layout> {
    let layouts = LAYOUTS.get_or_init(Mutex::default);
    if let Some(known) = lock(layouts).get(&function) {
        return Some(known.clone());
    }
    let table = real::table();
    let found = as_own_call(|| {
        let of_function = table.cuFuncGetParamInfo.and_then(|get| {
            // SAFETY: the program launches the function, so it is loaded; the out-pointers are writable.
            read_layout(|index, offset, size| unsafe { get(pointer(function), index, offset, size) })
        });
        of_function.or_else(|| {
            // A launch may also name the handle of a kernel, which is not a function.
            let get = table.cuKernelGetParamInfo?;
            // SAFETY: as above.
            read_layout(|index, offset, size| unsafe { get(pointer(function), index, offset, size) })
        })
    })?;
    lock(layouts).insert(function, found.clone());
    Some(found)
}

/// Queries one parameter after another until the driver reports that there are no more.
fn read_layout(mut get: impl FnMut(usize, *mut usize, *mut usize) -> CUresult) -> Option<Layout> {
    let mut found = Vec::new();
    for index in 0..MAX_PARAMETERS {
        let (mut offset, mut size) = (0, 0);
        match get(index, &raw mut offset, &raw mut size) {
            CUresult::SUCCESS => found.push((offset, size)),
            CUresult::ERROR_INVALID_VALUE => return Some(found.into()),
            _ => return None,
        }
    }
    None
}
