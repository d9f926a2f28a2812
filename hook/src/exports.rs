//! The exported driver API: one function for each row of the table.
//!
//! `forward` rows go straight to the real driver. Every other row makes one call into [`crate::governed`], with the real
//! function beside its arguments. A symbol that needs more than its policy word tells has an arm of its own.

#![allow(non_snake_case, reason = "the names are the driver's")]
#![allow(clippy::too_many_arguments, reason = "the signatures are the driver's")]

use std::ffi::c_void;

use sluice_driver_api::types::*;

use sluice_preempt::command::Work;

use crate::governed;
use crate::preempt::{self, Argument, PlainArgument, SendableArguments};
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

const fn begins(symbol: &str, with: &str) -> bool {
    let (symbol, with) = (symbol.as_bytes(), with.as_bytes());
    let mut at = 0;
    while at < with.len() {
        if at >= symbol.len() || symbol[at] != with[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Whether a function copies.
const fn is_copy(symbol: &str) -> bool {
    begins(symbol, "cuMemcpy")
}

/// Whether a function loads code, or may. The driver then waits for all the work that it has of the context. (It was observed not to wait
/// in `cuModuleGetFunction`: a module's functions are in the context with it, and a library's kernels need no context.)
const fn loads(symbol: &str) -> bool {
    let is_of_code = begins(symbol, "cuModule")
        || begins(symbol, "cuLibrary")
        || begins(symbol, "cuKernel")
        || begins(symbol, "cuFunc");
    is_of_code && !begins(symbol, "cuModuleGet") && !begins(symbol, "cuLibraryGetKernel")
}

/// Whether a function moves or sets memory.
const fn moves(symbol: &str) -> bool {
    begins(symbol, "cuMem")
}

macro_rules! exports {
    // The body of each row, from its real function, its variant and its arguments.
    (@body launch $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => {{
        let stream = (governed::launch::stream_of::$symbol($($a),*), exports!(@ptsz $variant));
        governed::launch::call(stream.0, stream.1, || {
            preempt::submit(
                stream,
                || None$(.or(Argument($a).work()))*.unwrap_or(Work::Small),
                || unsafe { $real($($a),*) },
                |on| unsafe { $real($(Argument($a).on(on)),*) },
                || preempt::launches::later::$symbol($($a),*),
            )
        })
    }};
    (@body sync cuCtxSynchronize $real:ident $variant:ident ()) => {
        governed::sync::context(None, || preempt::synchronize_context(None, || unsafe { $real() }))
    };
    (@body sync cuCtxSynchronize_v2 $real:ident $variant:ident ($context:ident)) => {
        governed::sync::context(Some($context), || preempt::synchronize_context(Some($context), || unsafe { $real($context) }))
    };
    (@body sync cuEventSynchronize $real:ident $variant:ident ($event:ident)) => {
        governed::sync::event(|| preempt::events::synchronize($event, || unsafe { $real($event) }))
    };
    (@body sync cuStreamSynchronize $real:ident $variant:ident ($stream:ident)) => {
        governed::sync::stream($stream, false, || preempt::synchronize($stream, false, || unsafe { $real($stream) }))
    };
    (@body sync cuStreamSynchronize_ptsz $real:ident $variant:ident ($stream:ident)) => {
        governed::sync::stream($stream, true, || preempt::synchronize($stream, true, || unsafe { $real($stream) }))
    };
    // Waiting commands may use what is unloaded or unregistered.
    (@body sync cuModuleUnload $real:ident $variant:ident ($($a:ident)*)) => {
        exports!(@unloaded cuModuleUnload $real $variant ($($a)*))
    };
    (@body sync cuLibraryUnload $real:ident $variant:ident ($($a:ident)*)) => {
        exports!(@unloaded cuLibraryUnload $real $variant ($($a)*))
    };
    (@body sync cuMemHostUnregister $real:ident $variant:ident ($($a:ident)*)) => {
        exports!(@settled cuMemHostUnregister $real $variant ($($a)*))
    };
    (@body sync cuMemFreeHost $real:ident $variant:ident ($($a:ident)*)) => {
        exports!(@settled cuMemFreeHost $real $variant ($($a)*))
    };
    (@body sync $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => {
        governed::sync::copy(stringify!($symbol), exports!(@ptsz $variant), || {
            // The other waits are inside the driver and order nothing.
            if const { is_copy(stringify!($symbol)) } {
                preempt::submit_by_caller(
                    (None, exports!(@ptsz $variant)),
                    || exports!(@work $symbol $($a)*),
                    || unsafe { $real($($a),*) },
                    |_| unsafe { $real($($a),*) },
                )
            } else if const { loads(stringify!($symbol)) } {
                preempt::make_loading_call(|| unsafe { $real($($a),*) })
            } else {
                preempt::give_gpu_back_for(|| unsafe { $real($($a),*) })
            }
        })
    };
    (@unloaded $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => {
        governed::sync::copy(stringify!($symbol), exports!(@ptsz $variant), || preempt::unload(|| unsafe { $real($($a),*) }))
    };
    (@settled $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => {
        governed::sync::copy(stringify!($symbol), exports!(@ptsz $variant), || preempt::flush_context_before(|| unsafe { $real($($a),*) }))
    };
    (@body copy $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => {{
        let stream = (exports!(@stream $($a)*).unwrap_or(std::ptr::null_mut()), exports!(@ptsz $variant));
        governed::copy::call(stream, || governed::copy::is_input::$symbol($($a),*), || {
            preempt::submit(
                stream,
                || exports!(@work $symbol $($a)*),
                || unsafe { $real($($a),*) },
                |on| unsafe { $real($(Argument($a).on(on)),*) },
                || preempt::copies::later::$symbol($real, $($a),*),
            )
        })
    }};
    (@body order $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => {
        exports!(@command $variant ($($a)*) preempt::submit_by_value(
            (exports!(@stream $($a)*), exports!(@ptsz $variant)),
            || exports!(@work $symbol $($a)*),
            || unsafe { $real($($a),*) },
            |on| unsafe { $real($(Argument($a).on(on)),*) },
            || {
                let kept = SendableArguments::new(($($a,)*));
                Box::new(move |on| {
                    let ($($a,)*) = kept.get();
                    unsafe { $real($(Argument($a).on(on)),*) }
                })
            },
        ))
    };
    (@body turn $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => {
        exports!(@command $variant ($($a)*) preempt::submit_by_caller(
            (exports!(@stream $($a)*), exports!(@ptsz $variant)),
            || exports!(@work $symbol $($a)*),
            || unsafe { $real($($a),*) },
            |on| unsafe { $real($(Argument($a).on(on)),*) },
        ))
    };
    // A command of the stream among the arguments, or of the default stream.
    (@command $variant:ident ($($a:ident)*) $call:expr) => {{
        let stream = exports!(@stream $($a)*).unwrap_or(std::ptr::null_mut());
        governed::work::call(stream, exports!(@ptsz $variant), || $call)
    }};
    (@body ask cuStreamQuery $real:ident $variant:ident ($stream:ident)) => {
        exports!(@query $real $variant $stream)
    };
    (@body ask cuStreamQuery_ptsz $real:ident $variant:ident ($stream:ident)) => {
        exports!(@query $real $variant $stream)
    };
    (@query $real:ident $variant:ident $stream:ident) => {
        governed::work::asked(|| preempt::query($stream, exports!(@ptsz $variant), || unsafe { $real($stream) }))
    };
    // Names two streams, and neither can replace the other.
    (@body ask cuStreamCopyAttributes $real:ident $variant:ident ($($a:ident)*)) => { unsafe { $real($($a),*) } };
    (@body ask $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => {
        preempt::query_on_stream(
            (exports!(@stream $($a)*), exports!(@ptsz $variant)),
            || unsafe { $real($($a),*) },
            |on| unsafe { $real($(Argument($a).on(on)),*) },
        )
    };
    (@body graph cuGraphExecDestroy $real:ident $variant:ident ($graph:ident)) => {
        preempt::destroy_graph($graph, || unsafe { $real($graph) })
    };
    (@body graph $symbol:ident $real:ident $variant:ident ($graph:ident $($a:ident)*)) => {
        preempt::update_graph($graph, || unsafe { $real($graph $(, $a)*) })
    };
    (@body capture $symbol:ident $real:ident $variant:ident ($stream:ident $($a:ident)*)) => {
        governed::capture::call(stringify!($symbol), $stream, exports!(@ptsz $variant), || {
            preempt::capture(
                stringify!($symbol),
                ($stream, exports!(@ptsz $variant)),
                || unsafe { $real($stream $(, $a)*) },
                |on| unsafe { $real(on $(, $a)*) },
            )
        })
    };
    (@body stream cuStreamDestroy $real:ident $variant:ident ($stream:ident)) => {
        governed::stream::destroy($stream, || preempt::destroy_stream($stream, || unsafe { $real($stream) }))
    };
    (@body stream cuStreamDestroy_v2 $real:ident $variant:ident ($stream:ident)) => {
        governed::stream::destroy($stream, || preempt::destroy_stream($stream, || unsafe { $real($stream) }))
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
        governed::primary::reset($device, || unsafe { $real($device) })
    };
    (@body context cuDevicePrimaryCtxReset_v2 $real:ident $variant:ident ($device:ident)) => {
        governed::primary::reset($device, || unsafe { $real($device) })
    };
    (@body context cuDevicePrimaryCtxRelease $real:ident $variant:ident ($device:ident)) => {
        governed::primary::release($device, || unsafe { $real($device) })
    };
    (@body context cuDevicePrimaryCtxRelease_v2 $real:ident $variant:ident ($device:ident)) => {
        governed::primary::release($device, || unsafe { $real($device) })
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
        governed::primary::retain($device, || unsafe { $real($context, $device) })
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
    // Creating a stream shows nothing that launches and waits do not show.
    (@body stream $symbol:ident $real:ident $variant:ident ($($a:ident)*)) => { unsafe { $real($($a),*) } };
    (@body event cuEventCreate $real:ident $variant:ident ($event:ident $flags:ident)) => {
        preempt::events::create($event, $flags, || unsafe { $real($event, $flags) })
    };
    (@body event cuIpcOpenEventHandle $real:ident $variant:ident ($event:ident $handle:ident)) => {
        preempt::events::open_ipc($event, || unsafe { $real($event, $handle) })
    };
    // The event is known to be shared since it was made.
    (@body event cuIpcGetEventHandle $real:ident $variant:ident ($($a:ident)*)) => { unsafe { $real($($a),*) } };
    (@body event cuEventRecord $real:ident $variant:ident ($event:ident $stream:ident)) => {
        exports!(@record $real $variant $event $stream 0 ())
    };
    (@body event cuEventRecord_ptsz $real:ident $variant:ident ($event:ident $stream:ident)) => {
        exports!(@record $real $variant $event $stream 0 ())
    };
    (@body event cuEventRecordWithFlags $real:ident $variant:ident ($event:ident $stream:ident $flags:ident)) => {
        exports!(@record $real $variant $event $stream $flags ($flags))
    };
    (@body event cuEventRecordWithFlags_ptsz $real:ident $variant:ident ($event:ident $stream:ident $flags:ident)) => {
        exports!(@record $real $variant $event $stream $flags ($flags))
    };
    (@record $real:ident $variant:ident $event:ident $stream:ident $flags:tt ($($flag:ident)?)) => {
        preempt::events::record(
            $event,
            ($stream, exports!(@ptsz $variant)),
            $flags,
            || unsafe { $real($event, $stream $(, $flag)?) },
            |on| unsafe { $real($event, on $(, $flag)?) },
        )
    };
    (@body event cuCtxRecordEvent $real:ident $variant:ident ($context:ident $event:ident)) => {
        preempt::events::record_context($event, || unsafe { $real($context, $event) })
    };
    (@body event cuGreenCtxRecordEvent $real:ident $variant:ident ($context:ident $event:ident)) => {
        preempt::events::record_context($event, || unsafe { $real($context, $event) })
    };
    (@body event cuStreamWaitEvent $real:ident $variant:ident ($stream:ident $event:ident $flags:ident)) => {
        preempt::events::wait(($stream, exports!(@ptsz $variant)), $event, || unsafe { $real($stream, $event, $flags) })
    };
    (@body event cuStreamWaitEvent_ptsz $real:ident $variant:ident ($stream:ident $event:ident $flags:ident)) => {
        preempt::events::wait(($stream, exports!(@ptsz $variant)), $event, || unsafe { $real($stream, $event, $flags) })
    };
    (@body event cuCtxWaitEvent $real:ident $variant:ident ($($a:ident)*)) => { preempt::flush_context_before(|| unsafe { $real($($a),*) }) };
    (@body event cuGreenCtxWaitEvent $real:ident $variant:ident ($($a:ident)*)) => { preempt::flush_context_before(|| unsafe { $real($($a),*) }) };
    (@body event cuEventQuery $real:ident $variant:ident ($event:ident)) => {
        governed::work::asked(|| preempt::events::query($event, || unsafe { $real($event) }))
    };
    (@body event cuEventElapsedTime $real:ident $variant:ident ($ms:ident $from:ident $to:ident)) => {
        preempt::events::elapsed($ms, ($from, $to), || unsafe { $real($ms, $from, $to) })
    };
    (@body event cuEventElapsedTime_v2 $real:ident $variant:ident ($ms:ident $from:ident $to:ident)) => {
        preempt::events::elapsed($ms, ($from, $to), || unsafe { $real($ms, $from, $to) })
    };
    (@body event $symbol:ident $real:ident $variant:ident ($event:ident)) => {
        preempt::events::destroy($event, || unsafe { $real($event) })
    };
    // Physical memory stays allocated while it is mapped, so mappings count as references.
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

    (@governed ask cuStreamCopyAttributes) => { false };
    (@governed event cuIpcGetEventHandle) => { false };
    (@governed forward cuMemRetainAllocationHandle) => { true };
    (@governed forward cuMemMap) => { true };
    (@governed forward cuMemUnmap) => { true };
    (@governed forward $symbol:ident) => { false };
    (@governed $policy:ident $symbol:ident) => { true };

    // The stream among the arguments.
    (@stream $($a:ident)*) => { None$(.or(Argument($a).stream()))* };
    // The kind of work, by the largest size among the arguments.
    (@work $symbol:ident $($a:ident)*) => {
        if const { moves(stringify!($symbol)) } { Work::transfer(0$(.max(Argument($a).size()))*) } else { Work::Small }
    };

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
