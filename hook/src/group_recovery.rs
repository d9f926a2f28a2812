//! Enables this process's channel groups again when the connection to the manager that may have disabled them is lost.
//!
//! A manager that dies leaves groups as they are: disabled for good, or with a tiny time slice. So while groups are announced, a thread
//! waits for the end of the connection. The thread does nothing else and makes no CUDA call: any other thread may be waiting for work that
//! does not run because its group is disabled.

use std::ffi::c_int;
use std::os::fd::{OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use sluice_comm::attach::{ContextHandles, MAX_CHANNELS};
use sluice_hook_core::lock;
use sluice_nvrm::ioctl_observation::ComputeGroup;
use sluice_nvrm::{ControlError, Controls};

use crate::descriptor::Descriptor;
use crate::{channel_groups, process, real, thread};

/// The driver's default time slice for compute groups, used if the program's own is not known.
const DEFAULT_SLICE_US: u64 = 2048;

/// How often the copy of the connection is checked: the program may have closed it, which poll does not report.
const CHECK_MS: c_int = 1000;

/// Pauses before failed controls are repeated, in milliseconds: the process may be out of descriptors, or the driver busy.
const RETRY_MS: [u64; 4] = [1, 10, 100, 1000];

#[derive(Debug)]
pub(crate) struct GroupRecovery {
    ordinal: u32,
    /// A copy of the connection whose end the thread waits for.
    connection: Descriptor,
    /// The connection has ended, whatever the copy shows.
    ended: AtomicBool,
    /// The manager refused this process, so it has changed no group.
    is_skipped: AtomicBool,
    /// The thread waits for the end, or is recovering groups.
    watching: Mutex<bool>,
    done: Condvar,
}

impl GroupRecovery {
    pub(crate) fn new(ordinal: u32) -> Self {
        Self {
            ordinal,
            connection: Descriptor::none(),
            ended: AtomicBool::new(false),
            is_skipped: AtomicBool::new(false),
            watching: Mutex::new(false),
            done: Condvar::new(),
        }
    }

    /// Starts to watch a copy of the connection, made by `copy`, unless one is watched already. `false` if that is not possible.
    pub(crate) fn watch(&'static self, copy: impl FnOnce() -> Option<OwnedFd>) -> bool {
        let mut watching = lock(&self.watching);
        if *watching {
            return true;
        }
        let Some(connection) = copy() else { return false };
        self.connection.set(connection);
        self.ended.store(false, Release);
        self.is_skipped.store(false, Release);
        *watching = thread::start(c"sluice-recover", thread::SMALL_STACK_BYTES, move || self.run());
        if !*watching {
            self.connection.close();
        }
        *watching
    }

    /// Whether the thread waits for the end of the connection, or recovers groups.
    pub(crate) fn is_watching(&self) -> bool {
        *lock(&self.watching)
    }

    /// Records that the manager refused this process: when the connection ends there is nothing to recover. Controls lock the driver of the
    /// whole node, and a refused process connects again and again.
    pub(crate) fn skip_recovery(&self) {
        self.is_skipped.store(true, Release);
    }

    /// Waits until the connection, which has ended, is no longer watched, and the groups are recovered.
    pub(crate) fn wait_until_recovered(&self) {
        self.ended.store(true, Release);
        let mut watching = lock(&self.watching);
        while *watching {
            watching = self.done.wait(watching).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// In the child of a fork, which does not have the thread: only atomics and close().
    pub(crate) fn close_in_child(&self) {
        self.connection.close();
    }

    fn run(&self) {
        loop {
            let ended = self.ended.load(Acquire) || !self.connection.is_ours();
            if ended || has_ended(self.connection.raw()) {
                break;
            }
        }
        let restores = !self.is_skipped.load(Acquire);
        if restores && catch_unwind(AssertUnwindSafe(|| recover_groups(self.ordinal))).is_err() {
            process::COUNTERS.panics.fetch_add(1, Relaxed);
        }
        self.connection.close();
        *lock(&self.watching) = false;
        self.done.notify_all();
        if let Some(managed) = process::device_in_use(self.ordinal) {
            managed.device.wake_tracker();
        }
    }
}

/// Waits for the end of a connection, from either side. `false` after [`CHECK_MS`].
fn has_ended(connection: RawFd) -> bool {
    let mut waited = libc::pollfd { fd: connection, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one entry is readable and writable.
    match unsafe { libc::poll(&raw mut waited, 1, CHECK_MS) } {
        // The call fails at once and would fail again, for example under a limit of no open files.
        -1 => {
            std::thread::sleep(Duration::from_millis(u64::from(CHECK_MS.unsigned_abs())));
            false
        }
        ready => ready > 0,
    }
}

/// Restores the time slices of a device's groups and enables them. The time slice comes first: two enabled groups with tiny time slices
/// would keep each other from running.
fn recover_groups(ordinal: u32) {
    let mut remaining = channel_groups::groups_of_device(ordinal);
    let total = remaining.len();
    remaining.retain(needs_retry);
    for pause_ms in RETRY_MS {
        if remaining.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(pause_ms));
        remaining.retain(needs_retry);
    }
    process::log(format_args!(
        "device {ordinal}: lost the manager; channel groups restored={} failed={}",
        total - remaining.len(),
        remaining.len()
    ));
}

/// Restores a group; `true` if that failed and the group still exists.
fn needs_retry(group: &ComputeGroup) -> bool {
    restart_group(group).is_err_and(|error| !error.is_some_and(|error| error.is_gone()))
}

/// Restores one group; `Err(None)` if there is no control descriptor.
fn restart_group(group: &ComputeGroup) -> Result<(), Option<ControlError>> {
    let ComputeGroup { fd, handles, timeslice_us, .. } = group;
    let ContextHandles { client, subdevice, channel_group, channels, .. } = handles;
    let control = channel_groups::copy_control_descriptor(*fd).ok_or(None)?;
    let controls = Controls::from_descriptor(control, real::simulated_ioctl().is_some()).map_err(|_| None)?;
    let slice = controls.set_timeslice(*client, *channel_group, timeslice_us.unwrap_or(DEFAULT_SLICE_US));
    let mut outcome = slice;
    for some in channels.chunks(MAX_CHANNELS) {
        if controls.enable(*client, *subdevice, some).is_err() {
            // A channel that no longer exists makes the whole list fail.
            for channel in some {
                if let Err(error) = controls.enable(*client, *subdevice, std::slice::from_ref(channel)) {
                    outcome = outcome.and(Err(error));
                }
            }
        }
    }
    outcome.map_err(Some)
}
