//! Fakes of driver, manager and clock for the tests of this crate.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};

use crate::burst_admission::{RequestForecast, UrgentWork};
use crate::host_bound::{SliceReport, Slices};
use crate::lock;
use crate::platform::*;

/// A clock that stands still until it is set; ticks are nanoseconds, less those by which the counter was set back.
#[derive(Debug, Default)]
pub(crate) struct ManualClock(AtomicU64, AtomicI64, AtomicU64);

impl ManualClock {
    pub(crate) fn set(&self, ns: u64) {
        self.0.store(ns, SeqCst);
    }

    /// Sets the counter back by so many ticks, or forward.
    pub(crate) fn set_ticks_back(&self, ticks: i64) {
        self.1.store(ticks, SeqCst);
    }

    pub(crate) fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, SeqCst);
    }

    /// How often all threads were ordered.
    pub(crate) fn times_ordered(&self) -> u64 {
        self.2.load(SeqCst)
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.0.load(SeqCst)
    }

    fn ticks(&self) -> u64 {
        self.now_ns().saturating_add_signed(-self.1.load(SeqCst))
    }

    fn pause(&self, ns: u64) {
        self.advance(ns);
        std::thread::yield_now();
    }

    fn spin(&self) {
        self.pause(1_000);
    }

    fn can_order_all_threads(&self) -> bool {
        false
    }

    fn order_all_threads(&self) -> bool {
        self.2.fetch_add(1, SeqCst);
        true
    }
}

/// A manager that grants `quota_ms` to every request and records what it receives.
#[derive(Debug, Default)]
pub(crate) struct FakeLink {
    pub(crate) deadline: AtomicU64,
    pub(crate) contended: AtomicBool,
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

    fn report_busy(&self, busy_ns: u64) {
        self.busy_ns.store(busy_ns, SeqCst);
    }
}

/// A driver whose streams have work until a test removes it. The event of a mark is the stream's handle.
#[derive(Debug, Default)]
pub(crate) struct FakeDriver {
    pub(crate) busy: Mutex<Vec<u64>>,
    pub(crate) capturing: Mutex<Vec<u64>>,
    pub(crate) marked: Mutex<Vec<u64>>,
    pub(crate) drained: Mutex<Vec<u64>>,
    /// How long a wait for a mark takes.
    pub(crate) drain_ns: AtomicU64,
    /// When all work has ended, for queries of marks; 0: it has not.
    pub(crate) ends_ns: AtomicU64,
    /// Waits for marks.
    pub(crate) waits: AtomicU64,
    pub(crate) elapsed_ns: AtomicU64,
    pub(crate) live_marks: AtomicU64,
    /// Queries of streams, and how long each takes.
    pub(crate) queries: AtomicU64,
    pub(crate) query_ns: AtomicU64,
    pub(crate) no_context: AtomicBool,
    /// Since when the manager holds them back; 0 if it does not.
    pub(crate) held_back_ns: AtomicU64,
    /// Until when commands wait in queues of the hook, also those of destroyed streams.
    pub(crate) queued_until_ns: AtomicU64,
    /// Commands of a stream that the program has not destroyed wait in a queue of the hook.
    pub(crate) live_queued: AtomicBool,
    /// Questions about queued commands.
    pub(crate) queue_queries: AtomicU64,
    pub(crate) clock: Mutex<Option<std::sync::Arc<ManualClock>>>,
}

impl Driver for FakeDriver {
    fn locate(&self, _stream: Stream) -> Option<StreamLocation> {
        (!self.no_context.load(SeqCst)).then_some(StreamLocation { context: 7, blocking: true })
    }

    fn is_capturing(&self, stream: Stream) -> bool {
        lock(&self.capturing).contains(&stream.handle)
    }

    fn mark(&self, context: u64, stream: Stream) -> Option<Mark> {
        lock(&self.marked).push(stream.handle);
        self.live_marks.fetch_add(1, SeqCst);
        Some(Mark { context, event: stream.handle, number: 0 })
    }

    fn wait(&self, mark: Mark) {
        self.waits.fetch_add(1, SeqCst);
        if let Some(clock) = lock(&self.clock).as_ref() {
            clock.advance(self.drain_ns.load(SeqCst));
        }
        lock(&self.busy).retain(|stream| *stream != mark.event);
    }

    fn is_reached(&self, mark: Mark) -> bool {
        let ends = self.ends_ns.load(SeqCst);
        if ends == 0 {
            // Work that waits find running has not ended.
            return self.drain_ns.load(SeqCst) == 0 && !lock(&self.busy).contains(&mark.event);
        }
        let ended = lock(&self.clock).as_ref().is_some_and(|clock| clock.now_ns() >= ends);
        if ended {
            lock(&self.busy).retain(|stream| *stream != mark.event);
        }
        ended
    }

    fn elapsed_ns(&self, _from: Mark, _to: Mark) -> Option<u64> {
        let ns = self.elapsed_ns.load(SeqCst);
        (ns != 0).then_some(ns)
    }

    fn discard(&self, _mark: Mark) {
        self.live_marks.fetch_sub(1, SeqCst);
    }

    fn is_idle(&self, _context: u64, stream: Stream) -> Option<bool> {
        self.queries.fetch_add(1, SeqCst);
        if let Some(clock) = lock(&self.clock).as_ref() {
            clock.advance(self.query_ns.load(SeqCst));
        }
        (stream.kind != StreamKind::PerThread).then(|| !lock(&self.busy).contains(&stream.handle))
    }

    fn has_queued(&self, context: u64) -> bool {
        self.live_queued.load(SeqCst) || self.has_queued_of_destroyed(context)
    }

    fn has_queued_of_destroyed(&self, _context: u64) -> bool {
        self.queue_queries.fetch_add(1, SeqCst);
        let now = lock(&self.clock).as_ref().map_or(0, |clock| clock.now_ns());
        now < self.queued_until_ns.load(SeqCst)
    }

    fn held_back_since_ns(&self) -> Option<u64> {
        Some(self.held_back_ns.load(SeqCst)).filter(|since| *since != 0)
    }

    fn drain_context(&self, context: u64) {
        lock(&self.drained).push(context);
    }
}

/// A manager's memory account.
#[derive(Debug)]
pub(crate) struct FakeMemory {
    limit: u64,
    used: AtomicU64,
    connected: AtomicBool,
    dead: AtomicBool,
    silent: AtomicBool,
    /// The manager has no room for this process.
    pub(crate) full: AtomicBool,
    /// Requests and attachments that got no answer.
    pub(crate) unanswered: AtomicU64,
    /// Attachments that were tried.
    pub(crate) attempts: AtomicU64,
}

impl FakeMemory {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
            connected: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            full: AtomicBool::new(false),
            unanswered: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
        }
    }

    /// The manager stops, or runs again.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.silent.store(silent, SeqCst);
    }

    fn answer(&self) -> Result<(), LinkError> {
        if !self.silent.load(SeqCst) {
            return Ok(());
        }
        self.unanswered.fetch_add(1, SeqCst);
        self.connected.store(false, SeqCst);
        Err(LinkError::Silent)
    }

    pub(crate) fn die(&self) {
        self.dead.store(true, SeqCst);
        self.connected.store(false, SeqCst);
    }

    pub(crate) fn return_empty(&self) {
        self.used.store(0, SeqCst);
        self.dead.store(false, SeqCst);
    }
}

impl MemoryLink for FakeMemory {
    fn connect(&self, used_bytes: u64) -> Result<(), LinkError> {
        self.attempts.fetch_add(1, SeqCst);
        if self.full.load(SeqCst) {
            return Err(LinkError::NoRoom);
        }
        if self.dead.load(SeqCst) {
            return Err(LinkError::Gone);
        }
        self.answer()?;
        // What was declared before is replaced.
        self.used.store(used_bytes, SeqCst);
        self.connected.store(true, SeqCst);
        Ok(())
    }

    fn is_alive(&self) -> bool {
        self.connected.load(SeqCst)
    }

    fn usage(&self) -> Result<(u64, u64), LinkError> {
        self.answer()?;
        Ok((self.used.load(SeqCst), self.limit))
    }

    fn owns_process(&self, pid: u32) -> Result<bool, LinkError> {
        self.answer()?;
        Ok(pid == 7)
    }

    fn reserve(&self, bytes: u64) -> Result<bool, LinkError> {
        self.answer()?;
        let fits = self.used.load(SeqCst) + bytes <= self.limit;
        if fits {
            self.used.fetch_add(bytes, SeqCst);
        }
        Ok(fits)
    }

    fn release(&self, bytes: u64) -> Result<(), LinkError> {
        self.used.fetch_sub(bytes, SeqCst);
        Ok(())
    }
}
