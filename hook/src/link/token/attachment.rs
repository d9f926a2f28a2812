//! How a connection attaches to a pod-manager or to a Gemini manager, and which pages it has then.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::*;

use sluice_comm::Channel;
use sluice_comm::page::{GrantView, ReportView};
use sluice_hook_core::lock;
use sluice_hook_core::platform::{Attached, LinkError};
use sluice_sys::page::{Access, SharedPage};
use sluice_sys::tsc::Calibration;

use super::super::identity::{ClientIdentity, Payload};
use super::super::socket::{is_unreadable, link_error};
use super::{NO_GRANT_PAGE, TokenConnection, Words};
use crate::channel_groups::Announcement;

impl TokenConnection {
    pub(super) fn attach(&self) -> Result<Attached, LinkError> {
        self.presence.clock.measure();
        let mut attached = self.attach_announced(ClientIdentity::with_heartbeat);
        if is_unreadable(&attached) {
            self.connect_after_refusal()?;
            attached = self.attach_announced(ClientIdentity::with_contexts);
        }
        if is_unreadable(&attached) {
            self.connect_after_refusal()?;
            attached = self.socket.attach(&self.identity, Channel::Token, 0, &self.identity.plain());
            self.announcer.refused();
        }
        let pages = match attached {
            Err(refused @ (LinkError::NotAdmitted { .. } | LinkError::NoRoom)) => {
                self.announcer.recovery.skip_recovery();
                return Err(refused);
            }
            attached => attached?,
        };
        let [grant, report, more @ ..] = pages.as_slice() else { return Err(LinkError::Gone) };
        self.wakeup.replace(more.first());
        let grant = keep_mapped(SharedPage::map(grant.as_fd(), Access::ReadOnly).map_err(link_error)?);
        let report = keep_mapped(SharedPage::map(report.as_fd(), Access::ReadWrite).map_err(link_error)?);
        let view = GrantView::new(grant);
        view.check().map_err(|_| LinkError::Gone)?;
        ReportView::new(report).check().map_err(|_| LinkError::Gone)?;
        ReportView::new(report).set_grant_address(grant.as_ptr().addr() as u64);
        self.announcer.report(ReportView::new(report));
        self.fail_closed.store(u8::from(view.fail_closed()), Release);
        self.grant.store(std::ptr::from_ref(grant).cast_mut(), Release);
        self.begin_memory_reports(report);
        self.announcer.recovery.attached();
        Ok(Attached { deadline_in_ticks: view.tsc_valid(), accepts_yield: true })
    }

    /// Attaches with the present announcement, in the payload that `encode` makes of it.
    pub(super) fn attach_announced(
        &self,
        encode: impl FnOnce(&ClientIdentity, Announcement) -> Payload,
    ) -> Result<Vec<OwnedFd>, LinkError> {
        let payload = encode(&self.identity, self.announcer.first(&self.socket));
        // The payload's copies of descriptors are closed before others are opened: the program may be near its limit.
        self.socket.attach(&self.identity, Channel::Token, 0, &payload)
    }

    /// Connects again to a manager that refused the payload and closed the connection, so that it has changed no group.
    pub(super) fn connect_after_refusal(&self) -> Result<(), LinkError> {
        self.announcer.recovery.skip_recovery();
        self.socket.shut_down();
        self.announcer.recovery.wait_until_recovered();
        self.socket.connect(&self.address)
    }

    /// Attaches to a Gemini manager. It has no pages, so the hook keeps the deadline on a page of its own, and takes no announcements.
    pub(super) fn attach_gemini(&self) -> Result<Attached, LinkError> {
        let mut calibration = lock(&self.calibration);
        if calibration.is_none() && sluice_sys::tsc::invariant() {
            *calibration = Calibration::measure();
        }
        if std::ptr::eq(self.grant.load(Acquire), &raw const NO_GRANT_PAGE) {
            let page = keep_mapped(SharedPage::anonymous().map_err(link_error)?);
            GrantView::new(page).init();
            // Such a manager never reports whether other clients wait, so they are assumed to.
            GrantView::new(page).set_contended(true);
            self.grant.store(std::ptr::from_ref(page).cast_mut(), Release);
        }
        self.grant_view().close();
        self.announcer.refused();
        Ok(Attached { deadline_in_ticks: calibration.is_some(), accepts_yield: false })
    }

    pub(super) fn open_own_page(&self, quota_ms: f64) {
        let now = sluice_sys::clock::monotonic_ns();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a day")]
        let deadline_ns = now + (quota_ms.clamp(0.0, 86_400_000.0) * 1e6) as u64;
        let mut calibration = lock(&self.calibration);
        let deadline_ticks = calibration.as_mut().map_or(0, |calibration| {
            calibration.refresh();
            calibration.ticks_at(deadline_ns)
        });
        let view = self.grant_view();
        view.open(deadline_ticks, deadline_ns, view.epoch() + 1);
    }
}

/// Keeps a page mapped for the rest of the process.
pub(super) fn keep_mapped(page: SharedPage) -> &'static Words {
    Box::leak(Box::new(page)).words()
}
