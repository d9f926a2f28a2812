//! Enables this process's channel groups again when the manager that may have disabled them is lost.
//!
//! A manager that dies or hangs leaves groups as they are: disabled for good, or with a tiny time slice. So while groups are announced, a
//! thread waits for the end of the connection and reads the manager's heartbeat. The thread does nothing else and makes no CUDA call: any
//! other thread may be waiting for work that does not run because its group is disabled.

mod own_group;

use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sluice_hook_core::group_recovery::Recovery;
use sluice_hook_core::lock;

use crate::counters::COUNTERS;
use crate::descriptor::Descriptor;
use crate::manager_presence::ManagerPresence;
use crate::polling::has_ended_within;
use crate::{channel_groups, settings, thread};
use own_group::OwnComputeGroup;

/// How often the copy of the connection is checked: the program may have closed it, which poll does not report.
const CHECK_MS: c_int = 1000;

/// How often the heartbeat of a silent manager is checked. A heartbeat counts for longer, so none is missed.
const SILENT_CHECK_MS: c_int = 50;

/// What the thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// There is no thread.
    None,
    /// It waits for the loss of the manager.
    Watching,
    /// It recovers groups.
    Recovering,
    /// A control has failed and is repeated after a pause, unless a new connection is to be watched before.
    Paused,
}

/// How the manager was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// The connection has ended.
    Ended,
    /// The manager is silent.
    Silent,
}

/// What the recovery does at the device whose groups it recovers.
pub(crate) trait RecoveryDevice: Sync {
    /// Treats the silent manager as lost: launches are let through, or held. `false` if the manager runs again.
    fn lose_silent_manager(&self) -> bool;

    fn wake_tracker(&self);
}

impl std::fmt::Debug for dyn RecoveryDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RecoveryDevice")
    }
}

#[derive(Debug)]
pub(crate) struct GroupRecovery {
    ordinal: u32,
    presence: &'static ManagerPresence,
    /// Set once the device is in use.
    device: OnceLock<&'static dyn RecoveryDevice>,
    /// A copy of the connection whose end the thread waits for.
    connection: Descriptor,
    /// The connection has ended, whatever the copy shows.
    ended: AtomicBool,
    /// The manager refused this process, so it has changed no group.
    is_skipped: AtomicBool,
    /// Groups that an earlier manager disabled are not recovered yet.
    is_unfinished: AtomicBool,
    activity: Mutex<Activity>,
    changed: Condvar,
}

impl GroupRecovery {
    pub(crate) fn new(ordinal: u32, presence: &'static ManagerPresence) -> Self {
        Self {
            ordinal,
            presence,
            device: OnceLock::new(),
            connection: Descriptor::none(),
            ended: AtomicBool::new(false),
            is_skipped: AtomicBool::new(false),
            is_unfinished: AtomicBool::new(false),
            activity: Mutex::new(Activity::None),
            changed: Condvar::new(),
        }
    }

    /// The device is in use from here on.
    pub(crate) fn set_device(&self, device: &'static dyn RecoveryDevice) {
        let _set_before = self.device.set(device);
    }

    /// Starts to watch a copy of the connection, made by `copy`, unless one is watched already. `false` if that is not possible.
    pub(crate) fn watch(&'static self, copy: impl FnOnce() -> Option<OwnedFd>) -> bool {
        let mut activity = self.wait_while(|activity| activity == Activity::Recovering);
        if *activity == Activity::Watching {
            return true;
        }
        let Some(connection) = copy() else { return false };
        self.connection.set(connection);
        self.ended.store(false, Release);
        self.is_skipped.store(false, Release);
        if *activity == Activity::Paused {
            // The manager of the new connection sets the groups. If it refuses this process, the thread begins again.
            self.is_unfinished.store(true, Release);
            *activity = Activity::Watching;
            self.changed.notify_all();
            return true;
        }
        let started = thread::start(c"sluice-recover", thread::SMALL_STACK_BYTES, move || self.run());
        if started {
            *activity = Activity::Watching;
        } else {
            self.connection.close();
        }
        started
    }

    /// Whether there is a thread that recovers groups when the manager is lost, or that does so already.
    pub(crate) fn is_watching(&self) -> bool {
        *lock(&self.activity) != Activity::None
    }

    /// Whether the manager is lost and groups are being recovered.
    pub(crate) fn is_recovering(&self) -> bool {
        *lock(&self.activity) == Activity::Recovering
    }

    /// Records that the manager refused this process: when the connection ends there is nothing to recover. Controls lock the driver of the
    /// whole node, and a refused process connects again and again.
    pub(crate) fn skip_recovery(&self) {
        self.is_skipped.store(true, Release);
    }

    /// Records that the manager has taken this process: it sets the announced groups.
    pub(crate) fn attached(&self) {
        self.is_unfinished.store(false, Release);
    }

    /// Waits until the connection, which has ended, is no longer watched, and each control of the recovery was made once.
    pub(crate) fn wait_until_recovered(&self) {
        self.ended.store(true, Release);
        drop(self.wait_while(|activity| matches!(activity, Activity::Watching | Activity::Recovering)));
    }

    /// In the child of a fork, which does not have the thread: only atomics and close().
    pub(crate) fn close_in_child(&self) {
        self.connection.close();
    }

    fn wait_while(&self, is: impl Fn(Activity) -> bool) -> MutexGuard<'_, Activity> {
        let mut activity = lock(&self.activity);
        while is(*activity) {
            activity = self.changed.wait(activity).unwrap_or_else(PoisonError::into_inner);
        }
        activity
    }

    fn set(&self, activity: Activity) {
        *lock(&self.activity) = activity;
        self.changed.notify_all();
    }

    fn run(&self) {
        loop {
            let loss = self.wait_for_loss();
            let is_skipped = self.is_skipped.load(Acquire) && !self.is_unfinished.load(Acquire);
            if is_skipped
                || catch_unwind(AssertUnwindSafe(|| self.recover(loss))).unwrap_or_else(|_| count_panic())
            {
                break;
            }
        }
        self.connection.close();
        self.set(Activity::None);
        if let Some(device) = self.device.get() {
            device.wake_tracker();
        }
    }

    fn wait_for_loss(&self) -> Loss {
        loop {
            if self.ended.load(Acquire) || !self.connection.is_ours() {
                return Loss::Ended;
            }
            let wait_ms = match self.presence.left_ns() {
                Some(0) => return Loss::Silent,
                Some(left) => c_int::try_from(left.div_ceil(1_000_000)).unwrap_or(CHECK_MS).min(CHECK_MS),
                None => CHECK_MS,
            };
            if has_ended_within(self.connection.raw(), wait_ms) {
                return Loss::Ended;
            }
        }
    }

    /// Whether the manager is still silent and its connection has not ended, after at most `wait_ms`.
    fn is_silent_after(&self, wait_ms: c_int) -> bool {
        !self.ended.load(Acquire)
            && self.connection.is_ours()
            && self.presence.left_ns() == Some(0)
            && !has_ended_within(self.connection.raw(), wait_ms)
    }

    /// Recovers the groups. `false` if a connection is to be watched afterwards.
    fn recover(&self, loss: Loss) -> bool {
        if loss == Loss::Silent
            && let Some(device) = self.device.get()
            // Launches are let through, or held, before the groups run. This takes the device's lock, with which the tracker may wait in
            // `watch` for the end of the recovery: so the recovery has not begun yet.
            && !device.lose_silent_manager()
        {
            // The manager runs again, and the groups are its to control.
            return false;
        }
        self.set(Activity::Recovering);
        let groups = channel_groups::groups_of_device(self.ordinal).into_iter().map(OwnComputeGroup);
        let mut recovery = Recovery::new(groups.collect());
        let mut is_logged = false;
        while let Some(pause_ms) = recovery.round() {
            if !std::mem::replace(&mut is_logged, pause_ms >= 1000) && pause_ms >= 1000 {
                self.log(loss, &recovery);
            }
            if !self.pause(pause_ms, loss) {
                return false;
            }
        }
        self.log(loss, &recovery);
        if loss == Loss::Ended {
            return true;
        }
        // A silent manager that runs again may disable groups of this connection until the tracker has replaced it.
        self.watch_again();
        let mut is_silent = true;
        while is_silent {
            is_silent = self.is_silent_after(SILENT_CHECK_MS);
        }
        false
    }

    /// Watches the same connection again, unless the tracker has ended it: then a new one must not be taken for it.
    fn watch_again(&self) {
        let mut activity = lock(&self.activity);
        if !self.ended.load(Acquire) {
            *activity = Activity::Watching;
            self.changed.notify_all();
        }
    }

    /// Lets a new connection take the thread over for `ms` milliseconds. Returns `false` if the recovery is not to go on: for this reason, or
    /// because the manager that was silent has run or died. That manager may have disabled groups that were recovered before.
    fn pause(&self, ms: u64, loss: Loss) -> bool {
        let mut activity = lock(&self.activity);
        *activity = Activity::Paused;
        self.changed.notify_all();
        let check_ms = if loss == Loss::Silent { SILENT_CHECK_MS.unsigned_abs().into() } else { ms };
        let mut left_ms = ms;
        while left_ms > 0 {
            let wait_ms = left_ms.min(check_ms);
            left_ms -= wait_ms;
            let is_paused = |activity: &mut Activity| *activity == Activity::Paused;
            let waited = self.changed.wait_timeout_while(activity, Duration::from_millis(wait_ms), is_paused);
            activity = waited.unwrap_or_else(PoisonError::into_inner).0;
            if *activity == Activity::Watching {
                return false;
            }
            if loss == Loss::Silent && !self.is_silent_after(0) {
                // The next loss begins with all groups. No new connection takes the thread over before.
                self.is_unfinished.store(true, Release);
                *activity = if self.ended.load(Acquire) { Activity::Recovering } else { Activity::Watching };
                return false;
            }
        }
        *activity = Activity::Recovering;
        true
    }

    fn log(&self, loss: Loss, recovery: &Recovery<OwnComputeGroup>) {
        let (restored, failed) = recovery.progress();
        let ordinal = self.ordinal;
        settings::log(format_args!(
            "device {ordinal}: lost the manager ({loss:?}); channel groups restored={restored} failed={failed}"
        ));
    }
}

fn count_panic() -> bool {
    COUNTERS.panics.fetch_add(1, Relaxed);
    true
}
