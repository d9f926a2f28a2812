//! A manager that answers at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use super::ManualClock;
use crate::burst_admission::{RequestForecast, UrgentWork};
use crate::host_bound::{SliceReport, Slices};
use crate::latency::Measured;
use crate::lock;
use crate::platform::*;

/// A manager that grants `quota_ms` to every request and records what it receives.
#[derive(Debug, Default)]
pub(crate) struct FakeLink {
    pub(crate) deadline: AtomicU64,
    pub(crate) contended: AtomicBool,
    pub(crate) limited: AtomicBool,
    pub(crate) closed: AtomicBool,
    pub(crate) unlimited: AtomicBool,
    pub(crate) dead: AtomicBool,
    /// The manager has stopped: it writes no heartbeat and sends no answers.
    pub(crate) silent: AtomicBool,
    /// The manager has no room for this process.
    pub(crate) full: AtomicBool,
    pub(crate) disconnects: AtomicU64,
    pub(crate) legacy: AtomicBool,
    pub(crate) quota_ms: AtomicU64,
    pub(crate) wakeups: AtomicU64,
    pub(crate) contenders: AtomicU64,
    pub(crate) critical: AtomicBool,
    pub(crate) takes_gpu: AtomicBool,
    /// What was reported about time slices last. The manager does what the process wants.
    pub(crate) slices: Mutex<SliceReport>,
    /// The reported activity.
    pub(crate) activity: Mutex<Vec<(bool, u64)>>,
    /// The reports of work that only waits.
    pub(crate) waits: Mutex<Vec<Option<u64>>>,
    /// The reports of work in several contexts at the same time.
    pub(crate) contexts_at_once: Mutex<Vec<Option<u64>>>,
    /// Calls of `announce`.
    pub(crate) announcements: AtomicU64,
    /// Announcements fail.
    pub(crate) fails_announcements: AtomicBool,
    pub(crate) connects: AtomicU64,
    /// Calls of `is_alive`.
    pub(crate) liveness_checks: AtomicUsize,
    pub(crate) busy_ns: AtomicU64,
    /// Answers read.
    pub(crate) received: AtomicU64,
    /// Answers are not sent yet.
    pub(crate) withholds_answers: AtomicBool,
    /// How long an answer takes while the grant runs.
    pub(crate) delay_ns: AtomicU64,
    pub(crate) sent: Mutex<Vec<(Option<GrantUsage>, Option<GrantRequest>)>>,
    /// When the token is expected to pass.
    pub(crate) hand_off_ns: AtomicU64,
    /// The word of the urgent work, and when it becomes 0 during a wait; 0: never.
    pub(crate) urgent: AtomicU64,
    pub(crate) urgent_until_ns: AtomicU64,
    /// The reports about postponed launches, and the last forecast.
    pub(crate) postponed: Mutex<Vec<(bool, u64)>>,
    pub(crate) forecast: Mutex<Option<RequestForecast>>,
    /// The client's latency goal; 0: none.
    pub(crate) slo_ns: AtomicU64,
    /// The reported latencies.
    pub(crate) latencies: Mutex<Vec<Measured>>,
    pub(crate) clock: Mutex<Option<std::sync::Arc<ManualClock>>>,
}

impl FakeLink {
    pub(crate) fn set_deadline(&self, deadline: u64) {
        self.deadline.store(deadline, SeqCst);
    }

    pub(crate) fn sent(&self) -> Vec<(Option<GrantUsage>, Option<GrantRequest>)> {
        lock(&self.sent).clone()
    }

    fn check(&self) -> Result<(), LinkError> {
        match () {
            () if self.dead.load(SeqCst) => Err(LinkError::Gone),
            () if self.full.load(SeqCst) => Err(LinkError::NoRoom),
            () => Ok(()),
        }
    }
}

impl TokenLink for FakeLink {
    fn connect(&self) -> Result<Attached, LinkError> {
        self.connects.fetch_add(1, SeqCst);
        self.check()?;
        if self.silent.load(SeqCst) {
            return Err(LinkError::Silent);
        }
        self.set_deadline(if self.unlimited.load(SeqCst) { u64::MAX } else { 0 });
        Ok(Attached { deadline_in_ticks: true, accepts_yield: !self.legacy.load(SeqCst) })
    }

    fn disconnect(&self) {
        self.disconnects.fetch_add(1, SeqCst);
    }

    fn is_alive(&self) -> bool {
        self.liveness_checks.fetch_add(1, SeqCst);
        !self.dead.load(SeqCst) && !self.silent.load(SeqCst)
    }

    fn presence_left_ns(&self, _now_ns: u64) -> Option<u64> {
        self.silent.load(SeqCst).then_some(0)
    }

    fn send(&self, used: Option<GrantUsage>, ask: Option<GrantRequest>) -> Result<(), LinkError> {
        self.check()?;
        lock(&self.sent).push((used, ask));
        Ok(())
    }

    fn receive(&self, prepare: &dyn Fn()) -> Result<f64, LinkError> {
        self.check()?;
        prepare();
        let quota_ms = self.quota_ms.load(SeqCst);
        let now = lock(&self.clock).as_ref().map_or(0, |clock| clock.now_ns());
        self.set_deadline(now + quota_ms * 1_000_000);
        self.received.fetch_add(1, SeqCst);
        while self.withholds_answers.load(SeqCst) {
            if self.silent.load(SeqCst) {
                return Err(LinkError::Silent);
            }
            std::thread::yield_now();
        }
        if let Some(clock) = lock(&self.clock).as_ref() {
            clock.pause(self.delay_ns.load(SeqCst));
        }
        Ok(quota_ms as f64)
    }

    fn deadline_ticks(&self) -> u64 {
        self.deadline.load(SeqCst)
    }

    fn deadline_ns(&self) -> u64 {
        self.deadline.load(SeqCst)
    }

    fn contended(&self) -> bool {
        self.contended.load(SeqCst)
    }

    fn limited(&self) -> bool {
        self.limited.load(SeqCst)
    }

    fn hand_off_ns(&self) -> u64 {
        self.hand_off_ns.load(SeqCst)
    }

    fn fail_closed(&self) -> Option<bool> {
        Some(self.closed.load(SeqCst))
    }

    fn announce(&self) -> Result<(), LinkError> {
        self.announcements.fetch_add(1, SeqCst);
        if self.fails_announcements.load(SeqCst) { Err(LinkError::Gone) } else { Ok(()) }
    }

    fn set_activity(&self, busy: bool, now_ns: u64) {
        lock(&self.activity).push((busy, now_ns));
    }

    fn report_waits(&self, since_ns: Option<u64>) {
        lock(&self.waits).push(since_ns);
    }

    fn report_contexts_at_once(&self, since_ns: Option<u64>) {
        lock(&self.contexts_at_once).push(since_ns);
    }

    fn has_hardware_contenders(&self) -> bool {
        self.deadline_ticks() == u64::MAX && !self.is_latency_critical() && self.contenders() > 0
    }

    fn contenders(&self) -> u64 {
        self.contenders.load(SeqCst)
    }

    fn critical_contenders(&self) -> Option<u64> {
        self.critical.load(SeqCst).then(|| self.contenders())
    }

    fn takes_gpu(&self) -> bool {
        self.takes_gpu.load(SeqCst)
    }

    fn slices(&self) -> Slices {
        lock(&self.slices).wanted
    }

    fn report_slices(&self, report: SliceReport) {
        *lock(&self.slices) = report;
    }

    fn wake_manager(&self) {
        self.wakeups.fetch_add(1, SeqCst);
    }

    fn is_latency_critical(&self) -> bool {
        self.critical.load(SeqCst)
    }

    fn urgent_work(&self) -> UrgentWork {
        UrgentWork::of_word(self.urgent.load(SeqCst))
    }

    fn wait_for_urgent_work(&self, _seen: UrgentWork, timeout_ns: u64) {
        if let Some(clock) = lock(&self.clock).as_ref() {
            let (now, ends) = (clock.now_ns(), self.urgent_until_ns.load(SeqCst));
            if ends != 0 && ends <= now + timeout_ns {
                clock.set(ends.max(now));
                self.urgent.store(0, SeqCst);
            } else {
                clock.advance(timeout_ns);
            }
        }
    }

    fn report_postponed(&self, postponed: bool, waited_ns: u64) {
        lock(&self.postponed).push((postponed, waited_ns));
    }

    fn report_forecast(&self, forecast: RequestForecast) {
        *lock(&self.forecast) = Some(forecast);
    }

    fn slo_ns(&self) -> u64 {
        self.slo_ns.load(SeqCst)
    }

    fn report_latency(&self, measured: Measured) {
        lock(&self.latencies).push(measured);
    }

    fn report_busy(&self, busy_ns: u64) {
        self.busy_ns.store(busy_ns, SeqCst);
    }
}
