//! The exported driver API: one function for each row of the table.
//!
//! The body of a row is the macro with the name of its policy word, in a file of this folder: it calls [`crate::governed`],
//! [`crate::preempt`] or both, with the real function as a closure. A function that needs more than its policy word tells has an arm of its
//! own there, by the base name, which covers all versions and stream variants. `forward` rows call the real driver directly.

#![allow(non_snake_case, reason = "the names are the driver's")]
#![allow(clippy::too_many_arguments, reason = "the signatures are the driver's")]

#[macro_use]
mod arguments;
#[macro_use]
mod contexts;
#[macro_use]
mod launches;
#[macro_use]
mod memory;
#[macro_use]
mod streams;
#[macro_use]
mod waits;

use std::ffi::c_void;
use std::ptr::null_mut;

use sluice_driver_api::types::*;
use sluice_hook_core::allocations::HandleSpace;
use sluice_preempt::command::{Deferral, Work};

use crate::copy_kernel::PlainCopy;
use crate::governed;
use crate::guard::Uncancelled;
use crate::hold_kernel;
use crate::preempt::{self, Argument, PlainArgument, SendableArguments};
use crate::{process, real, residency};

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

/// Whether a command of a stream may take long, and needs no grant.
const fn may_take_long(name: &str) -> bool {
    begins(name, "cuLaunchHostFunc")
        || begins(name, "cuStreamWaitValue")
        || begins(name, "cuStreamBatchMemOp")
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

/// Whether a function may use memory that can leave the GPU: it waits until the memory is there. Frees wait only if they free such memory.
const fn uses_memory(policy: &str, name: &str) -> bool {
    match policy.as_bytes() {
        b"launch" | b"cooperative" | b"copy" | b"order" | b"turn" | b"resident" => true,
        b"gated_order" | b"gated_turn" | b"gated_copy" | b"gated_sync" => true,
        b"sync" => begins(name, "cuMemcpy"),
        // The memory cannot return while a stream is captured.
        b"capture" => begins(name, "cuStreamBegin"),
        // The driver looks up the addresses of nodes that copy or set memory.
        b"graph" => !begins(name, "cuGraphExecDestroy"),
        b"pool" => begins(name, "cuGraphAddNode"),
        _ => false,
    }
}

macro_rules! forward {
    ($name:tt $c:tt $($a:ident)*) => {
        call!($c)()
    };
}

/// Reads an address, which has to have its memory.
macro_rules! resident {
    ($name:tt $c:tt $($a:ident)*) => {
        call!($c)()
    };
}

macro_rules! lookup {
    ($name:tt $c:tt $symbol:ident $pfn:ident $version:ident $flags:ident $($status:ident)?) => {
        unsafe { governed::lookup::call($symbol, $pfn, ($version, $flags), wrapper, call!($c)) }
    };
}

macro_rules! exports {
    // The macro of the policy word gets the base name, the call and the arguments.
    (@body $policy:ident $name:tt $real:ident $call:ident default $($a:ident)*) => { $policy!($name [$real $call false] $($a)*) };
    (@body $policy:ident $name:tt $real:ident $call:ident ptsz $($a:ident)*) => { $policy!($name [$real $call true] $($a)*) };

    (@governed forward) => { false };
    (@governed $policy:ident) => { true };

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
                let _on_gpu = if const { uses_memory(stringify!($policy), $name) } { residency::enter() } else { None };
                #[allow(unused_variables, reason = "some bodies make the call in other ways only")]
                let call = || unsafe { real($($a),*) };
                exports!(@body $policy $name real call $variant $($a)*)
            }
        )*

        /// All exports, in the order of `sluice_driver_api::ENTRIES`.
        static EXPORTS: &[Export] = &[$(
            Export { address: $symbol as *const c_void, governed: exports!(@governed $policy) },
        )*];
    };
}
sluice_driver_api::driver_api!(exports);
