//! The end of contexts. The driver's part is the caller's: `context_ends`, the driver's call, `context_ended` or `context_stays`.

use super::Engine;
use crate::book::{Book, What};
use crate::command::Command;
use crate::driver::{Clock, Driver, Observer};
use crate::ids::{Context, Event, QueueId};
use crate::queue::Queue;
use crate::state::State;
use crate::sync::lock;
use std::sync::Arc;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Before a call that ends the context, or may: everything of it runs, and what waits is handed over. From its return on the engine
    /// uses nothing of the context by itself, and nothing of it can be preempted.
    pub fn context_ends(&self, context: Context) {
        let queues: Vec<(Arc<Queue>, u64)> = {
            let mut book = self.book();
            book.endings.begin(context);
            book.within(context).map(|(_, lane)| (Arc::clone(&lane.queue), lane.accepted)).collect()
        };
        queues.iter().for_each(|(queue, _)| self.resume(queue, None));
        let tails: Vec<_> = queues.iter().map(|(queue, tail)| (queue.id(), *tail)).collect();
        while !self.is_abandoned() && !self.becomes_still(context, &tails) {
            self.pump();
            self.clock.pause(20_000);
        }
        let mut book = self.book();
        while !self.is_abandoned() && book.endings.event_uses > 0 {
            book = self.await_change(book);
        }
    }

    fn becomes_still(&self, context: Context, tails: &[(QueueId, u64)]) -> bool {
        let mut book = self.book();
        let still = is_unused(&book, context)
            && tails.iter().all(|(id, tail)| book.lane(*id).is_none_or(|lane| lane.submitted >= *tail));
        if still {
            book.endings.still(context);
        }
        still
    }

    /// The call has not ended the context.
    pub fn context_stays(&self, context: Context) {
        let queues: Vec<_> = {
            let mut book = self.book();
            book.endings.over(context);
            self.announce(&book);
            book.within(context).map(|(_, lane)| Arc::clone(&lane.queue)).collect()
        };
        queues.iter().for_each(|queue| self.reap(queue));
        self.destroy_postponed();
        self.observer.wake();
    }

    /// The context has ended, and with it its streams and events: the engine forgets them.
    pub fn context_ended(&self, context: Context) {
        let mut book = self.book();
        book.endings.over(context);
        let ids: Vec<_> = book.within(context).map(|(id, _)| id).collect();
        let mut meant = Vec::new();
        for lane in ids.into_iter().filter_map(|id| book.remove(id)).collect::<Vec<_>>() {
            for entry in lane.waiting {
                match entry.what {
                    What::Record(generation) | What::Wait(generation) => meant.push(generation),
                    // The graph, if it is to be destroyed, was the context's.
                    What::Command(Command::Graph(graph)) => drop(book.graph_launched(graph)),
                    What::Command(_) | What::Turn => {}
                }
            }
        }
        lock(&self.events).context_ended(context);
        book.postponed.retain(|(_, of)| *of != Some(context));
        self.announce(&book);
        drop(book);
        meant.into_iter().for_each(|generation| self.release(generation));
        self.destroy_postponed();
        self.observer.wake();
    }

    /// Destroys an event that nobody means any more, once no context is ending: it may be that one's.
    pub(super) fn destroy_later(&self, event: Event, context: Option<Context>) {
        self.book().postponed.push((event, context));
        self.destroy_postponed();
    }

    fn destroy_postponed(&self) {
        let events = {
            let mut book = self.book();
            if book.endings.is_any_still() || book.postponed.is_empty() {
                return;
            }
            book.endings.event_uses += 1;
            std::mem::take(&mut book.postponed)
        };
        for (event, _) in events {
            // The program destroyed it long ago; nobody is left to be told.
            let _ = self.driver.destroy_event(event);
        }
        self.event_used();
    }

    /// A use of an event in the driver is over.
    pub(super) fn event_used(&self) {
        let mut book = self.book();
        book.endings.event_uses -= 1;
        self.announce(&book);
    }
}

/// Whether no thread of the engine's uses anything of the context, nor has to.
fn is_unused(book: &Book, context: Context) -> bool {
    book.within(context).all(|(_, lane)| {
        let handed_over = !lane.busy || lane.turn.is_some();
        let sliced = lane.sliced.held || lane.sliced.busy;
        handed_over && !sliced && lane.looking == 0 && lane.state == State::Running
    })
}
