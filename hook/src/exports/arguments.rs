//! What the macros of the policies read from the arguments of a call. All of them are expanded in `exports`, with its imports.

/// The real function and the arguments of the program, as a closure that makes the call.
macro_rules! call {
    ([$real:ident $call:ident $per_thread:tt]) => {
        $call
    };
}

/// The real function.
macro_rules! real {
    ([$real:ident $call:ident $per_thread:tt]) => {
        $real
    };
}

/// Whether null means the thread's own default stream.
macro_rules! per_thread {
    ([$real:ident $call:ident $per_thread:tt]) => {
        $per_thread
    };
}

/// The real function with the arguments of the program, on the stream that the closure gets.
macro_rules! on_stream {
    ($c:tt $($a:ident)*) => { |on| unsafe { real!($c)($(Argument($a).on(on)),*) } };
}

/// The stream among the arguments.
macro_rules! stream_among {
    ($($a:ident)*) => { None$(.or(Argument($a).stream()))* };
}

/// The stream among the arguments or the default stream, and whether null means the thread's own default stream.
macro_rules! stream_of {
    ($c:tt $($a:ident)*) => { (stream_among!($($a)*).unwrap_or(null_mut()), per_thread!($c)) };
}

/// The kind of work: a function that moves or sets memory, by the largest size among the arguments; or another one.
macro_rules! work {
    ($name:tt $($a:ident)*) => { if const { begins($name, "cuMem") } { transfer!($($a)*) } else { Work::Small } };
}

/// An offset counts as well, and a size of 32 bits does not: only an estimate depends on it.
macro_rules! transfer {
    ($($a:ident)*) => { Work::transfer(0$(.max(Argument($a).size()))*) };
}

/// The call with arguments that are values, to be made later on a stream.
macro_rules! kept {
    ($c:tt $($a:ident)*) => {{
        let kept = SendableArguments::new(($($a,)*));
        Box::new(move |on| {
            let ($($a,)*) = kept.get();
            unsafe { real!($c)($(Argument($a).on(on)),*) }
        })
    }};
}

/// The last argument.
macro_rules! last {
    ($a:ident) => { $a };
    ($a:ident $($more:ident)+) => { last!($($more)+) };
}
