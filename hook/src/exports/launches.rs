//! Launches, and other commands that pass the launch gate because they run on the multiprocessors.

macro_rules! launch {
    (@gated ($($before:tt)*) $name:tt $c:tt $($a:ident)*) => {{
        let stream = (launch_stream!($name $($a)*).unwrap_or(null_mut()), per_thread!($c));
        governed::launch::call(stream, || {
            $($before)*
            preempt::submit(
                stream,
                || None$(.or(Argument($a).work()))*.unwrap_or(Work::Small),
                call!($c),
                |on| launch_on!($name $c on $($a)*),
                || deferred_launch!($name $($a)*),
            )
        })
    }};
    ("cuGraphLaunch" $c:tt $($a:ident)*) => {{
        let result = launch!(@gated () "cuGraphLaunch" $c $($a)*);
        governed::pool_charges::note_graph_launch();
        result
    }};
    ($name:tt $c:tt $($a:ident)*) => { launch!(@gated () $name $c $($a)*) };
}

macro_rules! cooperative {
    ($name:tt $c:tt $($a:ident)*) => {
        launch!(@gated (
            hold_kernel::before_cooperative(|| None$(.or(Argument($a).is_cooperative()))*.unwrap_or(true));
        ) $name $c $($a)*)
    };
}

/// The launches of one call may go to several devices; the gate of the calling thread's device applies.
macro_rules! launch_stream {
    ("cuLaunchCooperativeKernelMultiDevice" $list:ident $count:ident $flags:ident) => {
        if $count == 0 { None } else { unsafe { $list.as_ref() }.map(|first| first.hStream) }
    };
    ($name:tt $($a:ident)*) => { stream_among!($($a)*) };
}

macro_rules! launch_on {
    ("cuLaunchKernelEx" $c:tt $on:ident $config:ident $($a:ident)*) => {
        preempt::launches::with_config_on($on, $config, |config| unsafe { real!($c)(config $(, $a)*) })
    };
    ($name:tt $c:tt $on:ident $($a:ident)*) => { unsafe { real!($c)($(Argument($a).on($on)),*) } };
}

macro_rules! deferred_launch {
    ("cuLaunchKernel" $($a:ident)*) => { preempt::launches::with_grid($($a),*, false) };
    ("cuLaunchCooperativeKernel" $($a:ident)*) => { preempt::launches::with_grid($($a),*, null_mut(), true) };
    ("cuLaunchKernelEx" $($a:ident)*) => { preempt::launches::with_config($($a),*) };
    ("cuGraphLaunch" $graph:ident $stream:ident) => { Ok(preempt::launches::of_graph($graph)) };
    ($name:tt $($a:ident)*) => { Ok(Deferral::ByCaller) };
}

macro_rules! gated {
    ($policy:ident $name:tt $c:tt $($a:ident)*) => {
        governed::launch::command(stream_of!($c $($a)*), || $policy!($name $c $($a)*))
    };
}
macro_rules! gated_order { ($($row:tt)*) => { gated!(order $($row)*) }; }
macro_rules! gated_turn { ($($row:tt)*) => { gated!(turn $($row)*) }; }
macro_rules! gated_copy { ($($row:tt)*) => { gated!(copy $($row)*) }; }
macro_rules! gated_sync { ($($row:tt)*) => { gated!(sync $($row)*) }; }
