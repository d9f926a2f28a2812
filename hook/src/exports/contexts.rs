//! The driver's initialisation, contexts and their limits.

macro_rules! init {
    ($name:tt $c:tt $flags:ident) => {
        process::initialise(call!($c))
    };
}

macro_rules! context {
    ("cuCtxDestroy" $c:tt $context:ident) => { governed::context::destroy($context, call!($c)) };
    ("cuCtxDetach" $c:tt $context:ident) => { governed::context::detach($context, call!($c)) };
    ("cuCtxAttach" $c:tt $context:ident $flags:ident) => {
        unsafe { governed::context::attach($context, call!($c)) }
    };
    ("cuGreenCtxDestroy" $c:tt $green:ident) => {
        governed::context::destroy_green($green, call!($c))
    };
    ("cuDevicePrimaryCtxReset" $c:tt $device:ident) => {
        governed::primary::reset($device, call!($c))
    };
    ("cuDevicePrimaryCtxRelease" $c:tt $device:ident) => {
        governed::primary::release($device, call!($c))
    };
    ("cuDevicePrimaryCtxRetain" $c:tt $context:ident $device:ident) => {
        unsafe { governed::primary::retain($context, $device, call!($c)) }
    };
    ("cuCtxCreate" $c:tt $($a:ident)*) => { governed::context::create(last!($($a)*), call!($c)) };
    ("cuGLCtxCreate" $c:tt $($a:ident)*) => { governed::context::create(last!($($a)*), call!($c)) };
    ("cuGreenCtxCreate" $c:tt $green:ident $description:ident $device:ident $flags:ident) => {
        governed::context::create_green($device, call!($c))
    };
    ($name:tt $c:tt $($a:ident)*) => { governed::context::changes_current(call!($c)) };
}

macro_rules! context_limit {
    ($name:tt $c:tt $limit:ident $value:ident) => {
        governed::context_limit::set($limit, $value, call!($c))
    };
}
