//! The exported driver API: one function for each row of the table.
//!
//! `forward` rows call the real driver directly. The other rows call [`crate::governed`], [`crate::preempt`] or both, with the real
//! function as a closure. A function that needs more than its policy word tells has an arm of its own, by the base name, which covers all
//! versions and stream variants.

#![allow(non_snake_case, reason = "the names are the driver's")]
#![allow(clippy::too_many_arguments, reason = "the signatures are the driver's")]

use std::ffi::c_void;
use std::ptr::null_mut;

use sluice_driver_api::types::*;
use sluice_hook_core::allocations::HandleSpace;
use sluice_preempt::command::{Deferral, Work};

use crate::governed;
use crate::guard::Uncancelled;
use crate::hold_kernel;
use crate::preempt::{self, Argument, PlainArgument, SendableArguments};
use crate::real;

/// One exported symbol.
struct Export {
    /// The wrapper.
    address: *const c_void,
    /// Whether it does more than call the real function.
    governed: bool,
}

// SAFETY: the pointer is the address of a function, which no thread can change.
unsafe impl Sync for Export {}

/// The exported function of a row of the table, if it does more than the driver's.
pub(crate) fn wrapper(index: usize) -> Option<*mut c_void> {
    EXPORTS.get(index).filter(|export| export.governed).map(|export| export.address.cast_mut())
}

const fn begins(name: &str, with: &str) -> bool {
    let (name, with) = (name.as_bytes(), with.as_bytes());
    let mut at = 0;
    while at < with.len() {
        if at >= name.len() || name[at] != with[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Whether a function loads code, or may. The driver then waits for all the work that it has of the context. (It was observed not to wait
/// in `cuModuleGetFunction`: a module's functions are in the context with it, and a library's kernels need no context.)
const fn loads(name: &str) -> bool {
    let is_of_code = begins(name, "cuModule")
        || begins(name, "cuLibrary")
        || begins(name, "cuKernel")
        || begins(name, "cuFunc");
    is_of_code && !begins(name, "cuModuleGet") && !begins(name, "cuLibraryGetKernel")
}

/// Whether a thread that is cancelled in a call ends only after it: the hook keeps an account of what the driver does in calls of this
/// policy. Waits for the GPU have the same protection where the wait is counted.
const fn ends_before_cancellation(policy: &str) -> bool {
    matches!(
        policy.as_bytes(),
        b"alloc"
            | b"alloc_async"
            | b"free"
            | b"physical"
            | b"pool"
            | b"trim"
            | b"capture"
            | b"stream"
            | b"context"
            | b"context_limit"
    )
}

macro_rules! exports {
    // The body of each row, from its policy, base name, real function, variant and arguments.
    (@body launch "cuGraphLaunch" $real:ident $variant:ident ($($a:ident)*)) => {{
        let result = exports!(@launch () "cuGraphLaunch" $real $variant ($($a)*));
        governed::pool_charges::note_graph_launch();
        result
    }};
    (@body launch $name:tt $real:ident $variant:ident ($($a:ident)*)) => { exports!(@launch () $name $real $variant ($($a)*)) };
    (@body cooperative $name:tt $real:ident $variant:ident ($($a:ident)*)) => {
        exports!(@launch (
            hold_kernel::before_cooperative(|| None$(.or(Argument($a).is_cooperative()))*.unwrap_or(true));
        ) $name $real $variant ($($a)*))
    };
    (@launch ($($before:tt)*) $name:tt $real:ident $variant:ident ($($a:ident)*)) => {{
        let stream = (exports!(@launch_stream $name $($a)*).unwrap_or(null_mut()), exports!(@ptsz $variant));
        governed::launch::call(stream, || {
            $($before)*
            preempt::submit(
                stream,
                || None$(.or(Argument($a).work()))*.unwrap_or(Work::Small),
                || unsafe { $real($($a),*) },
                |on| exports!(@launch_on $name $real on $($a)*),
                || exports!(@deferred_launch $name $($a)*),
            )
        })
    }};
    // The launches of one call may go to several devices; the gate of the calling thread's device applies.
    (@launch_stream "cuLaunchCooperativeKernelMultiDevice" $list:ident $count:ident $flags:ident) => {
        if $count == 0 { None } else { unsafe { $list.as_ref() }.map(|first| first.hStream) }
    };
    (@launch_stream $name:tt $($a:ident)*) => { exports!(@stream $($a)*) };
    (@launch_on "cuLaunchKernelEx" $real:ident $on:ident $config:ident $($a:ident)*) => {
        preempt::launches::with_config_on($on, $config, |config| unsafe { $real(config $(, $a)*) })
    };
    (@launch_on $name:tt $real:ident $on:ident $($a:ident)*) => { unsafe { $real($(Argument($a).on($on)),*) } };
    (@deferred_launch "cuLaunchKernel" $($a:ident)*) => { preempt::launches::with_grid($($a),*, false) };
    (@deferred_launch "cuLaunchCooperativeKernel" $($a:ident)*) => { preempt::launches::with_grid($($a),*, null_mut(), true) };
    (@deferred_launch "cuLaunchKernelEx" $($a:ident)*) => { preempt::launches::with_config($($a),*) };
    (@deferred_launch "cuGraphLaunch" $graph:ident $stream:ident) => { Ok(preempt::launches::of_graph($graph)) };
    (@deferred_launch $name:tt $($a:ident)*) => { Ok(Deferral::ByCaller) };

    (@body sync "cuCtxSynchronize" $real:ident $variant:ident ()) => {
        governed::sync::context(None, || preempt::synchronize_context(None, || unsafe { $real() }))
    };
    (@body sync "cuCtxSynchronize" $real:ident $variant:ident ($context:ident)) => {
        governed::sync::context(Some($context), || preempt::synchronize_context(Some($context), || unsafe { $real($context) }))
    };
    (@body sync "cuEventSynchronize" $real:ident $variant:ident ($event:ident)) => {
        governed::sync::event(|| {
            preempt::through_engine(|| unsafe { $real($event) }, |engine| engine.synchronize_event(preempt::events::number($event)))
        })
    };
    (@body sync "cuStreamSynchronize" $real:ident $variant:ident ($stream:ident)) => {{
        let stream = ($stream, exports!(@ptsz $variant));
        governed::sync::stream(stream, || {
            preempt::on_queue(stream, || unsafe { $real($stream) }, |engine, queue| engine.synchronize_stream(queue))
        })
    }};
    // Waiting commands may use what is unloaded or unregistered.
    (@body sync "cuModuleUnload" $real:ident $variant:ident ($module:ident)) => {
        governed::sync::copy("cuModuleUnload", false, || preempt::unload(|| unsafe { $real($module) }))
    };
    (@body sync "cuLibraryUnload" $real:ident $variant:ident ($library:ident)) => {
        governed::sync::copy("cuLibraryUnload", false, || preempt::unload(|| unsafe { $real($library) }))
    };
    (@body sync "cuMemHostUnregister" $real:ident $variant:ident ($host:ident)) => {
        governed::sync::copy("cuMemHostUnregister", false, || preempt::flush_context_before(|| unsafe { $real($host) }))
    };
    (@body sync "cuMemFreeHost" $real:ident $variant:ident ($host:ident)) => {
        governed::sync::copy("cuMemFreeHost", false, || preempt::flush_context_before(|| unsafe { $real($host) }))
    };
    (@body sync $name:tt $real:ident $variant:ident ($($a:ident)*)) => {
        governed::sync::copy($name, exports!(@ptsz $variant), || {
            // The other waits are inside the driver and order nothing.
            if const { begins($name, "cuMemcpy") } {
                preempt::submit_by_caller(
                    (None, exports!(@ptsz $variant)),
                    || exports!(@work $name $($a)*),
                    || unsafe { $real($($a),*) },
                    |_| unsafe { $real($($a),*) },
                )
            } else if const { loads($name) } {
                preempt::make_loading_call(|| unsafe { $real($($a),*) })
            } else {
                preempt::give_gpu_back_for(|| unsafe { $real($($a),*) })
            }
        })
    };

    (@body context_limit $name:tt $real:ident $variant:ident ($limit:ident $value:ident)) => {
        governed::context_limit::set($limit, $value, || unsafe { $real($limit, $value) })
    };

    (@body copy $name:tt $real:ident $variant:ident ($($a:ident)*)) => {{
        let stream = (exports!(@stream $($a)*).unwrap_or(null_mut()), exports!(@ptsz $variant));
        governed::copy::call(stream, || exports!(@is_input $name $($a)*), || {
            preempt::submit(
                stream,
                || exports!(@work $name $($a)*),
                || unsafe { $real($($a),*) },
                |on| unsafe { $real($(Argument($a).on(on)),*) },
                || exports!(@deferred_copy $name $real $($a)*),
            )
        })
    }};
    // Whether a copy goes from the host to the GPU. Evaluated only if that would begin a request.
    (@is_input "cuMemcpyHtoDAsync" $($a:ident)*) => { true };
    (@is_input "cuMemcpyHtoAAsync" $($a:ident)*) => { true };
    (@is_input "cuMemcpyAsync" $to:ident $from:ident $($a:ident)*) => { governed::copy::is_input($to, $from) };
    (@is_input "cuMemcpyWithAttributesAsync" $to:ident $from:ident $($a:ident)*) => { governed::copy::is_input($to, $from) };
    (@is_input "cuMemcpyBatchAsync" $to:ident $from:ident $sizes:ident $count:ident $($a:ident)*) => {
        $count > 0 && !$to.is_null() && !$from.is_null() && unsafe { governed::copy::is_input(*$to, *$from) }
    };
    (@is_input "cuMemcpy2DAsync" $copy:ident $stream:ident) => { Argument($copy).is_input() };
    (@is_input "cuMemcpy3DAsync" $copy:ident $stream:ident) => { Argument($copy).is_input() };
    (@is_input $name:tt $($a:ident)*) => { false };
    (@deferred_copy "cuMemcpyHtoDAsync" $real:ident $to:ident $from:ident $bytes:ident $stream:ident) => {
        Ok(preempt::copies::from_host($from, $bytes as usize, move |from, on| unsafe { $real($to, from, $bytes, on) }))
    };
    (@deferred_copy "cuMemcpyAsync" $real:ident $to:ident $from:ident $bytes:ident $stream:ident) => {
        Ok(preempt::copies::unified($to, $from, $bytes, move |from, on| unsafe { $real($to, from, $bytes, on) }))
    };
    (@deferred_copy "cuMemcpy2DAsync" $real:ident $copy:ident $stream:ident) => { Argument($copy).deferred_copy($real) };
    (@deferred_copy "cuMemcpy3DAsync" $real:ident $copy:ident $stream:ident) => { Argument($copy).deferred_copy($real) };
    (@deferred_copy "cuMemcpyDtoHAsync" $($row:ident)*) => { exports!(@copy_by_value $($row)*) };
    (@deferred_copy "cuMemcpyDtoDAsync" $($row:ident)*) => { exports!(@copy_by_value $($row)*) };
    (@deferred_copy "cuMemcpyAtoHAsync" $($row:ident)*) => { exports!(@copy_by_value $($row)*) };
    (@deferred_copy "cuMemcpyHtoAAsync" $($row:ident)*) => { exports!(@copy_by_value $($row)*) };
    (@deferred_copy "cuMemcpyPeerAsync" $($row:ident)*) => { exports!(@copy_by_value $($row)*) };
    (@deferred_copy $name:tt $real:ident $($a:ident)*) => { Ok(Deferral::ByCaller) };
    (@copy_by_value $real:ident $($a:ident)*) => {
        Ok(preempt::copies::by_value(&[$(Argument($a).host_address()),*], exports!(@transfer $($a)*), exports!(@kept $real $($a)*)))
    };

    (@body order $name:tt $real:ident $variant:ident ($($a:ident)*)) => {
        exports!(@command $variant ($($a)*) exports!(@submit_by_value exports!(@work $name $($a)*), $real $variant ($($a)*)))
    };
    (@body turn $name:tt $real:ident $variant:ident ($($a:ident)*)) => {
        exports!(@command $variant ($($a)*) preempt::submit_by_caller(
            (exports!(@stream $($a)*), exports!(@ptsz $variant)),
            || exports!(@work $name $($a)*),
            || unsafe { $real($($a),*) },
            |on| unsafe { $real($(Argument($a).on(on)),*) },
        ))
    };
    // Commands that run on the multiprocessors.
    (@body gated_order $($row:tt)*) => { exports!(@gated order $($row)*) };
    (@body gated_turn $($row:tt)*) => { exports!(@gated turn $($row)*) };
    (@body gated_copy $($row:tt)*) => { exports!(@gated copy $($row)*) };
    (@body gated_sync $($row:tt)*) => { exports!(@gated sync $($row)*) };
    (@gated $policy:ident $name:tt $real:ident $variant:ident ($($a:ident)*)) => {{
        let stream = (exports!(@stream $($a)*).unwrap_or(null_mut()), exports!(@ptsz $variant));
        governed::launch::command(stream, || exports!(@body $policy $name $real $variant ($($a)*)))
    }};
    // A command of the stream among the arguments, or of the default stream.
    (@command $variant:ident ($($a:ident)*) $call:expr) => {
        governed::stream::command((exports!(@stream $($a)*).unwrap_or(null_mut()), exports!(@ptsz $variant)), || $call)
    };
    (@submit_by_value $work:expr, $real:ident $variant:ident ($($a:ident)*)) => {
        preempt::submit_by_value(
            (exports!(@stream $($a)*), exports!(@ptsz $variant)),
            || $work,
            || unsafe { $real($($a),*) },
            |on| unsafe { $real($(Argument($a).on(on)),*) },
            || None$(.or(Argument($a).graph()))*,
            || exports!(@kept $real $($a)*),
        )
    };
    // The call with arguments that are values, to be made later on a stream.
    (@kept $real:ident $($a:ident)*) => {{
        let kept = SendableArguments::new(($($a,)*));
        Box::new(move |on| {
            let ($($a,)*) = kept.get();
            unsafe { $real($(Argument($a).on(on)),*) }
        })
    }};

    (@body ask "cuStreamQuery" $real:ident $variant:ident ($stream:ident)) => {
        governed::stream::asked(|| {
            let stream = ($stream, exports!(@ptsz $variant));
            preempt::on_queue(stream, || unsafe { $real($stream) }, |engine, queue| engine.query_stream(queue))
        })
    };
    (@body ask $name:tt $real:ident $variant:ident ($($a:ident)*)) => {
        preempt::query_on_stream(
            (exports!(@stream $($a)*).unwrap_or(null_mut()), exports!(@ptsz $variant)),
            |on| unsafe { $real($(Argument($a).on(on)),*) },
        )
    };

    (@body graph "cuGraphExecDestroy" $real:ident $variant:ident ($graph:ident)) => {
        hold_kernel::may_wait(|| preempt::destroy_graph($graph, || unsafe { $real($graph) }))
    };
    (@body graph $name:tt $real:ident $variant:ident ($graph:ident $($a:ident)*)) => {
        preempt::update_graph($graph, || unsafe { $real($graph $(, $a)*) })
    };

    (@body capture $name:tt $real:ident $variant:ident ($stream:ident $($a:ident)*)) => {{
        let (begins, stream) = (const { begins($name, "cuStreamBegin") }, ($stream, exports!(@ptsz $variant)));
        governed::stream::capture(begins, stream, || {
            preempt::capture(begins, stream, || unsafe { $real($stream $(, $a)*) }, |on| unsafe { $real(on $(, $a)*) })
        })
    }};

    (@body stream "cuStreamDestroy" $real:ident $variant:ident ($stream:ident)) => {
        governed::stream::destroy($stream, || preempt::destroy_stream($stream, || unsafe { $real($stream) }))
    };
    // Launches and waits name their stream, so its creation is not recorded.
    (@body stream $name:tt $real:ident $variant:ident ($($a:ident)*)) => { unsafe { $real($($a),*) } };

    (@body context "cuCtxDestroy" $real:ident $variant:ident ($context:ident)) => {
        governed::context::destroy($context, || unsafe { $real($context) })
    };
    (@body context "cuCtxDetach" $real:ident $variant:ident ($context:ident)) => {
        governed::context::detach($context, || unsafe { $real($context) })
    };
    (@body context "cuCtxAttach" $real:ident $variant:ident ($context:ident $flags:ident)) => {
        unsafe { governed::context::attach($context, || $real($context, $flags)) }
    };
    (@body context "cuGreenCtxDestroy" $real:ident $variant:ident ($green:ident)) => {
        governed::context::destroy_green($green, || unsafe { $real($green) })
    };
    (@body context "cuDevicePrimaryCtxReset" $real:ident $variant:ident ($device:ident)) => {
        governed::primary::reset($device, || unsafe { $real($device) })
    };
    (@body context "cuDevicePrimaryCtxRelease" $real:ident $variant:ident ($device:ident)) => {
        governed::primary::release($device, || unsafe { $real($device) })
    };
    (@body context "cuDevicePrimaryCtxRetain" $real:ident $variant:ident ($context:ident $device:ident)) => {
        governed::primary::retain($device, || unsafe { $real($context, $device) })
    };
    (@body context "cuCtxCreate" $real:ident $variant:ident ($($a:ident)*)) => {
        governed::context::create(exports!(@last $($a)*), || unsafe { $real($($a),*) })
    };
    (@body context "cuGLCtxCreate" $real:ident $variant:ident ($($a:ident)*)) => {
        governed::context::create(exports!(@last $($a)*), || unsafe { $real($($a),*) })
    };
    (@body context "cuGreenCtxCreate" $real:ident $variant:ident ($green:ident $description:ident $device:ident $flags:ident)) => {
        governed::context::create($device, || unsafe { $real($green, $description, $device, $flags) })
    };
    (@body context $name:tt $real:ident $variant:ident ($($a:ident)*)) => {
        governed::context::changes_current(|| unsafe { $real($($a),*) })
    };
    (@last $a:ident) => { $a };
    (@last $a:ident $($more:ident)+) => { exports!(@last $($more)+) };

    (@body event "cuEventCreate" $real:ident $variant:ident ($event:ident $flags:ident)) => {
        preempt::events::create($event, $flags, || unsafe { $real($event, $flags) })
    };
    (@body event "cuIpcOpenEventHandle" $real:ident $variant:ident ($event:ident $handle:ident)) => {
        preempt::events::open_ipc($event, || unsafe { $real($event, $handle) })
    };
    (@body event "cuEventRecord" $real:ident $variant:ident ($event:ident $stream:ident)) => {
        exports!(@record $real $variant $event $stream 0 ())
    };
    (@body event "cuEventRecordWithFlags" $real:ident $variant:ident ($event:ident $stream:ident $flags:ident)) => {
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
    (@body event "cuCtxRecordEvent" $real:ident $variant:ident ($context:ident $event:ident)) => {
        preempt::events::record_context($event, || unsafe { $real($context, $event) })
    };
    (@body event "cuGreenCtxRecordEvent" $real:ident $variant:ident ($context:ident $event:ident)) => {
        preempt::events::record_context($event, || unsafe { $real($context, $event) })
    };
    (@body event "cuStreamWaitEvent" $real:ident $variant:ident ($stream:ident $event:ident $flags:ident)) => {
        preempt::on_queue(($stream, exports!(@ptsz $variant)), || unsafe { $real($stream, $event, $flags) }, |engine, queue| {
            engine.wait(queue, preempt::events::number($event))
        })
    };
    (@body event "cuCtxWaitEvent" $real:ident $variant:ident ($($a:ident)*)) => {
        preempt::flush_context_before(|| unsafe { $real($($a),*) })
    };
    (@body event "cuGreenCtxWaitEvent" $real:ident $variant:ident ($($a:ident)*)) => {
        preempt::flush_context_before(|| unsafe { $real($($a),*) })
    };
    (@body event "cuEventQuery" $real:ident $variant:ident ($event:ident)) => {
        governed::stream::asked(|| {
            preempt::through_engine(|| unsafe { $real($event) }, |engine| engine.query_event(preempt::events::number($event)))
        })
    };
    (@body event "cuEventElapsedTime" $real:ident $variant:ident ($ms:ident $from:ident $to:ident)) => {
        preempt::events::elapsed($ms, ($from, $to), || unsafe { $real($ms, $from, $to) })
    };
    (@body event "cuEventDestroy" $real:ident $variant:ident ($event:ident)) => {
        preempt::events::destroy($event, || unsafe { $real($event) })
    };

    (@body alloc "cuMemAlloc" $real:ident $variant:ident ($pointer:ident $bytes:ident)) => {
        unsafe { governed::alloc::of_context($pointer, $bytes as u64, || $real($pointer, $bytes)) }
    };
    (@body alloc "cuMemAllocManaged" $real:ident $variant:ident ($pointer:ident $bytes:ident $flags:ident)) => {
        unsafe { governed::alloc::of_context($pointer, $bytes as u64, || $real($pointer, $bytes, $flags)) }
    };
    (@body alloc "cuMemAllocPitch" $real:ident $variant:ident ($pointer:ident $pitch:ident $width:ident $rows:ident $element:ident)) => {
        unsafe {
            governed::alloc::pitched(($pointer, $pitch), ($width as u64, $rows as u64), || {
                $real($pointer, $pitch, $width, $rows, $element)
            })
        }
    };
    (@body alloc "cuArrayCreate" $real:ident $variant:ident ($array:ident $shape:ident)) => {
        unsafe { governed::alloc::array($array, $shape, || $real($array, $shape)) }
    };
    (@body alloc "cuArray3DCreate" $real:ident $variant:ident ($array:ident $shape:ident)) => {
        unsafe { governed::alloc::array($array, $shape, || $real($array, $shape)) }
    };
    (@body alloc "cuMipmappedArrayCreate" $real:ident $variant:ident ($array:ident $shape:ident $levels:ident)) => {
        unsafe { governed::alloc::mipmapped_array($array, $shape, $levels, || $real($array, $shape, $levels)) }
    };
    (@body alloc "cuMemCreate" $real:ident $variant:ident ($handle:ident $bytes:ident $properties:ident $flags:ident)) => {
        unsafe { governed::physical::create($handle, $bytes, $properties, || $real($handle, $bytes, $properties, $flags)) }
    };

    (@body alloc_async $name:tt $real:ident $variant:ident ($pointer:ident $bytes:ident $($a:ident)+)) => {{
        let stream = (exports!(@stream $($a)+).unwrap_or(null_mut()), exports!(@ptsz $variant));
        unsafe {
            governed::pool::allocate($pointer, $bytes as u64, stream, None$(.or(Argument($a).pool()))+, || {
                let on = preempt::stands_for(stream.0, stream.1);
                $real($pointer, $bytes $(, Argument($a).on(on))+)
            })
        }
    }};
    (@body pool "cuMemPoolDestroy" $real:ident $variant:ident ($pool:ident)) => {
        governed::pool::destroy($pool, || hold_kernel::may_wait(|| unsafe { $real($pool) }))
    };
    (@body pool "cuGraphAddMemAllocNode" $real:ident $variant:ident ($($a:ident)*)) => { exports!(@add_node $real $($a)*) };
    (@body pool "cuGraphAddNode" $real:ident $variant:ident ($($a:ident)*)) => { exports!(@add_node $real $($a)*) };
    (@add_node $real:ident $($a:ident)*) => {
        governed::pool::add_node(|| unsafe { $real($($a),*) }, || None$(.or(Argument($a).node_location()))*)
    };
    (@body pool $name:tt $real:ident $variant:ident ($pool:ident $place:ident $($a:ident)*)) => {
        unsafe { governed::pool::locate($pool, Argument($place).location(), || $real($pool, $place $(, $a)*)) }
    };
    (@body trim $name:tt $real:ident $variant:ident ($($a:ident)*)) => {
        governed::pool::trim(|| hold_kernel::may_wait(|| unsafe { $real($($a),*) }))
    };

    (@body free "cuMemFree" $real:ident $variant:ident ($pointer:ident)) => {
        governed::charge::free_and_wait(HandleSpace::Pointer, u64::from($pointer), || unsafe { $real($pointer) })
    };
    (@body free "cuArrayDestroy" $real:ident $variant:ident ($array:ident)) => {
        governed::charge::free_and_wait(HandleSpace::Array, $array.addr() as u64, || unsafe { $real($array) })
    };
    (@body free "cuMipmappedArrayDestroy" $real:ident $variant:ident ($array:ident)) => {
        governed::charge::free_and_wait(HandleSpace::Mipmap, $array.addr() as u64, || unsafe { $real($array) })
    };
    // Ordered in a stream.
    (@body free "cuMemFreeAsync" $real:ident $variant:ident ($pointer:ident $stream:ident)) => {
        governed::charge::free_in_stream($pointer, ($stream, exports!(@ptsz $variant)), move |on| unsafe { $real($pointer, on) })
    };
    // Only drops a reference.
    (@body free "cuMemRelease" $real:ident $variant:ident ($handle:ident)) => {
        governed::charge::free(HandleSpace::Physical, $handle, || unsafe { $real($handle) })
    };

    (@body query "cuMemGetInfo" $real:ident $variant:ident ($free:ident $total:ident)) => {
        unsafe { governed::query::memory_info(($free, $total), || $real($free, $total)) }
    };
    (@body query "cuDeviceTotalMem" $real:ident $variant:ident ($bytes:ident $device:ident)) => {
        unsafe { governed::query::device_total($bytes, $device, || $real($bytes, $device)) }
    };
    (@body lookup "cuGetProcAddress" $real:ident $variant:ident ($name:ident $pfn:ident $version:ident $flags:ident $($status:ident)?)) => {
        unsafe { governed::lookup::call($name, $pfn, ($version, $flags), wrapper, || $real($name, $pfn, $version, $flags $(, $status)?)) }
    };

    // Physical memory stays allocated while it is mapped, so mappings count as references.
    (@body physical "cuMemRetainAllocationHandle" $real:ident $variant:ident ($handle:ident $address:ident)) => {
        unsafe { governed::physical::retain($handle, || $real($handle, $address)) }
    };
    (@body physical "cuMemMap" $real:ident $variant:ident ($pointer:ident $bytes:ident $offset:ident $handle:ident $flags:ident)) => {
        governed::physical::map(($pointer, $bytes), $handle, || unsafe { $real($pointer, $bytes, $offset, $handle, $flags) })
    };
    (@body physical "cuMemUnmap" $real:ident $variant:ident ($pointer:ident $bytes:ident)) => {
        governed::physical::unmap(($pointer, $bytes), || unsafe { $real($pointer, $bytes) })
    };
    (@body init $name:tt $real:ident $variant:ident ($flags:ident)) => { crate::process::initialise(|| unsafe { $real($flags) }) };
    (@body forward $name:tt $real:ident $variant:ident ($($a:ident)*)) => { unsafe { $real($($a),*) } };

    (@governed forward) => { false };
    (@governed $policy:ident) => { true };

    // The stream among the arguments.
    (@stream $($a:ident)*) => { None$(.or(Argument($a).stream()))* };
    // The kind of work: a function that moves or sets memory, by the largest size among the arguments; or another one.
    (@work $name:tt $($a:ident)*) => { if const { begins($name, "cuMem") } { exports!(@transfer $($a)*) } else { Work::Small } };
    // An offset counts as well, and a size of 32 bits does not: only an estimate depends on it.
    (@transfer $($a:ident)*) => { Work::transfer(0$(.max(Argument($a).size()))*) };

    (@ptsz default) => { false };
    (@ptsz ptsz) => { true };

    ($($policy:ident $symbol:ident ($name:tt, $since:literal, $variant:ident) fn($($a:ident : $kind:ty),*);)*) => {
        $(
            /// The driver's function of this name.
            ///
            /// # Safety
            /// As the driver documents it.
            #[unsafe(no_mangle)]
            #[allow(clippy::undocumented_unsafe_blocks, reason = "SAFETY: the caller's arguments go to the real function of the same name, so its contract is the caller's. Only the stream may be replaced, by one that stands in for it in the same context, and a copy's source by a staged copy of the same bytes. A deferred call is made before the command counts as done, and until then the program keeps its arguments valid. Memory behind them is read only where the driver's contract makes it readable, after a check for null; results are read after success")]
            pub(crate) unsafe extern "C" fn $symbol($($a: $kind),*) -> CUresult {
                let Some(real) = real::table().$symbol else { return real::missing() };
                let _uncancelled = const { ends_before_cancellation(stringify!($policy)) }.then(Uncancelled::begin);
                exports!(@body $policy $name real $variant ($($a)*))
            }
        )*

        /// All exports, in the order of `sluice_driver_api::ENTRIES`.
        static EXPORTS: &[Export] = &[$(
            Export { address: $symbol as *const c_void, governed: exports!(@governed $policy) },
        )*];
    };
}
sluice_driver_api::driver_api!(exports);
