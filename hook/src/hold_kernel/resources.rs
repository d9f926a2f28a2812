//! The resources of hold kernels in one context: a stream of its own, the kernel, and the page; and the copy kernel, which is loaded with it.

use std::ffi::c_void;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::hold_kernel::{HoldLimits, HoldTimes};

use super::copy_kernels::CopyKernel;
use crate::gpu::{self, pointer};
use crate::hold_page::{HoldPage, SECOND};
use crate::real;

/// The code of both kernels, for any GPU since sm_70.
const MODULE: &str = concat!(include_str!("kernel.ptx"), "\0");

/// Resources of one context. They end with the context: none is destroyed separately.
#[derive(Debug)]
pub(super) struct Resources {
    stream: u64,
    kernel: u64,
    copy_kernel: CopyKernel,
    page: HoldPage,
    device_address: CUdeviceptr,
    /// The last launch, until it was found to be over.
    last: Option<LaunchedHold>,
    /// Of the time without work of the program in all launches, the part that was counted.
    counted_ns: u64,
    /// Launches that the host had not released when the next one was made, and that were not counted.
    unreleased: u64,
}

#[derive(Debug, Clone, Copy)]
struct LaunchedHold {
    ticket: u32,
    at_ns: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct FinishedHold {
    /// How long it, and those before it that were not counted, had the GPU without work of the program, in nanoseconds.
    pub(super) held_ns: u64,
    /// The times that it recorded, if it saw a change of the activity.
    pub(super) times: Option<HoldTimes>,
    /// How many of them ended by themselves.
    pub(super) unreleased: u64,
}

impl Resources {
    /// Makes the resources of `context` and runs both kernels once, so that they are loaded before their first use. Takes milliseconds.
    /// `None` if the driver or the context does not support it.
    pub(super) fn make(context: u64) -> Option<Self> {
        gpu::with_context(context, || {
            let table = real::table();
            let (stream_create, stream_wait) = (table.cuStreamCreate?, table.cuStreamSynchronize?);
            let (unregister, _launch) = (table.cuMemHostUnregister?, table.cuLaunchKernel?);
            let [kernel, copy_kernel] = load()?;
            let page = HoldPage::new()?;
            let mut stream = std::ptr::null_mut();
            // SAFETY: the page is the hook's, whole and never unmapped.
            let registered =
                unsafe { gpu::register_page(page.address(), HoldPage::BYTES) } == CUresult::SUCCESS;
            let device_address = if registered { gpu::page_address(page.address()).ok() } else { None };
            let made = device_address.is_some()
                // SAFETY: `stream` is writable; the context is current.
                && unsafe { stream_create(&raw mut stream, CU_STREAM_NON_BLOCKING) } == CUresult::SUCCESS;
            let mut resources = Self {
                stream: stream.expose_provenance() as u64,
                kernel: kernel.expose_provenance() as u64,
                copy_kernel: CopyKernel::of(copy_kernel.expose_provenance() as u64),
                page,
                device_address: device_address.unwrap_or(0),
                last: None,
                counted_ns: 0,
                unreleased: 0,
            };
            // This ticket counts as released before the launch: tickets count from 1.
            let ran = made
                && resources.launch(0, HoldLimits::default(), 0)
                // SAFETY: the kernel and the stream were made above, in the current context; nothing is read or written.
                && unsafe { resources.copy_kernel.launch(stream, 0, 0, 0) }
                // SAFETY: the stream was made above, in the current context.
                && unsafe { stream_wait(stream) } == CUresult::SUCCESS;
            if !ran {
                // SAFETY: the driver refuses a page that is not registered, which has no effect.
                let _unregistered = unsafe { unregister(page.address()) };
                page.recycle();
                return None;
            }
            resources.last = None;
            Some(resources)
        })
        .flatten()
    }

    /// Resources that no driver made.
    #[cfg(test)]
    pub(super) fn without_driver() -> Self {
        Self {
            stream: 0,
            kernel: 0,
            copy_kernel: CopyKernel::of(1),
            page: HoldPage::new().expect("a page"),
            device_address: 0,
            last: None,
            counted_ns: 0,
            unreleased: 0,
        }
    }

    pub(super) fn copy_kernel(&self) -> CopyKernel {
        self.copy_kernel
    }

    pub(super) fn page(&self) -> HoldPage {
        self.page
    }

    /// Launches a hold kernel in the current context: one kernel that polls, and a second one behind it that ends at once. Without pending
    /// work behind the first kernel, the GPU switches the context out while the kernel sleeps.
    pub(super) fn launch(&mut self, ticket: u32, limits: HoldLimits, now_ns: u64) -> bool {
        // A hold kernel that the host gave up may still wait for the GPU. The time of the next one includes its time.
        if self.last.is_some_and(|last| !self.page.is_released(last.ticket)) {
            self.unreleased += 1;
        }
        self.last = Some(LaunchedHold { ticket, at_ns: now_ns });
        let activity = self.page.prepare();
        self.launch_one(0, ticket, activity, limits)
            && self.launch_one(SECOND, ticket, 0, HoldLimits::default())
    }

    /// Takes the last hold kernel if it has ended.
    pub(super) fn take_finished(&mut self) -> Option<FinishedHold> {
        let LaunchedHold { ticket, at_ns } = self.last?;
        let (all_ns, times) = self.page.times(ticket, at_ns)?;
        self.last = None;
        let held_ns = all_ns.saturating_sub(std::mem::replace(&mut self.counted_ns, all_ns));
        let unreleased = std::mem::take(&mut self.unreleased) + u64::from(!self.page.is_released(ticket));
        Some(FinishedHold { held_ns, times, unreleased })
    }

    fn launch_one(&self, offset: u64, ticket: u32, activity: u32, limits: HoldLimits) -> bool {
        let Some(launch) = real::table().cuLaunchKernel else { return false };
        let (mut word, mut value, mut activity) = (self.device_address + offset, ticket, activity);
        let HoldLimits { mut timeout_ns, mut linger_ns, mut still_ns, mut longest_ns } = limits;
        let mut params: [*mut c_void; 7] = [
            (&raw mut word).cast(),
            (&raw mut value).cast(),
            (&raw mut activity).cast(),
            (&raw mut timeout_ns).cast(),
            (&raw mut linger_ns).cast(),
            (&raw mut still_ns).cast(),
            (&raw mut longest_ns).cast(),
        ];
        let (kernel, stream, none) = (pointer(self.kernel), pointer(self.stream), std::ptr::null_mut());
        // SAFETY: kernel and stream are alive with their context, which is current; the seven parameters are what the kernel
        // takes, and are copied before the call returns.
        unsafe { launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params.as_mut_ptr(), none) == CUresult::SUCCESS }
    }
}

/// The hold kernel and the copy kernel.
fn load() -> Option<[CUfunction; 2]> {
    let table = real::table();
    let (load, get) = (table.cuModuleLoadData?, table.cuModuleGetFunction?);
    let (mut module, mut kernels) = (std::ptr::null_mut(), [std::ptr::null_mut(); 2]);
    let [hold, copy] = &mut kernels;
    // SAFETY: the texts end with a NUL; the pointers are writable; the context is current.
    let loaded = unsafe {
        load(&raw mut module, MODULE.as_ptr().cast()) == CUresult::SUCCESS
            && get(hold, module, c"sluice_hold".as_ptr()) == CUresult::SUCCESS
            && get(copy, module, c"sluice_copy".as_ptr()) == CUresult::SUCCESS
    };
    loaded.then_some(kernels)
}
