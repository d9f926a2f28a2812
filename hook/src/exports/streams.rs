//! Commands and queries of streams, captures, graphs, and the end of streams.

macro_rules! copy {
    ($name:tt $c:tt $($a:ident)*) => {{
        let stream = stream_of!($c $($a)*);
        governed::copy::call(stream, || is_input!($name $($a)*), takes_long!($name $($a)*), || plain_copy!($name $($a)*), || {
            preempt::submit(
                stream,
                || work!($name $($a)*),
                call!($c),
                on_stream!($c $($a)*),
                || deferred_copy!($name $c $($a)*),
            )
        })
    }};
}

/// A copy between two addresses, which a kernel can make.
macro_rules! plain_copy {
    ("cuMemcpyHtoDAsync" $to:ident $from:ident $bytes:ident $stream:ident) => {
        plain_copy!(@of u64::from($to), preempt::copies::address($from), $bytes)
    };
    ("cuMemcpyDtoHAsync" $to:ident $from:ident $bytes:ident $stream:ident) => {
        plain_copy!(@of preempt::copies::address($to), u64::from($from), $bytes)
    };
    ("cuMemcpyAsync" $to:ident $from:ident $bytes:ident $stream:ident) => {
        plain_copy!(@of $to, $from, $bytes)
    };
    (@of $to:expr, $from:expr, $bytes:ident) => {
        Some(PlainCopy { to: $to, from: $from, bytes: $bytes as usize })
    };
    ($name:tt $($a:ident)*) => {
        None
    };
}

/// Whether a copy goes from the host to the GPU. Evaluated only if that would begin a request.
macro_rules! is_input {
    ("cuMemcpyHtoDAsync" $($a:ident)*) => {
        true
    };
    ("cuMemcpyHtoAAsync" $($a:ident)*) => {
        true
    };
    ("cuMemcpyAsync" $to:ident $from:ident $($a:ident)*) => {
        governed::copy::is_input($to, $from)
    };
    ("cuMemcpyWithAttributesAsync" $to:ident $from:ident $($a:ident)*) => {
        governed::copy::is_input($to, $from)
    };
    ("cuMemcpyBatchAsync" $to:ident $from:ident $sizes:ident $count:ident $($a:ident)*) => {
        $count > 0 && !$to.is_null() && !$from.is_null() && unsafe { governed::copy::is_input(*$to, *$from) }
    };
    ("cuMemcpy2DAsync" $copy:ident $stream:ident) => {
        Argument($copy).is_input()
    };
    ("cuMemcpy3DAsync" $copy:ident $stream:ident) => {
        Argument($copy).is_input()
    };
    ($name:tt $($a:ident)*) => {
        false
    };
}

/// Whether a copy may take so long that the GPU is worth leaving to others meanwhile. Those without a number of bytes among the arguments may.
macro_rules! takes_long {
    ("cuMemcpyHtoDAsync" $to:ident $from:ident $bytes:ident $stream:ident) => {
        governed::copy::takes_long($bytes as usize)
    };
    ("cuMemcpyDtoHAsync" $to:ident $from:ident $bytes:ident $stream:ident) => {
        governed::copy::takes_long($bytes as usize)
    };
    ("cuMemcpyDtoDAsync" $to:ident $from:ident $bytes:ident $stream:ident) => {
        governed::copy::takes_long($bytes as usize)
    };
    ("cuMemcpyAsync" $to:ident $from:ident $bytes:ident $stream:ident) => {
        governed::copy::takes_long($bytes as usize)
    };
    ($name:tt $($a:ident)*) => {
        true
    };
}

macro_rules! deferred_copy {
    ("cuMemcpyHtoDAsync" $c:tt $to:ident $from:ident $bytes:ident $stream:ident) => {
        Ok(preempt::copies::from_host($from, $bytes as usize, move |from, on| unsafe { real!($c)($to, from, $bytes, on) }))
    };
    ("cuMemcpyAsync" $c:tt $to:ident $from:ident $bytes:ident $stream:ident) => {
        Ok(preempt::copies::unified($to, $from, $bytes, move |from, on| unsafe { real!($c)($to, from, $bytes, on) }))
    };
    ("cuMemcpy2DAsync" $c:tt $copy:ident $stream:ident) => { Argument($copy).deferred_copy(real!($c)) };
    ("cuMemcpy3DAsync" $c:tt $copy:ident $stream:ident) => { Argument($copy).deferred_copy(real!($c)) };
    ("cuMemcpyDtoHAsync" $($row:tt)*) => { deferred_copy!(@by_value $($row)*) };
    ("cuMemcpyDtoDAsync" $($row:tt)*) => { deferred_copy!(@by_value $($row)*) };
    ("cuMemcpyAtoHAsync" $($row:tt)*) => { deferred_copy!(@by_value $($row)*) };
    ("cuMemcpyHtoAAsync" $($row:tt)*) => { deferred_copy!(@by_value $($row)*) };
    ("cuMemcpyPeerAsync" $($row:tt)*) => { deferred_copy!(@by_value $($row)*) };
    (@by_value $c:tt $($a:ident)*) => {
        Ok(preempt::copies::by_value(&[$(Argument($a).host_address()),*], transfer!($($a)*), kept!($c $($a)*)))
    };
    ($name:tt $c:tt $($a:ident)*) => { Ok(Deferral::ByCaller) };
}

/// A command of the stream among the arguments, or of the default stream, that can be made later.
macro_rules! order {
    ($name:tt $c:tt $($a:ident)*) => {{
        governed::stream::command(stream_of!($c $($a)*), const { may_take_long($name) }, || preempt::submit_by_value(
            (stream_among!($($a)*), per_thread!($c)),
            || work!($name $($a)*),
            call!($c),
            on_stream!($c $($a)*),
            || None$(.or(Argument($a).graph()))*,
            || kept!($c $($a)*),
        ))
    }};
}

/// A command that only the calling thread can make.
macro_rules! turn {
    ($name:tt $c:tt $($a:ident)*) => {{
        governed::stream::command(stream_of!($c $($a)*), const { may_take_long($name) }, || preempt::submit_by_caller(
            (stream_among!($($a)*), per_thread!($c)),
            || work!($name $($a)*),
            call!($c),
            on_stream!($c $($a)*),
        ))
    }};
}

macro_rules! ask {
    ("cuStreamQuery" $c:tt $stream:ident) => {
        governed::stream::asked(|| {
            preempt::on_queue(($stream, per_thread!($c)), call!($c), |engine, queue| engine.query_stream(queue))
        })
    };
    ($name:tt $c:tt $($a:ident)*) => {
        preempt::query_on_stream(stream_of!($c $($a)*), on_stream!($c $($a)*))
    };
}

macro_rules! graph {
    ("cuGraphExecDestroy" $c:tt $graph:ident) => {
        hold_kernel::may_wait(|| preempt::destroy_graph($graph, call!($c)))
    };
    ($name:tt $c:tt $graph:ident $($a:ident)*) => {
        preempt::update_graph($graph, call!($c))
    };
}

macro_rules! capture {
    ($name:tt $c:tt $stream:ident $($a:ident)*) => {{
        let (begins, stream) = (const { begins($name, "cuStreamBegin") }, ($stream, per_thread!($c)));
        governed::stream::capture(begins, stream, || {
            preempt::capture(begins, stream, call!($c), |on| unsafe { real!($c)(on $(, $a)*) })
        })
    }};
}

macro_rules! stream {
    ("cuStreamDestroy" $c:tt $stream:ident) => {
        governed::stream::destroy($stream, || preempt::destroy_stream($stream, call!($c)))
    };
    // Launches and waits name their stream, so its creation is not recorded.
    ($name:tt $c:tt $($a:ident)*) => {
        call!($c)()
    };
}
