//! Calls that wait for the GPU, or may, and calls on events.

macro_rules! sync {
    ("cuCtxSynchronize" $c:tt) => {
        governed::sync::context(None, || preempt::synchronize_context(None, call!($c)))
    };
    ("cuCtxSynchronize" $c:tt $context:ident) => {
        governed::sync::context(Some($context), || preempt::synchronize_context(Some($context), call!($c)))
    };
    ("cuEventSynchronize" $c:tt $event:ident) => {
        governed::sync::event(|| {
            preempt::through_engine(call!($c), |engine| engine.synchronize_event(preempt::events::number($event)))
        })
    };
    ("cuStreamSynchronize" $c:tt $stream:ident) => {
        governed::sync::stream(($stream, per_thread!($c)), || {
            preempt::on_queue(($stream, per_thread!($c)), call!($c), |engine, queue| engine.synchronize_stream(queue))
        })
    };
    // Waiting commands may use what is unloaded or unregistered.
    ("cuModuleUnload" $c:tt $module:ident) => {
        governed::sync::copy("cuModuleUnload", false, || preempt::unload(call!($c)))
    };
    ("cuLibraryUnload" $c:tt $library:ident) => {
        governed::sync::copy("cuLibraryUnload", false, || preempt::unload(call!($c)))
    };
    ("cuMemHostUnregister" $c:tt $host:ident) => {
        governed::sync::copy("cuMemHostUnregister", false, || preempt::flush_context_before(call!($c)))
    };
    ("cuMemFreeHost" $c:tt $host:ident) => {
        governed::sync::copy("cuMemFreeHost", false, || preempt::flush_context_before(call!($c)))
    };
    ($name:tt $c:tt $($a:ident)*) => {
        governed::sync::copy($name, per_thread!($c), || {
            // The other waits are inside the driver and order nothing.
            if const { begins($name, "cuMemcpy") } {
                preempt::submit_by_caller((None, per_thread!($c)), || work!($name $($a)*), call!($c), |_| call!($c)())
            } else if const { loads($name) } {
                preempt::make_loading_call(call!($c))
            } else {
                preempt::give_gpu_back_for(call!($c))
            }
        })
    };
}

macro_rules! event {
    ("cuEventCreate" $c:tt $event:ident $flags:ident) => {
        preempt::events::create($event, $flags, call!($c))
    };
    ("cuIpcOpenEventHandle" $c:tt $event:ident $handle:ident) => {
        preempt::events::open_ipc($event, call!($c))
    };
    ("cuEventRecord" $c:tt $event:ident $stream:ident) => {
        preempt::events::record($event, ($stream, per_thread!($c)), 0, call!($c), |on| unsafe {
            real!($c)($event, on)
        })
    };
    ("cuEventRecordWithFlags" $c:tt $event:ident $stream:ident $flags:ident) => {
        preempt::events::record($event, ($stream, per_thread!($c)), $flags, call!($c), |on| unsafe {
            real!($c)($event, on, $flags)
        })
    };
    ("cuCtxRecordEvent" $c:tt $context:ident $event:ident) => {
        preempt::events::record_context($event, call!($c))
    };
    ("cuGreenCtxRecordEvent" $c:tt $context:ident $event:ident) => {
        preempt::events::record_context($event, call!($c))
    };
    ("cuStreamWaitEvent" $c:tt $stream:ident $event:ident $flags:ident) => {
        preempt::on_queue(($stream, per_thread!($c)), call!($c), |engine, queue| {
            engine.wait(queue, preempt::events::number($event))
        })
    };
    ("cuCtxWaitEvent" $c:tt $($a:ident)*) => {
        preempt::flush_context_before(call!($c))
    };
    ("cuGreenCtxWaitEvent" $c:tt $($a:ident)*) => {
        preempt::flush_context_before(call!($c))
    };
    ("cuEventQuery" $c:tt $event:ident) => {
        governed::stream::asked(|| {
            preempt::through_engine(call!($c), |engine| engine.query_event(preempt::events::number($event)))
        })
    };
    ("cuEventElapsedTime" $c:tt $ms:ident $from:ident $to:ident) => {
        preempt::events::elapsed($ms, ($from, $to), call!($c))
    };
    ("cuEventDestroy" $c:tt $event:ident) => {
        preempt::events::destroy($event, call!($c))
    };
}
