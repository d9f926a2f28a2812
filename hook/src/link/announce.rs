//! The announcements of channel groups to a device's manager: what was sent, and what has changed since.

use std::sync::Mutex;

use sluice_comm::page::ReportView;
use sluice_hook_core::lock;
use sluice_hook_core::platform::LinkError;

use super::socket::Socket;
use crate::channel_groups::{self, Announcement, AnnouncementKey};
use crate::group_recovery::GroupRecovery;
use crate::manager_presence::ManagerPresence;
use crate::{gpu, settings};

/// Announces the groups of one device, each change once.
#[derive(Debug)]
pub(super) struct Announcer {
    ordinal: u32,
    pub(super) recovery: &'static GroupRecovery,
    last: Mutex<AnnouncementState>,
}

#[derive(Debug, Default)]
struct AnnouncementState {
    /// [`channel_groups::announcement_changes`] at the last announcement.
    changes: u64,
    state: AnnouncementKey,
    /// The last announcement had all groups of the process on the device.
    is_complete: bool,
    /// The manager does not understand announcements.
    refused: bool,
    /// The reason for which nothing is announced has been logged.
    has_logged: bool,
}

impl Announcer {
    pub(super) fn new(ordinal: u32, presence: &'static ManagerPresence) -> Self {
        // Never freed: the recovery thread outlives a connection.
        let recovery = Box::leak(Box::new(GroupRecovery::new(ordinal, presence)));
        Self { ordinal, recovery, last: Mutex::default() }
    }

    /// The whole announcement, for a manager that was just connected.
    pub(super) fn first(&self, socket: &Socket) -> Announcement {
        gpu::count_devices();
        let mut last = lock(&self.last);
        *last = AnnouncementState { has_logged: last.has_logged, ..AnnouncementState::default() };
        last.changes = channel_groups::announcement_changes();
        self.compose(&mut last, socket)
    }

    /// The whole announcement, if it differs from the last one.
    ///
    /// # Errors
    /// The connection cannot be used any longer: the program closed the recovery thread's copy, so the announced groups would not be
    /// recovered. Only the end of the connection makes the manager release them.
    pub(super) fn next(&self, socket: &Socket) -> Result<Option<Announcement>, LinkError> {
        let mut last = lock(&self.last);
        if self.recovery.is_recovering() {
            // The manager is lost. The next connection announces everything.
            return Ok(None);
        }
        if last.state != AnnouncementKey::default() && !self.recovery.is_watching() {
            return Err(LinkError::Gone);
        }
        let changes = channel_groups::announcement_changes();
        if last.refused || std::mem::replace(&mut last.changes, changes) == changes {
            return Ok(None);
        }
        let before = std::mem::take(&mut last.state);
        let announced = self.compose(&mut last, socket);
        Ok((before != last.state).then_some(announced))
    }

    /// Reports whether the announcement that was sent last has all groups. Changes since then stay reported.
    pub(super) fn report(&self, page: ReportView<'_>) {
        let last = lock(&self.last);
        if last.is_complete {
            page.report_announced(last.changes);
        } else {
            page.report_unannounced(last.changes.max(1));
        }
    }

    /// Records that the manager takes no announcements.
    pub(super) fn refused(&self) {
        *lock(&self.last) = AnnouncementState { refused: true, ..AnnouncementState::default() };
    }

    fn compose(&self, last: &mut AnnouncementState, socket: &Socket) -> Announcement {
        let announced = channel_groups::announcement(self.ordinal).unwrap_or_else(|why| {
            if !std::mem::replace(&mut last.has_logged, true) {
                settings::log(format_args!(
                    "device {}: channel groups are not announced: {why}",
                    self.ordinal
                ));
            }
            Announcement::default()
        });
        channel_groups::log();
        // A group may only be announced if a thread can enable it again.
        let announced = if announced.state.contexts.is_empty() || self.recovery.watch(|| socket.duplicate()) {
            announced
        } else {
            settings::log(format_args!(
                "device {}: channel groups are not announced: the recovery thread could not be started",
                self.ordinal
            ));
            Announcement::default()
        };
        last.state.clone_from(&announced.state);
        last.is_complete = announced.is_complete;
        announced
    }
}
