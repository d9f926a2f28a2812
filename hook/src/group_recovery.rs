//! Starts this process's channel groups again when the manager that may have stopped them is lost.
//!
//! A manager that dies leaves them as they are: stopped for ever, or with a tiny slice. So while groups are announced a
//! thread waits for the end of the connection. It does nothing else and calls nothing of CUDA: any other thread may be
//! waiting for work that does not run because its group is stopped.

use std::ffi::{c_int, c_void};
use std::os::fd::{OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use sluice_comm::attach::{ContextHandles, MAX_CHANNELS};
use sluice_nvrm::sniff::Found;
use sluice_nvrm::{ControlError, Controls};

use crate::descriptor::Descriptor;
use crate::{groups, process, real, thread};

/// The slice that the driver gives to groups of compute, where the program's own is not known.
const DEFAULT_SLICE_US: u64 = 2048;

/// How often the copy of the connection is looked at: a program may have closed it, of which poll says nothing.
const LOOK_MS: c_int = 1000;

/// Pauses before groups that could not be started are tried again, in milliseconds: the process may be out of descriptors, the
/// driver busy.
const AGAIN_MS: [u64; 4] = [1, 10, 100, 1000];

/// The guard of one device's groups.
#[derive(Debug)]
pub(crate) struct GroupRecovery {
    ordinal: u32,
    /// A copy of the connection whose end is waited for.
    connection: Descriptor,
    /// The connection has ended, whatever the copy says.
    ended: AtomicBool,
    /// The manager has told us that it does not know us: it has done nothing.
    dismissed: AtomicBool,
    /// A thread waits for the end, or is starting groups again.
    watching: Mutex<bool>,
    done: Condvar,
}

impl GroupRecovery {
    pub(crate) fn new(ordinal: u32) -> Self {
        Self {
            ordinal,
            connection: Descriptor::none(),
            ended: AtomicBool::new(false),
            dismissed: AtomicBool::new(false),
            watching: Mutex::new(false),
            done: Condvar::new(),
        }
    }

    /// Watches the connection of which `copy` makes a copy, if none is watched; `false` if it cannot.
    pub(crate) fn watch(&'static self, copy: impl FnOnce() -> Option<OwnedFd>) -> bool {
        let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        if *watching {
            return true;
        }
        let Some(connection) = copy() else { return false };
        self.connection.set(connection);
        self.ended.store(false, Release);
        self.dismissed.store(false, Release);
        *watching = thread::start(thread::SMALL_STACK, body, std::ptr::from_ref(self).cast_mut().cast());
        if !*watching {
            self.connection.close();
        }
        *watching
    }

    /// Whether a thread waits for the end of the connection, or undoes what its manager did.
    pub(crate) fn is_watching(&self) -> bool {
        *self.watching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manager has refused us: when the connection ends there is nothing to undo. Controls lock the driver of the whole node, and who
    /// is refused comes again and again.
    pub(crate) fn skip_recovery(&self) {
        self.dismissed.store(true, Release);
    }

    /// Waits until the connection, which has ended, is no longer watched, and what its manager did is undone.
    pub(crate) fn wait_until_recovered(&self) {
        self.ended.store(true, Release);
        let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        while *watching {
            watching = self.done.wait(watching).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// In the child of a fork, where the thread is not: only atomics and close().
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
        let restores = !self.dismissed.load(Acquire);
        if restores && catch_unwind(AssertUnwindSafe(|| recover_groups(self.ordinal))).is_err() {
            process::COUNTERS.panics.fetch_add(1, Relaxed);
        }
        self.connection.close();
        *self.watching.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.done.notify_all();
        if let Some(managed) = process::in_use(self.ordinal) {
            managed.device.wake_tracker();
        }
    }
}

extern "C" fn body(guard: *mut c_void) -> *mut c_void {
    // SAFETY: the argument is the guard that `watch` passed, which lives for ever.
    let guard: &'static GroupRecovery = unsafe { &*guard.cast::<GroupRecovery>() };
    // SAFETY: concerns the calling thread only; the name is a C string of at most 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"sluice-guard".as_ptr()) };
    guard.run();
    std::ptr::null_mut()
}

/// Waits for the end of a connection, from either side; `false` from time to time.
fn has_ended(connection: RawFd) -> bool {
    let mut waited = libc::pollfd { fd: connection, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one entry is readable and writable.
    match unsafe { libc::poll(&raw mut waited, 1, LOOK_MS) } {
        // Refused at once, and again at each turn: under a limit of no open files, say.
        -1 => {
            std::thread::sleep(Duration::from_millis(u64::from(LOOK_MS.unsigned_abs())));
            false
        }
        ready => ready > 0,
    }
}

/// Gives all groups of a device their own slice back and lets them run. The slice comes first: two running groups with
/// tiny slices would keep each other from running.
fn recover_groups(ordinal: u32) {
    let mut found = groups::of_device(ordinal);
    let all = found.len();
    found.retain(needs_retry);
    for pause_ms in AGAIN_MS {
        if found.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(pause_ms));
        found.retain(needs_retry);
    }
    process::log(format_args!(
        "device {ordinal}: lost the manager; {} channel groups started again, {} could not be",
        all - found.len(),
        found.len()
    ));
}

/// Starts a group again; `true` if that failed and the group still exists.
fn needs_retry(group: &Found) -> bool {
    restart_group(group).is_err_and(|error| !error.is_some_and(|error| error.is_gone()))
}

/// Starts one group again; `Err(None)` if there is no way to the driver.
fn restart_group(group: &Found) -> Result<(), Option<ControlError>> {
    let Found { fd, handles, timeslice_us, .. } = group;
    let ContextHandles { client, subdevice, channel_group, channels, .. } = handles;
    let control = groups::control(*fd).ok_or(None)?;
    let controls = Controls::over(control, real::simulated_ioctl().is_some()).map_err(|_| None)?;
    let slice = controls.set_timeslice(*client, *channel_group, timeslice_us.unwrap_or(DEFAULT_SLICE_US));
    let mut outcome = slice;
    for some in channels.chunks(MAX_CHANNELS) {
        if controls.enable(*client, *subdevice, some).is_err() {
            // One that has gone meanwhile spoils the whole list.
            for channel in some {
                if let Err(error) = controls.enable(*client, *subdevice, std::slice::from_ref(channel)) {
                    outcome = outcome.and(Err(error));
                }
            }
        }
    }
    outcome.map_err(Some)
}
