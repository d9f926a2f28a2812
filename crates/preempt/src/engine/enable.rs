//! Enabling and disabling preemption for a stream.

use std::sync::Arc;

use super::Engine;
use crate::book::Book;
use crate::config::{Config, Level};
use crate::driver::{Clock, Driver, Observer};
use crate::flight::Bound;
use crate::ids::Context;
use crate::outcome::Error;
use crate::queue::Queue;

/// How long a thread that waits for the GPU to take more leaves it alone.
const POLL_NS: u64 = 20_000;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Enables preemption, or changes how it is done. Work that the driver has is not waited for.
    pub fn enable(&self, queue: &Arc<Queue>, config: Config) -> Result<(), Error> {
        if !config.is_valid() {
            return Err(Error::InvalidConfig);
        }
        let now = self.clock.now_ns();
        let mut book = self.book();
        let lane = book.lane_mut(queue.id()).ok_or(Error::InvalidStream)?;
        if lane.closing {
            return Err(Error::Closing);
        }
        if lane.config == Some(config) {
            return Err(Error::AlreadyEnabled);
        }
        lane.config = Some(config);
        lane.idle = (queue.flight.steps(), now, true);
        let gates = config.level >= Level::Device && self.driver.gate().is_some();
        if gates && !queue.stream().is_legacy() {
            queue.set_gated();
        }
        apply(&mut book, queue.stream().context);
        self.announce(&book);
        drop(book);
        if config.task_timeout_ns.is_some() {
            queue.doze();
        }
        Ok(())
    }

    /// Ends preemption: the stream is restored, and what waits is handed over in order. Returns when nothing waits, not when
    /// the GPU is through with it.
    pub fn disable(&self, queue: &Queue) -> Result<(), Error> {
        let accepted = {
            let mut book = self.book();
            let lane = book.lane_mut(queue.id()).ok_or(Error::InvalidStream)?;
            lane.config.take().ok_or(Error::NotEnabled)?;
            let accepted = lane.accepted;
            apply(&mut book, queue.stream().context);
            self.announce(&book);
            accepted
        };
        self.resume(queue, None);
        while !self.is_abandoned()
            && self.book().lane(queue.id()).is_some_and(|lane| lane.submitted < accepted)
        {
            self.pump();
            self.clock.pause(POLL_NS);
        }
        Ok(())
    }

    /// Whether another client is ready: adaptive bounds, and gates, are used only then.
    pub fn set_contended(&self, contended: bool) {
        let mut book = self.book();
        book.contended = contended;
        let contexts: Vec<_> = book.lanes().map(|(_, lane)| lane.queue.stream().context).collect();
        contexts.into_iter().for_each(|context| apply(&mut book, context));
    }
}

/// Brings what submitting threads read in line with the book.
pub(super) fn apply(book: &mut Book, context: Context) {
    let contended = book.contended;
    let mut gated = false;
    for (_, lane) in book.lanes().filter(|(_, lane)| lane.queue.stream().context == context) {
        let wanted = |config: &Config| contended || !config.adaptive || config.task_timeout_ns.is_some();
        let config = lane.config.filter(wanted);
        lane.queue.flight.set_bound(config.map_or(Bound::WIDE, |config| {
            Bound::of(&config, lane.queue.is_gated() && config.level >= Level::Device)
        }));
        lane.queue.set_counted(config.is_some());
        gated |= lane.queue.is_gated();
    }
    for (_, lane) in book.lanes().filter(|(_, lane)| lane.queue.stream().context == context) {
        let legacy = lane.queue.stream().is_legacy();
        lane.queue.set_plain(!(lane.queue.is_counted() || legacy && gated));
    }
}
