//! The arguments of any driver function: one may be a stream, and all of them may be kept for a deferred call.

use std::ffi::c_void;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::{
    CU_GRAPH_NODE_TYPE_MEM_ALLOC, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUfunction,
    CUgraphExec, CUgraphNodeParams, CUlaunchConfig, CUmemLocation, CUmemPoolProps, CUmemoryPool, CUstream,
};
use sluice_preempt::command::{Deferral, Work};
use sluice_preempt::ids::Code;

use super::copies::{self, Ends};
use super::launches;
use crate::gpu::is_host_end;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Argument<T>(pub(crate) T);

impl Argument<CUstream> {
    /// The stream, if the argument is one.
    #[inline]
    pub(crate) fn stream(&self) -> Option<CUstream> {
        Some(self.0)
    }

    /// The argument for a call on `stream`.
    #[inline]
    pub(crate) fn on(self, stream: CUstream) -> CUstream {
        stream
    }
}

impl Argument<*const CUlaunchConfig> {
    /// The stream, if the argument is one.
    #[inline]
    pub(crate) fn stream(&self) -> Option<CUstream> {
        // SAFETY: the program passes null, which the driver refuses, or a readable configuration.
        unsafe { self.0.as_ref() }.map(|config| config.hStream)
    }

    /// Whether a launch with this argument is cooperative, if the argument decides that.
    pub(crate) fn is_cooperative(&self) -> Option<bool> {
        // SAFETY: as above.
        Some(unsafe { launches::is_cooperative(self.0) })
    }
}

impl Argument<CUfunction> {
    /// The kind of work, if the argument names one.
    #[inline]
    pub(crate) fn work(&self) -> Option<Work> {
        Some(Work::Kernel(self.0.expose_provenance() as u64))
    }
}

impl Argument<CUgraphExec> {
    /// The kind of work, if the argument names one.
    #[inline]
    pub(crate) fn work(&self) -> Option<Work> {
        Some(Work::Graph(self.0.expose_provenance() as u64))
    }

    /// The executable graph, if the argument is one.
    #[inline]
    pub(crate) fn graph(&self) -> Option<CUgraphExec> {
        Some(self.0)
    }
}

impl Argument<CUmemoryPool> {
    /// The pool, if the argument is one.
    pub(crate) fn pool(&self) -> Option<CUmemoryPool> {
        Some(self.0)
    }
}

impl Argument<*const CUmemPoolProps> {
    /// Where the pool is to have its memory.
    pub(crate) fn location(&self) -> *const CUmemLocation {
        // SAFETY: the program passes null, which the driver refuses, or readable properties.
        unsafe { self.0.as_ref() }.map_or(std::ptr::null(), |properties| &raw const properties.location)
    }
}

impl Argument<*mut CUDA_MEM_ALLOC_NODE_PARAMS> {
    /// Where the node has its memory.
    pub(crate) fn node_location(&self) -> Option<CUmemLocation> {
        // SAFETY: the program passes null, which the driver refuses, or a readable description.
        unsafe { self.0.as_ref() }.map(|node| node.poolProps.location)
    }
}

impl Argument<*mut CUgraphNodeParams> {
    /// Where the node has its memory, if it allocates any.
    pub(crate) fn node_location(&self) -> Option<CUmemLocation> {
        // SAFETY: the program passes null, which the driver refuses, or a readable description, whose kind shows what the union is.
        let node = unsafe { self.0.as_ref() }.filter(|node| node.kind == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
        node.map(|node| node.alloc.poolProps.location)
    }
}

impl Argument<*mut CUmemLocation> {
    /// Where the pool has its memory.
    pub(crate) fn location(&self) -> *const CUmemLocation {
        self.0
    }
}

impl Argument<usize> {
    /// An amount from which an estimate is learned.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.0 as u64
    }
}

impl Argument<*const c_void> {
    /// An address in host memory.
    pub(crate) fn host_address(&self) -> Option<u64> {
        Some(copies::address(self.0))
    }
}

impl Argument<*mut c_void> {
    /// An address in host memory.
    pub(crate) fn host_address(&self) -> Option<u64> {
        Some(copies::address(self.0))
    }
}

/// Descriptions of copies, with the number of bytes that they move.
macro_rules! described {
    ($($kind:ident $copy:ident $bytes:expr;)*) => { $(
        impl Argument<*const $kind> {
            fn described(&self) -> Option<&$kind> {
                // SAFETY: the program passes null, which the driver refuses, or a readable description.
                unsafe { self.0.as_ref() }
            }

            /// Bytes that the copy moves.
            pub(crate) fn size(&self) -> u64 {
                self.described().map_or(0, |$copy| $bytes as u64)
            }

            /// Whether the copy goes from the host to the GPU.
            pub(crate) fn is_input(&self) -> bool {
                self.described().is_some_and(|copy| {
                    is_host_end(copy.srcMemoryType, copy.srcDevice)
                        && !is_host_end(copy.dstMemoryType, copy.dstDevice)
                })
            }

            /// The copy as a deferred command.
            pub(crate) fn deferred_copy(
                &self,
                real: unsafe extern "C" fn(*const $kind, CUstream) -> CUresult,
            ) -> Result<Deferral, Code> {
                let Some(copy) = self.described() else { return Err(Code::INVALID_VALUE) };
                let ends: Ends = [
                    (copy.srcMemoryType, copy.srcHost, copy.srcDevice),
                    (copy.dstMemoryType, copy.dstHost, copy.dstDevice),
                ];
                // SAFETY: a description is plain numbers and addresses.
                let kept = SendableArguments::new(unsafe { std::ptr::from_ref(copy).read() });
                // SAFETY: the program keeps the addresses valid until the copy is done; the description lives until the call returns.
                let make = move |stream| unsafe { real(&raw const *kept.get_ref(), stream) };
                Ok(copies::described(ends, self.size(), size_of::<$kind>(), Box::new(make)))
            }
        }
    )* };
}

described! {
    CUDA_MEMCPY2D copy copy.WidthInBytes.saturating_mul(copy.Height);
    CUDA_MEMCPY3D copy copy.WidthInBytes.saturating_mul(copy.Height).saturating_mul(copy.Depth);
}

/// The answers of an argument of any other type. Inherent functions of the specific types take precedence.
pub(crate) trait PlainArgument {
    type Kind;

    /// The argument for a call on `stream`.
    fn on(self, stream: CUstream) -> Self::Kind;

    /// The stream, if the argument is one.
    #[inline]
    fn stream(&self) -> Option<CUstream> {
        None
    }

    /// Its size, if it is one.
    #[inline]
    fn size(&self) -> u64 {
        0
    }

    /// The kind of work, if it names one.
    #[inline]
    fn work(&self) -> Option<Work> {
        None
    }

    /// The pool, if it is one.
    fn pool(&self) -> Option<CUmemoryPool> {
        None
    }

    /// Where a graph node has its memory, if it is the description of one that allocates any.
    fn node_location(&self) -> Option<CUmemLocation> {
        None
    }

    /// The executable graph, if it is one.
    #[inline]
    fn graph(&self) -> Option<CUgraphExec> {
        None
    }

    /// Whether a launch with this argument is cooperative, if the argument decides that.
    #[inline]
    fn is_cooperative(&self) -> Option<bool> {
        None
    }

    /// An address in host memory, if it is one.
    #[inline]
    fn host_address(&self) -> Option<u64> {
        None
    }

    /// Whether the copy that it describes goes from the host to the GPU.
    fn is_input(&self) -> bool {
        false
    }

    /// The copy that it describes, as a deferred command.
    fn deferred_copy<F>(&self, _real: F) -> Result<Deferral, Code> {
        Ok(Deferral::ByCaller)
    }
}

impl<T> PlainArgument for Argument<T> {
    type Kind = T;

    #[inline]
    fn on(self, _: CUstream) -> T {
        self.0
    }
}

/// Arguments that another thread will pass to the driver.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendableArguments<T>(T);

// SAFETY: handles and addresses are numbers to this library; only the driver, which takes them from any thread, follows them.
unsafe impl<T> Send for SendableArguments<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for SendableArguments<T> {}

impl<T: Copy> SendableArguments<T> {
    /// Keeps arguments that are values.
    pub(crate) fn new(arguments: T) -> Self {
        Self(arguments)
    }

    pub(crate) fn get(&self) -> T {
        self.0
    }

    pub(crate) fn get_ref(&self) -> &T {
        &self.0
    }
}
