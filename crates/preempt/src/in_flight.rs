//! What a queue has in the driver: how much by count and by estimated time, known to be done by marks behind batches.

use std::collections::VecDeque;

use crate::command::Work;
use crate::config::Config;
use crate::driver::Driver;
use crate::estimate::Estimates;
use crate::gate_sequence::GateSequence;
use crate::ids::{Code, Event, Stream};
use crate::sync::{Mutex, lock};

/// How much may be in the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) count: u32,
    pub(crate) batch: u32,
    pub(crate) ns: u64,
    /// Work between two gates; `None` for no gates.
    pub(crate) spacing_ns: Option<u64>,
}

impl Default for Bound {
    fn default() -> Self {
        Self::WIDE
    }
}

impl Bound {
    /// For a queue that nobody bounds, while its commands go through the worker: less than a driver's ring holds.
    pub(crate) const WIDE: Self = Self { count: 256, batch: 64, ns: u64::MAX, spacing_ns: None };

    pub(crate) fn of(config: &Config, gates: bool) -> Self {
        Self {
            count: config.queue_size,
            batch: config.batch_size,
            ns: config.bound_ns,
            spacing_ns: gates.then_some(config.gate_spacing_ns),
        }
    }
}

/// Whether a command may go to the driver.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reservation {
    /// It may, behind this gate if there is one.
    Granted(Option<u32>),
    /// The bound is reached.
    Full,
}

#[derive(Debug, Default)]
struct Batch {
    count: u32,
    ns: u64,
    work: Vec<(Work, u32)>,
    /// The batch before was still running when this one began, and the stream ran all the while, so that the time between their marks is
    /// this one's.
    is_measurable: bool,
}

#[derive(Debug, Default)]
struct Inner {
    bound: Bound,
    estimates: Estimates,
    gate_sequence: GateSequence,
    current: Batch,
    marked: VecDeque<(Event, Batch)>,
    count: u32,
    ns: u64,
    last_mark: Option<Event>,
    /// The stream has stood still since the last batch began.
    interrupted: bool,
    /// It stands, all that was done by then is retired, and this is the gate that it has come to.
    stopped_at_gate: Option<u32>,
    /// Batches since the start or the last stop. The first ones are short, one, two, four commands, so that streams which are stopped
    /// again and again are measured in between.
    batches_since_stop: u32,
    spare_marks: Vec<Event>,
    progress_count: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct InFlight(Mutex<Inner>);

impl Default for InFlight {
    fn default() -> Self {
        Self(Mutex::new(Inner::default()))
    }
}

impl InFlight {
    /// Sets how much may be in the driver from here on.
    pub(crate) fn set_bound(&self, bound: Bound) {
        lock(&self.0).bound = bound;
    }

    /// Counts a command in, if the bound allows. An empty in_flight takes any command. The gate in front of it is left out if
    /// it is not to be `gated`.
    pub(crate) fn reserve(&self, work: Work, gated: bool) -> Reservation {
        let mut inner = lock(&self.0);
        let bound = inner.bound;
        let ns = inner.estimates.of(work);
        if inner.count > 0 && (inner.count >= bound.count || inner.ns.saturating_add(ns) > bound.ns) {
            return Reservation::Full;
        }
        if inner.current.count == 0 {
            let interrupted = std::mem::take(&mut inner.interrupted);
            inner.current.is_measurable = !inner.marked.is_empty() && !interrupted;
        }
        inner.stopped_at_gate = None;
        inner.count += 1;
        inner.ns = inner.ns.saturating_add(ns);
        inner.progress_count += 1;
        inner.current.count += 1;
        inner.current.ns = inner.current.ns.saturating_add(ns);
        match inner.current.work.iter_mut().find(|(known, _)| *known == work) {
            Some((_, n)) => *n += 1,
            None => inner.current.work.push((work, 1)),
        }
        match bound.spacing_ns.filter(|_| gated) {
            // What takes no time is not worth a gate; what is_measurable is.
            Some(_) if work == Work::Small => Reservation::Granted(None),
            Some(spacing) => Reservation::Granted(inner.gate_sequence.due(ns, spacing)),
            None => Reservation::Granted(None),
        }
    }

    /// Whether a batch is about to begin behind one that may be done by now.
    pub(crate) fn is_batch_boundary(&self) -> bool {
        let inner = lock(&self.0);
        inner.current.count == 0 && !inner.marked.is_empty()
    }

    /// The stream stands still at gate `arrived`, and what was done by then is retired.
    pub(crate) fn stopped_at(&self, arrived: u32) {
        lock(&self.0).stopped_at_gate = Some(arrived);
    }

    /// The stream goes on from gate `arrived` after it stood still. How long the batch took in which it stood says nothing of such work;
    /// any batch may be that one if the stream went on in between.
    pub(crate) fn interrupted(&self, arrived: u32) {
        let mut inner = lock(&self.0);
        inner.batches_since_stop = 0;
        let stood_there = inner.stopped_at_gate.take() == Some(arrived);
        if let Some((_, batch)) = inner.marked.front_mut().filter(|_| stood_there) {
            batch.is_measurable = false;
            return;
        }
        inner.marked.iter_mut().for_each(|(_, batch)| batch.is_measurable = false);
        inner.current.is_measurable = false;
        inner.interrupted = inner.current.count == 0;
    }

    /// Whether the open batch is complete.
    pub(crate) fn is_mark_due(&self) -> bool {
        lock(&self.0).is_complete()
    }

    /// Puts a mark behind the open batch, if it is complete or `now`.
    pub(crate) fn mark(&self, driver: &impl Driver, stream: Stream, now: bool) {
        let (batch, spare) = {
            let mut inner = lock(&self.0);
            if !(inner.is_complete() || now && inner.current.count > 0) {
                return;
            }
            inner.batches_since_stop = inner.batches_since_stop.saturating_add(1);
            (std::mem::take(&mut inner.current), inner.spare_marks.pop())
        };
        let event = spare.map_or_else(|| driver.create_event(stream.context, 0), Ok);
        let recorded = event.and_then(|event| driver.record(stream, event).map(|()| event));
        let mut inner = lock(&self.0);
        match recorded {
            Ok(event) => inner.marked.push_back((event, batch)),
            // Nothing tells when it is done: better unbounded than stuck.
            Err(_) => inner.retire_batch(&batch),
        }
    }

    /// Takes note of batches that are done.
    pub(crate) fn retire(&self, driver: &impl Driver) {
        loop {
            let (mark, last) = {
                let inner = lock(&self.0);
                let Some((mark, batch)) = inner.marked.front() else { return };
                (*mark, inner.last_mark.filter(|_| batch.is_measurable))
            };
            let reached = driver.query_event(mark);
            if reached == Err(Code::NOT_READY) {
                return;
            }
            let measured =
                last.filter(|_| reached.is_ok()).and_then(|last| driver.elapsed_ns(last, mark).ok());
            let mut inner = lock(&self.0);
            // Another thread may have been here meanwhile; then it has learned from this batch.
            if inner.marked.front().is_none_or(|(front, _)| *front != mark) {
                continue;
            }
            let Some((mark, batch)) = inner.marked.pop_front() else { return };
            if let Some(ns) = measured {
                inner.estimates.learn(&batch.work, ns);
            }
            inner.retire_batch(&batch);
            let before = inner.last_mark.replace(mark);
            inner.spare_marks.extend(before);
        }
    }

    /// Changes whenever something was submitted or found done.
    pub(crate) fn progress_count(&self) -> u64 {
        lock(&self.0).progress_count
    }

    /// Works on the stream's gates.
    pub(crate) fn with_gate_sequence<R>(&self, work: impl FnOnce(&mut GateSequence) -> R) -> R {
        work(&mut lock(&self.0).gate_sequence)
    }

    /// The events that were made for the marks, to be destroyed.
    pub(crate) fn take_marks(&self) -> Vec<Event> {
        let mut inner = lock(&self.0);
        let mut events: Vec<_> = inner.marked.drain(..).map(|(mark, _)| mark).collect();
        events.extend(inner.last_mark.take());
        events.append(&mut inner.spare_marks);
        events
    }
}

impl Inner {
    fn is_complete(&self) -> bool {
        let batch = self.bound.batch.min(1u32.checked_shl(self.batches_since_stop).unwrap_or(u32::MAX));
        self.current.count >= batch || self.current.ns > self.bound.ns / 2
    }

    fn retire_batch(&mut self, batch: &Batch) {
        self.count = self.count.saturating_sub(batch.count);
        self.ns = self.ns.saturating_sub(batch.ns);
        self.progress_count += 1;
    }
}
