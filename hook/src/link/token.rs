//! The token connection of one device, and the pages that the manager sent over it.

mod attachment;
mod grant_wait;
mod lead;
mod memory_room;
mod token_link;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64, Ordering::*};

use sluice_comm::page::{GrantView, MovableMemory, ReportView, WORDS};
use sluice_hook_core::deadline_polling::DeadlinePolling;
use sluice_hook_core::memory::MemoryAccount;
use sluice_sys::tsc::Calibration;

use super::address::Address;
use super::announce::Announcer;
use super::identity::ClientIdentity;
use super::memory::MemoryConnection;
use super::socket::Socket;
use crate::group_recovery::RecoveryDevice;
use crate::manager_presence::ManagerPresence;
use crate::report_page::ReportPage;
use crate::wakeup_eventfd::WakeupEventfd;

type Words = [AtomicU64; WORDS];

/// The grant page before there is one: no grant.
static NO_GRANT_PAGE: Words = [const { AtomicU64::new(0) }; WORDS];

/// Value of `fail_closed` before the first attachment.
const UNKNOWN: u8 = 2;

/// The connection over which a device's grants are requested.
#[derive(Debug)]
pub(crate) struct TokenConnection {
    address: Address,
    identity: ClientIdentity,
    /// The memory account of the same GPU.
    memory: &'static MemoryAccount<MemoryConnection>,
    socket: Socket,
    announcer: Announcer,
    request_id: AtomicI32,
    /// Pages of the last attachment. Older ones stay mapped: a launch may be reading them.
    grant: AtomicPtr<Words>,
    report: ReportPage,
    /// Whether the manager runs, for the other connections to it.
    presence: &'static ManagerPresence,
    fail_closed: AtomicU8,
    attached: AtomicBool,
    /// For managers without pages: converts a deadline into ticks.
    calibration: Mutex<Option<Calibration>>,
    reported_busy_ns: AtomicU64,
    /// Wakes the manager, if its page asks for that.
    wakeup: WakeupEventfd,
    /// The polling of the thread that waits for a grant.
    answer_polling: Mutex<DeadlinePolling>,
    /// The number of the grant on the page when the last request was sent.
    epoch_before: AtomicU64,
    /// What was reported of the movable memory last. The page of the next manager begins with it.
    movable_memory: Mutex<MovableMemory>,
}

impl TokenConnection {
    /// A connection whose waiting thread polls for so long around the time at which a grant is expected.
    pub(crate) fn new(
        address: Address,
        identity: ClientIdentity,
        memory: &'static MemoryAccount<MemoryConnection>,
        polling_ns: u64,
    ) -> Self {
        // Never freed: the memory connection and the recovery thread outlive this connection.
        let presence = Box::leak(Box::new(ManagerPresence::unknown()));
        let socket = Socket::closed();
        socket.set_presence(presence);
        Self {
            address,
            memory,
            announcer: Announcer::new(identity.ordinal, presence),
            socket,
            identity,
            request_id: AtomicI32::new(0),
            grant: AtomicPtr::new((&raw const NO_GRANT_PAGE).cast_mut()),
            report: ReportPage::none(),
            presence,
            fail_closed: AtomicU8::new(UNKNOWN),
            attached: AtomicBool::new(false),
            calibration: Mutex::new(None),
            reported_busy_ns: AtomicU64::new(0),
            wakeup: WakeupEventfd::none(),
            answer_polling: Mutex::new(DeadlinePolling::new(polling_ns)),
            epoch_before: AtomicU64::new(0),
            movable_memory: Mutex::new(MovableMemory::default()),
        }
    }

    /// Closes the descriptors in the child of a fork.
    pub(crate) fn close_in_child(&self) {
        self.socket.close();
        self.wakeup.close();
        self.announcer.recovery.close_in_child();
    }

    /// The device is in use from here on.
    pub(crate) fn set_device(&'static self, device: &'static dyn RecoveryDevice) {
        self.announcer.recovery.set_device(device);
        self.memory.link.set_presence(self.presence);
    }

    /// Where this connection reports to the manager.
    pub(crate) fn report_page(&self) -> &ReportPage {
        &self.report
    }

    /// Whether the process is attached to a manager that may control its channel groups.
    pub(crate) fn announces_groups(&self) -> bool {
        self.attached.load(Acquire) && !matches!(self.address, Address::Tcp(..))
    }

    /// Reports that change number `change` of the process's channel groups is not announced yet.
    pub(crate) fn report_unannounced(&self, change: u64) {
        if let Some(report) = self.report_view() {
            report.report_unannounced(change);
        }
    }

    /// Counts the GPU time of a hold kernel on the report page.
    pub(crate) fn count_hold(&self, ns: u64) {
        if let Some(report) = self.report_view() {
            report.add_hold_ns(ns);
        }
    }

    #[inline]
    fn grant_view(&self) -> GrantView<'static> {
        // SAFETY: the pointer is the static blank page or that of a page that is mapped and never unmapped.
        GrantView::new(unsafe { &*self.grant.load(Acquire) })
    }

    fn report_view(&self) -> Option<ReportView<'static>> {
        self.report.view()
    }
}

#[cfg(test)]
mod tests;
