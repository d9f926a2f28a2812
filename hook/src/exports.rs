//! The exported driver API: one function for each row of the table.
//!
//! `forward` rows go straight to the real driver. Every other row makes one call into [`crate::governed`], with the real
//! function beside its arguments. A row whose symbol needs more than its policy word says has an arm of its own.

#![allow(non_snake_case, reason = "the names are the driver's")]
#![allow(clippy::too_many_arguments, reason = "the signatures are the driver's")]

use std::ffi::c_void;

use sluice_driver_api::types::*;

use crate::governed;
use crate::real;

/// One exported symbol.
pub(crate) struct Export {
    /// The wrapper.
    pub(crate) address: *const c_void,
    /// Whether it does more than call the real function.
    pub(crate) governed: bool,
}

// SAFETY: the pointer is the address of a function, which no thread can change.
unsafe impl Sync for Export {}

macro_rules! exports {
    // What each row does: its real function, its variant and its arguments are given.
    (@body launch $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => {
        governed::launch::call(governed::launch::stream_of::$symbol($($a),*), exports!(@ptsz $variant), || unsafe { $real($($a),*) })
    };
    (@body sync cuCtxSynchronize $real:ident $variant:ident ()) => {
        governed::sync::context(None, || unsafe { $real() })
    };
    (@body sync cuCtxSynchronize_v2 $real:ident $variant:ident ($context:ident)) => {
        governed::sync::context(Some($context), || unsafe { $real($context) })
    };
    (@body sync cuEventSynchronize $real:ident $variant:ident ($event:ident)) => {
        governed::sync::event(|| unsafe { $real($event) })
    };
    (@body sync cuStreamSynchronize $real:ident $variant:ident ($stream:ident)) => {
        governed::sync::stream($stream, false, || unsafe { $real($stream) })
    };
    (@body sync cuStreamSynchronize_ptsz $real:ident $variant:ident ($stream:ident)) => {
        governed::sync::stream($stream, true, || unsafe { $real($stream) })
    };
    (@body sync $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => {
        governed::sync::copy(stringify!($symbol), exports!(@ptsz $variant), || unsafe { $real($($a),*) })
    };
    (@body capture $symbol:ident $real:ident $variant:ident ($stream:ident $($a:ident)*)) => {
        governed::capture::call(stringify!($symbol), $stream, exports!(@ptsz $variant), || unsafe { $real($stream $(, $a)*) })
    };
    (@body stream cuStreamDestroy $real:ident $variant:ident ($stream:ident)) => {
        governed::stream::destroy($stream, || unsafe { $real($stream) })
    };
    (@body stream cuStreamDestroy_v2 $real:ident $variant:ident ($stream:ident)) => {
        governed::stream::destroy($stream, || unsafe { $real($stream) })
    };
    (@body context cuCtxDestroy $real:ident $variant:ident ($context:ident)) => {
        governed::context::destroy($context, || unsafe { $real($context) })
    };
    (@body context cuCtxDestroy_v2 $real:ident $variant:ident ($context:ident)) => {
        governed::context::destroy($context, || unsafe { $real($context) })
    };
    (@body context cuCtxDetach $real:ident $variant:ident ($context:ident)) => {
        governed::context::destroy($context, || unsafe { $real($context) })
    };
    (@body context cuGreenCtxDestroy $real:ident $variant:ident ($green:ident)) => {
        governed::context::destroy_green($green, || unsafe { $real($green) })
    };
    (@body context cuDevicePrimaryCtxReset $real:ident $variant:ident ($device:ident)) => {
        governed::context::reset_primary($device, || unsafe { $real($device) })
    };
    (@body context cuDevicePrimaryCtxReset_v2 $real:ident $variant:ident ($device:ident)) => {
        governed::context::reset_primary($device, || unsafe { $real($device) })
    };
    (@body context cuDevicePrimaryCtxRelease $real:ident $variant:ident ($device:ident)) => {
        governed::context::release_primary($device, || unsafe { $real($device) })
    };
    (@body context cuDevicePrimaryCtxRelease_v2 $real:ident $variant:ident ($device:ident)) => {
        governed::context::release_primary($device, || unsafe { $real($device) })
    };
    (@body context cuCtxCreate $real:ident $variant:ident ($context:ident $flags:ident $device:ident)) => {
        governed::context::create($device, || unsafe { $real($context, $flags, $device) })
    };
    (@body context cuCtxCreate_v2 $real:ident $variant:ident ($context:ident $flags:ident $device:ident)) => {
        governed::context::create($device, || unsafe { $real($context, $flags, $device) })
    };
    (@body context cuCtxCreate_v3 $real:ident $variant:ident ($context:ident $params:ident $count:ident $flags:ident $device:ident)) => {
        governed::context::create($device, || unsafe { $real($context, $params, $count, $flags, $device) })
    };
    (@body context cuCtxCreate_v4 $real:ident $variant:ident ($context:ident $params:ident $flags:ident $device:ident)) => {
        governed::context::create($device, || unsafe { $real($context, $params, $flags, $device) })
    };
    (@body context cuDevicePrimaryCtxRetain $real:ident $variant:ident ($context:ident $device:ident)) => {
        governed::context::create($device, || unsafe { $real($context, $device) })
    };
    (@body context cuGLCtxCreate $real:ident $variant:ident ($context:ident $flags:ident $device:ident)) => {
        governed::context::create($device, || unsafe { $real($context, $flags, $device) })
    };
    (@body context cuGLCtxCreate_v2 $real:ident $variant:ident ($context:ident $flags:ident $device:ident)) => {
        governed::context::create($device, || unsafe { $real($context, $flags, $device) })
    };
    (@body context cuGreenCtxCreate $real:ident $variant:ident ($green:ident $description:ident $device:ident $flags:ident)) => {
        governed::context::create($device, || unsafe { $real($green, $description, $device, $flags) })
    };
    (@body context $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => {
        governed::context::changes_current(|| unsafe { $real($($a),*) })
    };
    // Events and new streams tell nothing that the stream set does not learn from launches and waits.
    (@body stream $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => { unsafe { $real($($a),*) } };
    (@body event $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => { unsafe { $real($($a),*) } };
    // Physical memory stays allocated while it is mapped, so mappings are references to be counted.
    (@body forward cuMemRetainAllocationHandle $real:ident $variant:ident ($handle:ident $address:ident)) => {
        unsafe { governed::physical::retain($real, $handle, $address) }
    };
    (@body forward cuMemMap $real:ident $variant:ident ($($a:ident)*)) => { unsafe { governed::physical::map($real, $($a),*) } };
    (@body forward cuMemUnmap $real:ident $variant:ident ($($a:ident)*)) => { unsafe { governed::physical::unmap($real, $($a),*) } };
    (@body forward $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => { unsafe { $real($($a),*) } };
    // alloc, free, query, lookup: one function of that name each.
    (@body $policy:ident $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => {
        unsafe { governed::$policy::$symbol($real, $($a),*) }
    };

    (@governed event $symbol:ident) => { false };
    (@governed forward cuMemRetainAllocationHandle) => { true };
    (@governed forward cuMemMap) => { true };
    (@governed forward cuMemUnmap) => { true };
    (@governed forward $symbol:ident) => { false };
    (@governed $policy:ident $symbol:ident) => { true };

    (@ptsz default) => { false };
    (@ptsz ptsz) => { true };

    ($($policy:ident $symbol:ident ($name:literal, $since:literal, $variant:ident) fn($($a:ident : $kind:ty),*);)*) => {
        $(
            /// The driver's function of this name.
            ///
            /// # Safety
            /// As the driver documents it.
            #[unsafe(no_mangle)]
            #[allow(clippy::undocumented_unsafe_blocks, reason = "SAFETY: the caller's arguments go to the real function of the same name unchanged, so its contract is the caller's")]
            pub(crate) unsafe extern "C" fn $symbol($($a: $kind),*) -> CUresult {
                let Some(real) = real::table().$symbol else { return real::missing() };
                exports!(@body $policy $symbol real $variant ($($a)*))
            }
        )*

        /// All exports, in the order of `sluice_driver_api::ENTRIES`.
        pub(crate) static EXPORTS: &[Export] = &[$(
            Export { address: $symbol as *const c_void, governed: exports!(@governed $policy $symbol) },
        )*];
    };
}
sluice_driver_api::driver_api!(exports);
