//! The connection as the core uses it.

use std::cell::Cell;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

use sluice_comm::attach::ATTACH_VERSION;
use sluice_comm::latency::LatencyKind;
use sluice_comm::page::{ReturnedGrant, UNLIMITED};
use sluice_comm::{HandOffStep, RequestBody, RequestKind, ResponseBody, ms_to_ns};
use sluice_hook_core::burst_admission::{RequestForecast, UrgentWork};
use sluice_hook_core::host_bound::{SliceReport, Slices};
use sluice_hook_core::latency::Measured;
use sluice_hook_core::lock;
use sluice_hook_core::platform::{Attached, Clock, GrantRequest, GrantUsage, LinkError, TokenLink};
use sluice_sys::clock::monotonic_ns;
use sluice_sys::futex;

use super::super::address::Address;
use super::super::answer_limit::AnswerLimit;
use super::grant_wait::GrantWait;
use super::{TokenConnection, UNKNOWN};
use crate::clock::HostClock;

/// How long a thread sleeps that may not wait on a futex.
const REFUSED_WAIT: Duration = Duration::from_micros(100);

impl TokenLink for TokenConnection {
    fn connect(&self) -> Result<Attached, LinkError> {
        if self.presence_left_ns(monotonic_ns()) == Some(0) && !self.socket.has_ended() {
            return Err(LinkError::Silent);
        }
        // The manager forgets a process that has no connection, and another one could be granted the memory that this one holds.
        self.memory.reattach_if_lost();
        self.disconnect();
        self.announcer.recovery.wait_until_recovered();
        let attached = self.socket.connect(&self.address).and_then(|()| match self.address {
            Address::Unix(_) => self.attach(),
            Address::Tcp(..) => self.attach_gemini(),
        });
        match attached {
            Ok(attached) => {
                self.reported_busy_ns.store(0, Relaxed);
                self.attached.store(true, SeqCst);
                // SAFETY: the pointer is that of a page that is mapped and never unmapped.
                self.presence.attached(unsafe { &*self.grant.load(Acquire) });
                Ok(attached)
            }
            Err(error) => {
                self.socket.shut_down();
                self.socket.close();
                // No connection is left whose heartbeat could be awaited.
                Err(if error == LinkError::Silent { LinkError::Gone } else { error })
            }
        }
    }

    fn disconnect(&self) {
        self.attached.store(false, Release);
        self.presence.detached();
        // The shutdown also reaches the copy that the recovery thread waits on, and a thread that waits for an answer. That thread uses the
        // descriptor, so the next connection closes it.
        self.socket.shut_down();
    }

    fn announce(&self) -> Result<(), LinkError> {
        if !self.announces_groups() {
            return Ok(());
        }
        if let Some(announced) = self.announcer.next(&self.socket)? {
            let body = RequestBody::Contexts { version: ATTACH_VERSION };
            self.socket.send_payload(&self.identity, body, &self.identity.with_contexts(announced))?;
        }
        if let Some(report) = self.report_view() {
            self.announcer.report(report);
        }
        Ok(())
    }

    fn is_alive(&self) -> bool {
        let is_silent = self.presence_left_ns(monotonic_ns()) == Some(0);
        self.attached.load(Acquire) && !is_silent && self.socket.is_alive()
    }

    fn presence_left_ns(&self, now_ns: u64) -> Option<u64> {
        let now_ns = self.presence.clock.to_managers(now_ns);
        if self.attached.load(Acquire) { self.grant_view().presence_left_ns(now_ns) } else { None }
    }

    fn send(&self, used: Option<GrantUsage>, ask: Option<GrantRequest>) -> Result<(), LinkError> {
        if ask.is_some() {
            self.epoch_before.store(self.grant_view().epoch(), Relaxed);
        }
        if let (Some(used), Some(report)) = (used, self.report_view()) {
            report.return_grant(ReturnedGrant {
                used_ns: ms_to_ns(used.used_ms),
                overuse_ns: ms_to_ns(used.overuse_ms),
                next_burst_ns: ask.map(|ask| ms_to_ns(ask.next_burst_ms)),
            });
            HostClock.record_step(HandOffStep::Returned);
        }
        let mut frames = [0u8; 160];
        let mut length = 0;
        let mut add = |body| -> Result<i32, LinkError> {
            let (id, frame) = self.socket.request(&self.identity, body)?;
            frames[length..length + frame.len()].copy_from_slice(&frame);
            length += frame.len();
            Ok(id)
        };
        if let Some(GrantUsage { used_ms, overuse_ms }) = used {
            add(RequestBody::Yield { used_ms, overuse_ms })?;
        }
        if let Some(GrantRequest { overuse_ms, next_burst_ms }) = ask {
            self.request_id.store(add(RequestBody::Quota { overuse_ms, next_burst_ms })?, Release);
        }
        self.socket.send(&frames[..length])
    }

    fn receive(&self, prepare: &dyn Fn()) -> Result<f64, LinkError> {
        // Over TCP the kernel of the peer takes a request, and an idle holder of Gemini's keeps its grant for long.
        let limit = match self.address {
            Address::Unix(_) => AnswerLimit::GRANT,
            Address::Tcp(..) => AnswerLimit::NONE,
        };
        let begun_ns = monotonic_ns();
        let wait = GrantWait { connection: self, begun_ns, prepare, polls: Cell::new(false) };
        let id = self.request_id.load(Acquire);
        let answer = self.socket.answer_or_arrival(id, RequestKind::Quota, limit, &wait);
        let now = monotonic_ns();
        lock(&self.answer_polling).stop(now);
        let Some((answer, _)) = answer? else {
            return Ok(self.deadline_ns().saturating_sub(now) as f64 / 1e6);
        };
        let ResponseBody::Quota { quota_ms } = answer else { return Err(LinkError::Gone) };
        if matches!(self.address, Address::Tcp(..)) {
            self.open_own_page(quota_ms);
        }
        Ok(quota_ms)
    }

    #[inline]
    fn deadline_ticks(&self) -> u64 {
        self.grant_view().deadline_tsc()
    }

    #[inline]
    fn deadline_ns(&self) -> u64 {
        self.presence.clock.to_own(self.grant_view().deadline_ns())
    }

    fn contended(&self) -> bool {
        self.grant_view().contended()
    }

    fn limited(&self) -> bool {
        self.grant_view().limited()
    }

    fn hand_off_ns(&self) -> u64 {
        self.presence.clock.to_own(self.grant_view().hand_off_ns())
    }

    fn fail_closed(&self) -> Option<bool> {
        match self.fail_closed.load(Acquire) {
            UNKNOWN => None,
            value => Some(value != 0),
        }
    }

    fn set_activity(&self, busy: bool, now_ns: u64) {
        if let Some(report) = self.report_view() {
            report.set_activity(busy, self.presence.clock.to_managers(now_ns));
        }
    }

    fn report_waits(&self, since_ns: Option<u64>) {
        if let Some(report) = self.report_view() {
            report.set_waits(since_ns.map(|since| self.presence.clock.to_managers(since)));
        }
    }

    fn report_contexts_at_once(&self, since_ns: Option<u64>) {
        if let Some(report) = self.report_view() {
            report.report_contexts_at_once(since_ns.map(|since| self.presence.clock.to_managers(since)));
        }
    }

    fn has_hardware_contenders(&self) -> bool {
        let grant = self.grant_view();
        grant.deadline_ns() == UNLIMITED && !grant.latency_critical() && grant.contenders() > 0
    }

    fn contenders(&self) -> u64 {
        self.grant_view().contenders()
    }

    fn critical_contenders(&self) -> Option<u64> {
        let grant = self.grant_view();
        let contenders =
            (self.attached.load(Acquire) && grant.latency_critical()).then(|| grant.contenders());
        // A silent manager does not write their number any more.
        contenders.filter(|count| *count == 0 || self.presence_left_ns(monotonic_ns()) != Some(0))
    }

    fn takes_gpu(&self) -> bool {
        self.grant_view().takes_gpu()
    }

    fn slices(&self) -> Slices {
        if self.grant_view().default_slices() { Slices::Default } else { Slices::Short }
    }

    fn report_slices(&self, report: SliceReport) {
        if let Some(page) = self.report_view() {
            let (short_ns, default_ns) = report.medians_ns;
            page.report_slices(report.wanted == Slices::Default, short_ns, default_ns);
        }
    }

    fn wake_manager(&self) {
        if self.grant_view().wakeup_requested() {
            self.wakeup.signal();
        }
    }

    fn is_latency_critical(&self) -> bool {
        self.critical_contenders().is_some()
    }

    #[inline]
    fn urgent_work(&self) -> UrgentWork {
        self.presence.clock.urgent_work(self.grant_view().urgent())
    }

    fn wait_for_urgent_work(&self, seen: UrgentWork, timeout_ns: u64) {
        let grant = self.grant_view();
        let word = grant.urgent();
        if self.presence.clock.urgent_work(word) == seen {
            let low_half = u32::try_from(word & u64::from(u32::MAX)).unwrap_or(u32::MAX);
            let timeout = Duration::from_nanos(timeout_ns);
            if futex::wait_low(grant.urgent_futex(), low_half, Some(timeout)) == futex::Wake::Refused {
                std::thread::sleep(timeout.min(REFUSED_WAIT));
            }
        }
    }

    fn report_postponed(&self, postponed: bool, waited_ns: u64) {
        let Some(report) = self.report_view() else { return };
        let begins = postponed && !report.is_postponed();
        report.add_postponed_ns(waited_ns);
        report.set_postponed(postponed);
        if begins {
            // The manager reads the urgent work's end more often from now on.
            self.wakeup.signal();
        }
    }

    fn report_forecast(&self, forecast: RequestForecast) {
        let Some(report) = self.report_view() else { return };
        report.expect(self.presence.clock.to_managers(forecast.expected_ns));
        report.set_service_ns(forecast.service_ns);
    }

    fn slo_ns(&self) -> u64 {
        self.grant_view().slo_ns()
    }

    fn report_latency(&self, measured: Measured) {
        let Some(report) = self.report_view() else { return };
        match measured {
            Measured::Step(ns) => report.add_latency(LatencyKind::Step, ns),
            Measured::Request(ns) => report.add_latency(LatencyKind::Request, ns),
            Measured::Unobserved => report.count_unobserved_step(),
        }
        if measured.misses(self.slo_ns()) == Some(true) {
            report.count_slo_violation();
        }
    }

    fn report_busy(&self, busy_ns: u64) {
        let Some(report) = self.report_view() else { return };
        report.add_busy_ns(busy_ns.saturating_sub(self.reported_busy_ns.swap(busy_ns, Relaxed)));
    }
}
