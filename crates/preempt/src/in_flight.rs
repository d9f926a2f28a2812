//! A queue's in-flight window: how many commands, and how much estimated time, are in the driver. Completion marks
//! behind batches tell when they are done.

use std::collections::VecDeque;

use crate::command::Work;
use crate::config::Config;
use crate::driver::Driver;
use crate::estimate::Estimates;
use crate::gate_sequence::GateSequence;
use crate::ids::{Code, Event, Stream};
use crate::sync::{Mutex, lock};

/// The size of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) count: u32,
    pub(crate) batch: u32,
    pub(crate) ns: u64,
    /// Estimated work between two gates; `None` for no gates.
    pub(crate) spacing_ns: Option<u64>,
}

impl Default for Bound {
    fn default() -> Self {
        Self::WIDE
    }
}

impl Bound {
    /// For a queue without a bound while its commands go through the worker: less than the driver's ring holds.
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

/// Whether the window has room for a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reservation {
    /// It has, behind this gate if one is due.
    Granted(Option<u32>),
    /// The bound is reached.
    Full,
}

#[derive(Debug, Default)]
struct Batch {
    count: u32,
    ns: u64,
    work: Vec<(Work, u32)>,
    /// The time between the mark before and this batch's own is the batch's duration: the stream was busy when the
    /// batch began and never stopped.
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
    /// The stream has stopped since the last batch began.
    interrupted: bool,
    /// The stream has stopped at this gate, and every batch done by then is retired.
    stopped_at_gate: Option<u32>,
    /// Batches since the start or the last stop. The first ones hold one, two and four commands, so that a stream
    /// that is stopped again and again is measured in between.
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
    /// Sets the size of the window from here on.
    pub(crate) fn set_bound(&self, bound: Bound) {
        lock(&self.0).bound = bound;
    }

    /// Counts a command in, if the bound allows. An empty window takes any command, and with gates any two. With `gated` false no gate is
    /// placed in front of it.
    pub(crate) fn reserve(&self, work: Work, gated: bool) -> Reservation {
        let mut inner = lock(&self.0);
        let bound = inner.bound;
        let ns = inner.estimates.of(work);
        // Gates stop a second command, so it costs no latency; and only a command behind another one can be measured.
        let always = if bound.spacing_ns.is_some() { bound.count.min(2) } else { 1 };
        let is_full = inner.count >= bound.count || inner.ns.saturating_add(ns) > bound.ns;
        if inner.count >= always && is_full {
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
            // Work of negligible duration is not worth a gate; the work behind it is.
            Some(_) if work == Work::Small => Reservation::Granted(None),
            Some(spacing) => Reservation::Granted(inner.gate_sequence.due(ns, spacing)),
            None => Reservation::Granted(None),
        }
    }

    /// Whether a batch is about to begin while an earlier one may be done.
    pub(crate) fn is_batch_boundary(&self) -> bool {
        let inner = lock(&self.0);
        inner.current.count == 0 && !inner.marked.is_empty()
    }

    /// Notes that the stream has stopped at gate `arrived`, and that every batch done by then is retired.
    pub(crate) fn stopped_at(&self, arrived: u32) {
        lock(&self.0).stopped_at_gate = Some(arrived);
    }

    /// Notes that the stream goes on from gate `arrived` after it had stopped. The batch in which it stopped is not
    /// measured. If the stream moved in between, that may be any batch.
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

    /// Whether the current batch is complete.
    pub(crate) fn is_mark_due(&self) -> bool {
        lock(&self.0).is_complete()
    }

    /// Records a mark behind the current batch if it is complete, or if `now` is set.
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
            // No mark tells when the batch is done. The window counts it as done: too large is better than stuck.
            Err(_) => inner.retire_batch(&batch),
        }
    }

    /// Retires batches that are done.
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
            // Another thread may have retired this batch, and learned from it, in between.
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

    /// Changes whenever a command was submitted or a batch was found done.
    pub(crate) fn progress_count(&self) -> u64 {
        lock(&self.0).progress_count
    }

    /// Runs `work` on the stream's gate sequence.
    pub(crate) fn with_gate_sequence<R>(&self, work: impl FnOnce(&mut GateSequence) -> R) -> R {
        work(&mut lock(&self.0).gate_sequence)
    }

    /// Takes the events that were created for marks, to be destroyed.
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
        // With the work of several batches in the driver, the next commands are submitted while the later batches run.
        self.current.count >= batch || self.current.ns > self.bound.ns / 4
    }

    fn retire_batch(&mut self, batch: &Batch) {
        self.count = self.count.saturating_sub(batch.count);
        self.ns = self.ns.saturating_sub(batch.ns);
        self.progress_count += 1;
    }
}
