//! Events by generation: each record makes one, and a wait means the one that was last when it was called.
//!
//! The first generation uses the program's own event, and so does every later one for which it is free. While somebody still
//! means an older generation the next one is recorded into an event of the pool instead.

mod generation;

use std::collections::{HashMap, HashSet};

use crate::driver::EventFlags;
use crate::ids::{Context, Event, QueueId};

pub(crate) use generation::{Behind, Generation, GenerationId, Place};

/// What an event's last generation says to somebody who asks now; the generation stays until `unpin`.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    /// Its record is in this queue, at this position.
    Queued(GenerationId, QueueId, u64),
    /// The driver has it, as this event.
    There(GenerationId, Event),
    /// It was recorded into a capture; only the driver knows what it means.
    Captured,
    /// The program has destroyed the event.
    Gone,
}

impl Seen {
    /// The driver's event, if it has one.
    pub(crate) fn handle(&self) -> Option<Event> {
        if let Self::There(_, handle) = self { Some(*handle) } else { None }
    }
}

/// What has become free.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Freed {
    /// A program's event that it has destroyed.
    pub(crate) destroy: Option<Event>,
    /// Its context, if it was ever recorded.
    pub(crate) context: Option<Context>,
}

#[derive(Debug, Default)]
struct Known {
    latest: Option<GenerationId>,
    captured: bool,
    /// Which generation the program's own event stands for.
    own: Option<GenerationId>,
    flags: EventFlags,
    /// Its context; an event is recorded in its own only.
    context: Option<Context>,
    /// Other processes know the event: nothing else may stand for it.
    shared: bool,
    doomed: bool,
}

/// All events that were used.
#[derive(Debug, Default)]
pub(crate) struct Events {
    known: HashMap<Event, Known>,
    generations: HashMap<GenerationId, Generation>,
    made: u64,
    pool: HashMap<(Context, EventFlags), Vec<Event>>,
}

impl Events {
    /// Notes how an event was made.
    pub(crate) fn created(&mut self, event: Event, flags: EventFlags, shared: bool) {
        self.known.insert(event, Known { flags, shared, ..Known::default() });
    }

    /// A record was called: what the event means from here on. Its record keeps it until it is unpinned.
    pub(crate) fn accept(&mut self, event: Event, place: Place) -> Option<GenerationId> {
        if self.known.get(&event).is_some_and(|known| known.doomed) {
            return None;
        }
        let generation = self.make(event, place, 1);
        let known = self.known.entry(event).or_default();
        known.captured = false;
        let before = known.latest.replace(generation);
        self.drop_unless_used(before);
        Some(generation)
    }

    /// A record was called on a capturing stream.
    pub(crate) fn captured(&mut self, event: Event) {
        self.known.entry(event).or_default().captured = true;
    }

    /// The event to record generation `id` into; `None` if one has to be made, with these flags.
    pub(crate) fn assign(&mut self, id: GenerationId, context: Context) -> Result<Event, EventFlags> {
        let Some(generation) = self.generations.get_mut(&id) else { return Err(0) };
        let known = self.known.entry(generation.event).or_default();
        known.context = Some(context);
        let event = if known.own.is_none() || known.own == Some(id) || known.shared {
            known.own = Some(id);
            generation.event
        } else {
            let pooled = self.pool.get_mut(&(context, known.flags)).and_then(Vec::pop);
            pooled.ok_or(known.flags)?
        };
        generation.handle = Some((event, context));
        Ok(event)
    }

    /// An event that was made for generation `id`.
    pub(crate) fn give(&mut self, id: GenerationId, context: Context, event: Event) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.handle = Some((event, context));
            self.known.entry(generation.event).or_default().context = Some(context);
        }
    }

    /// Likewise, but none could be made: the program's own has to do.
    pub(crate) fn give_own(&mut self, id: GenerationId, context: Context) -> Option<Event> {
        let generation = self.generations.get_mut(&id)?;
        generation.handle = Some((generation.event, context));
        self.known.entry(generation.event).or_default().context = Some(context);
        Some(generation.event)
    }

    /// The driver has the record of generation `id`.
    pub(crate) fn recorded(&mut self, id: GenerationId, behind: Option<Behind>) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.place = Place::Submitted;
            generation.behind = behind;
        }
    }

    /// What `event` means now.
    pub(crate) fn look(&mut self, event: Event) -> Seen {
        let known = self.known.entry(event).or_default();
        if known.doomed {
            return Seen::Gone;
        }
        if known.captured {
            return Seen::Captured;
        }
        let id = match known.latest {
            Some(id) => id,
            None => {
                // Recorded before anybody looked, or never: the driver knows.
                let id = self.make(event, Place::Submitted, 0);
                let known = self.known.entry(event).or_default();
                (known.latest, known.own) = (Some(id), Some(id));
                id
            }
        };
        let Some(generation) = self.generations.get_mut(&id) else { return Seen::Gone };
        generation.pins += 1;
        match generation.place {
            Place::Queued(queue, position) => Seen::Queued(id, queue, position),
            Place::Submitted => {
                let handle = generation.handle.map_or(event, |(handle, _)| handle);
                Seen::There(id, handle)
            }
        }
    }

    /// Where the driver has generation `id`.
    pub(crate) fn handle(&self, id: GenerationId) -> Option<(Event, Option<Behind>)> {
        let generation = self.generations.get(&id)?;
        let handle = generation.handle.map_or(generation.event, |(handle, _)| handle);
        Some((handle, generation.behind.clone()))
    }

    /// Somebody who meant generation `id` is through.
    pub(crate) fn unpin(&mut self, id: GenerationId) -> Freed {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.pins = generation.pins.saturating_sub(1);
        }
        self.drop_unless_used(Some(id))
    }

    /// The program destroys the event.
    pub(crate) fn destroy(&mut self, event: Event) -> Freed {
        let known = self.known.entry(event).or_default();
        known.doomed = true;
        let latest = known.latest.take();
        self.drop_unless_used(latest);
        self.bury(event)
    }

    /// A context has ended, and its events with it; those that were recorded there. Whoever still means one means nothing.
    pub(crate) fn context_ended(&mut self, context: Context) {
        self.pool.retain(|(of, _), _| *of != context);
        let is_gone = |generation: &Generation| generation.handle.is_some_and(|(_, of)| of == context);
        let gone: HashSet<_> = self
            .generations
            .values()
            .filter(|generation| is_gone(generation))
            .map(|generation| generation.event)
            .collect();
        self.generations.retain(|_, generation| !is_gone(generation));
        self.known.retain(|event, _| !gone.contains(event));
    }

    /// Generations that are kept.
    pub(crate) fn live(&self) -> usize {
        self.generations.len()
    }

    fn make(&mut self, event: Event, place: Place, pins: u32) -> GenerationId {
        self.made += 1;
        let id = GenerationId(self.made);
        self.generations.insert(id, Generation { event, handle: None, place, pins, behind: None });
        id
    }

    fn drop_unless_used(&mut self, id: Option<GenerationId>) -> Freed {
        let Some(id) = id else { return Freed::default() };
        let Some(generation) = self.generations.get(&id) else { return Freed::default() };
        let event = generation.event;
        let known = self.known.entry(event).or_default();
        if generation.pins > 0 || known.latest == Some(id) {
            return Freed::default();
        }
        if known.own == Some(id) {
            known.own = None;
        }
        let flags = known.flags;
        if let Some((handle, context)) = generation.handle.filter(|(handle, _)| *handle != event) {
            self.pool.entry((context, flags)).or_default().push(handle);
        }
        self.generations.remove(&id);
        self.bury(event)
    }

    fn bury(&mut self, event: Event) -> Freed {
        let free = self.known.get(&event).is_some_and(|known| known.doomed && known.own.is_none())
            && !self.generations.values().any(|generation| generation.event == event);
        if !free {
            return Freed::default();
        }
        let context = self.known.remove(&event).and_then(|known| known.context);
        Freed { destroy: Some(event), context }
    }
}
