//! The functions of the driver API, one file per chapter.
//!
//! Each chapter re-exports all functions of the previous one and overrides some with its own. [`fallback`] has them
//! all, as not supported; [`checkpoint`], the last, is the whole API.

mod array;
mod checkpoint;
mod context;
mod copy;
mod copy2d;
mod device;
mod fallback;
mod graph;
mod ipc;
mod launch;
mod memop;
mod memory;
mod module;
mod pool;
mod set;
mod stream;
mod vmm;

pub(crate) use checkpoint::*;

/// Defines functions of the API by one expression each.
macro_rules! functions {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident : $kind:ty),* $(,)?) = $result:expr;)*) => { $(
        $(#[$meta])*
        pub(crate) fn $name($($argument: $kind),*) -> Status {
            $result
        }
    )* };
}
use functions;

/// Defines functions and their twins for which the null stream is the thread's. `$null` is the stream that null means.
macro_rules! with_twin {
    ($(
        $(#[$meta:meta])*
        fn $name:ident / $twin:ident ($($argument:ident : $kind:ty),* $(,)?) |$null:ident| = $result:expr;
    )*) => { $(
        $(#[$meta])*
        pub(crate) fn $name($($argument: $kind),*) -> Status {
            let $null = Null::Legacy;
            $result
        }
        $(#[$meta])*
        pub(crate) fn $twin($($argument: $kind),*) -> Status {
            let $null = Null::PerThread;
            $result
        }
    )* };
}
use with_twin;
