//! What the manager of a device has been told of our channel groups, and what not yet.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_hook_core::platform::LinkError;

use super::socket::Socket;
use crate::group_recovery::GroupRecovery;
use crate::groups::{self, Announcement, AnnouncementKey};
use crate::process;

/// Announces the groups of one device, each change once.
#[derive(Debug)]
pub(super) struct Announcer {
    ordinal: u32,
    guard: &'static GroupRecovery,
    told: Mutex<AnnouncementState>,
}

#[derive(Debug, Default)]
struct AnnouncementState {
    /// The news that were looked at last.
    news: u64,
    /// What was announced.
    state: AnnouncementKey,
    /// The manager does not understand announcements.
    refused: bool,
    /// Why nothing is announced was logged.
    complained: bool,
}

impl Announcer {
    pub(super) fn new(ordinal: u32) -> Self {
        // Devices are never freed, and the guard's thread outlives a connection.
        let guard = Box::leak(Box::new(GroupRecovery::new(ordinal)));
        Self { ordinal, guard, told: Mutex::default() }
    }

    /// Everything, for a manager that has just been connected to.
    pub(super) fn first(&self, socket: &Socket) -> Announcement {
        process::count_devices();
        let mut told = self.lock();
        *told = AnnouncementState { complained: told.complained, ..AnnouncementState::default() };
        told.news = groups::announcement_changes();
        self.compose(&mut told, socket)
    }

    /// Everything, if it is not what was announced last.
    ///
    /// # Errors
    /// The connection is of no more use: what was announced over it is no longer guarded, as the program has closed the guard's
    /// copy. Only its end makes the manager forget what it may control.
    pub(super) fn next(&self, socket: &Socket) -> Result<Option<Announcement>, LinkError> {
        let mut told = self.lock();
        if told.state != AnnouncementKey::default() && !self.guard.is_watching() {
            return Err(LinkError::Gone { errno: libc::EBADF });
        }
        let news = groups::announcement_changes();
        if told.refused || std::mem::replace(&mut told.news, news) == news {
            return Ok(None);
        }
        let before = std::mem::take(&mut told.state);
        let announced = self.compose(&mut told, socket);
        Ok((before != told.state).then_some(announced))
    }

    /// The manager is one that takes no announcements.
    pub(super) fn refused(&self) {
        *self.lock() = AnnouncementState { refused: true, ..AnnouncementState::default() };
    }

    /// The manager does not know us, whatever it was told.
    pub(super) fn skip_recovery(&self) {
        self.guard.skip_recovery();
    }

    /// Waits until our groups run as if there had never been a manager.
    pub(super) fn wait_until_recovered(&self) {
        self.guard.wait_until_recovered();
    }

    /// In the child of a fork: only atomics and close().
    pub(super) fn close_in_child(&self) {
        self.guard.close_in_child();
    }

    fn compose(&self, told: &mut AnnouncementState, socket: &Socket) -> Announcement {
        let announced = groups::announcement(self.ordinal).unwrap_or_else(|why| {
            if !std::mem::replace(&mut told.complained, true) {
                process::log(format_args!("device {}: contexts cannot be controlled: {why}", self.ordinal));
            }
            Announcement::default()
        });
        groups::log();
        // Nobody may stop what nobody would start again.
        let announced = if announced.contexts.is_empty() || self.guard.watch(|| socket.duplicate()) {
            announced
        } else {
            process::log(format_args!(
                "device {}: contexts are not announced: no thread to guard them",
                self.ordinal
            ));
            Announcement::default()
        };
        told.state.clone_from(&announced.state);
        announced
    }

    fn lock(&self) -> MutexGuard<'_, AnnouncementState> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
