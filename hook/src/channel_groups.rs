//! The channel groups of this process, derived from its ioctls, and their announcement to managers.

use std::cell::Cell;
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard};

use sluice_comm::attach::ContextHandles;
use sluice_driver_api::types::CUdevice;
use sluice_hook_core::lock;
use sluice_nvrm::abi::{MAX_BLOCK_LEN, Request, XferBlock};
use sluice_nvrm::ioctl_observation::{AnnouncementError, ComputeGroup, ObjectRegistry, Params, observe};
use sluice_nvrm::transport::CONTROL_DEVICE;
use sluice_sys::file_kind::{self, Kind};

use crate::counters::COUNTERS;
use crate::leaked::Leaked;
use crate::log::above_standard;
use crate::{gpu, real, settings};

/// Made when first needed, never freed. The child of a fork does not use its parent's, whose lock may be held forever.
static REGISTRY: Leaked<Mutex<ObjectRegistry>> = Leaked::none();
/// The registry's count of changes, readable without its lock.
static REGISTRY_CHANGES: AtomicU64 = AtomicU64::new(0);
static ANNOUNCEMENT_CHANGES: AtomicU64 = AtomicU64::new(0);
/// Ioctls are no longer observed.
static STOPPED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The device for which this thread is making a context.
    static CREATING: Cell<Option<u32>> = const { Cell::new(None) };
    /// This thread is inside the registry; a signal handler may enter again.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn registry_changes() -> u64 {
    REGISTRY_CHANGES.load(Acquire)
}

pub(crate) fn announcement_changes() -> u64 {
    ANNOUNCEMENT_CHANGES.load(Acquire)
}

/// What an ioctl has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Observed {
    /// Nothing that is announced.
    Nothing,
    /// The groups: this is the number of the change. It is announced when the context in the making is complete.
    Incomplete(u64),
    /// The groups: this is the number of the change, which is to be announced.
    Changed(u64),
}

/// Observes an ioctl that returned 0. `before` is [`registry_changes`] from before the ioctl.
///
/// # Safety
/// `argument` is the block that `request` declares, which the driver has read and written.
pub(crate) unsafe fn observe_ioctl(
    fd: RawFd,
    request: Request,
    argument: *const c_void,
    before: u64,
    simulated: bool,
) -> Observed {
    if STOPPED.load(Acquire) {
        return Observed::Nothing;
    }
    // Other drivers use the same request numbers, and their addresses must not be followed.
    // SAFETY: the driver has just answered on it; statx fails if the program has closed it since.
    if !simulated && !is_control(unsafe { BorrowedFd::borrow_raw(fd) }) {
        return Observed::Nothing;
    }
    // SAFETY: as the caller guarantees.
    let Some((request, block)) = (unsafe { block(request, argument) }) else { return Observed::Nothing };
    let Some(seen) = observe(request, block.bytes()) else { return Observed::Nothing };
    let mut room = [0; Params::MAX_LEN];
    let mut params: &[u8] = &[];
    if let Some(params_at) = seen.params() {
        let into = room.get_mut(..params_at.len).unwrap_or_default();
        // SAFETY: the driver has read parameters of this size at this address and returned success.
        unsafe { copy(params_at.address, into) };
        params = into;
    }
    if INSIDE.replace(true) {
        return Observed::Nothing;
    }
    let changed = {
        let mut registry = registry();
        let changed = registry.record(&seen, params, fd, CREATING.get(), before);
        REGISTRY_CHANGES.store(registry.newest_entry(), Release);
        changed
    };
    INSIDE.set(false);
    match (changed, CREATING.get()) {
        (false, _) => Observed::Nothing,
        (true, Some(_)) => Observed::Incomplete(count_change()),
        (true, None) => Observed::Changed(count_change()),
    }
}

/// Counts a change of the groups; returns its number.
fn count_change() -> u64 {
    ANNOUNCEMENT_CHANGES.fetch_add(1, AcqRel) + 1
}

/// Stops observing after a panic: the registry may be wrong from here on. So nothing is announced any more, and the manager releases what
/// was announced.
pub(crate) fn disable_after_panic() -> Observed {
    COUNTERS.panics.fetch_add(1, Relaxed);
    STOPPED.store(true, Release);
    INSIDE.set(false);
    Observed::Changed(count_change())
}

/// Runs a call that makes a context on `device`. Returns its result, and whether the groups have changed meanwhile.
pub(crate) fn with_context_creation<R>(device: CUdevice, call: impl FnOnce() -> R) -> (R, bool) {
    let outer = CREATING.replace(u32::try_from(device).ok());
    let before = announcement_changes();
    let result = call();
    CREATING.set(outer);
    (result, announcement_changes() != before)
}

/// In the child of a fork: the parent's groups do not belong to it. Only atomics.
pub(crate) fn after_fork() {
    REGISTRY.forget();
    REGISTRY_CHANGES.store(0, Release);
    INSIDE.set(false);
    CREATING.set(None);
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct AnnouncementKey {
    numbers: Vec<u64>,
    pub(crate) contexts: Vec<ContextHandles>,
}

/// The announcement of a device: groups, and copies of their control descriptors.
#[derive(Debug, Default)]
pub(crate) struct Announcement {
    /// The groups and their channels. If it is equal, nothing has changed.
    pub(crate) state: AnnouncementKey,
    pub(crate) fds: Vec<OwnedFd>,
    /// The process has no other groups on the device.
    pub(crate) is_complete: bool,
}

/// All groups of a device, or none if not all of them can be controlled; then the announcement is not complete. Does not call the driver.
pub(crate) fn announcement(ordinal: u32) -> Result<Announcement, AnnouncementError> {
    if STOPPED.load(Acquire) {
        return Ok(Announcement::default());
    }
    let announcement = registry().announcement(ordinal, gpu::sees_one_device())?;
    let fds: Option<Vec<OwnedFd>> =
        announcement.descriptors.iter().map(|fd| copy_control_descriptor(*fd)).collect();
    // If the program has closed a descriptor, its groups cannot be controlled.
    let Some(fds) = fds else { return Ok(Announcement::default()) };
    let state = AnnouncementKey { numbers: announcement.numbers, contexts: announcement.contexts };
    Ok(Announcement { state, fds, is_complete: true })
}

pub(crate) fn log() {
    settings::log(format_args!("channel groups: {}", registry()));
}

/// The groups that a manager of this device may have disabled. They include groups that are no longer announced, because an earlier
/// announcement may still be in effect. If a group no longer exists, its control fails with that error.
pub(crate) fn groups_of_device(ordinal: u32) -> Vec<ComputeGroup> {
    let groups = registry().groups();
    groups.into_iter().filter(|found| found.device_ordinal.is_none_or(|owner| owner == ordinal)).collect()
}

/// A copy of one of the program's descriptors, if that still is a control descriptor.
pub(crate) fn copy_control_descriptor(fd: RawFd) -> Option<OwnedFd> {
    if fd < 0 {
        return None;
    }
    // SAFETY: used for copying only, which fails if the program has closed it meanwhile.
    let copy = above_standard(unsafe { BorrowedFd::borrow_raw(fd) })?;
    is_control(copy.as_fd()).then_some(copy)
}

fn is_control(fd: BorrowedFd<'_>) -> bool {
    match file_kind::of(fd) {
        Ok(Kind::Character { major, minor }) => (major, minor) == CONTROL_DEVICE,
        Ok(Kind::Socket { domain: libc::AF_UNIX, kind: libc::SOCK_SEQPACKET }) => {
            real::simulated_ioctl().is_some()
        }
        _ => false,
    }
}

fn registry() -> MutexGuard<'static, ObjectRegistry> {
    let registry = REGISTRY.get().unwrap_or_else(|| REGISTRY.publish(Mutex::default()));
    lock(registry)
}

struct Block {
    room: [u8; MAX_BLOCK_LEN],
    len: usize,
}

impl Block {
    /// # Safety
    /// `request.len` bytes are readable at `address`.
    unsafe fn copied(request: Request, address: u64) -> Option<Self> {
        let len = usize::from(request.len);
        let mut block = Self { room: [0; MAX_BLOCK_LEN], len };
        // SAFETY: as the caller guarantees.
        unsafe { copy(address, block.room.get_mut(..len)?) };
        Some(block)
    }

    fn bytes(&self) -> &[u8] {
        self.room.get(..self.len).unwrap_or_default()
    }
}

/// The request and its block, also if they are wrapped in a transfer request.
///
/// # Safety
/// As [`observe_ioctl`].
unsafe fn block(request: Request, argument: *const c_void) -> Option<(Request, Block)> {
    // SAFETY: as the caller guarantees.
    let block = unsafe { Block::copied(request, argument.expose_provenance() as u64) }?;
    if request != Request::XFER {
        return Some((request, block));
    }
    let xfer = XferBlock::decode(block.bytes())?;
    let request = xfer.request().filter(|request| request.is_known() && *request != Request::XFER)?;
    // SAFETY: the driver has read and written a block of this size there.
    Some((request, unsafe { Block::copied(request, xfer.block) }?))
}

/// # Safety
/// As many bytes as there is room for are readable at `address`, if it is not null.
unsafe fn copy(address: u64, into: &mut [u8]) {
    let from: *const u8 = std::ptr::with_exposed_provenance(usize::try_from(address).unwrap_or(0));
    if from.is_null() {
        return;
    }
    // SAFETY: as the caller guarantees; the hook's buffer does not overlap the program's memory.
    unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
}

#[cfg(test)]
mod tests;
