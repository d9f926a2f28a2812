//! The functions of the driver API, one file per chapter.
//!
//! Each chapter re-exports all functions of the previous one and overrides some with its own. [`fallback`] has them
//! all, as not supported; [`lookup`], the last, is the whole API.

mod array;
mod capture;
mod checkpoint;
mod context;
mod copy;
mod copy2d;
mod device;
mod event;
mod fallback;
mod graph;
mod launch;
mod lookup;
mod memop;
mod memory;
mod module;
mod pool;
mod set;
mod stream;
mod vmm;

pub(crate) use lookup::*;

/// Defines a function and its twin for which the null stream is the thread's. `$null` is which one it is.
macro_rules! with_twin {
    ($(
        $(#[$meta:meta])*
        fn $name:ident / $twin:ident ($($argument:ident : $kind:ty),* $(,)?) |$null:ident| $body:block
    )*) => { $(
        $(#[$meta])*
        pub(crate) fn $name($($argument: $kind),*) -> Status {
            let $null = Null::Legacy;
            $body
        }
        $(#[$meta])*
        pub(crate) fn $twin($($argument: $kind),*) -> Status {
            let $null = Null::PerThread;
            $body
        }
    )* };
}
use with_twin;
