//! Records of events: each record of an event is a *generation*. A wait refers to the generation that was the latest
//! when the wait was called.
//!
//! The first generation uses the program's own event, and so does every later one for which that event is free. While
//! an older generation is still in use, the next one is recorded into an event of the pool.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::driver::EventFlags;
use crate::ids::{Context, Event, QueueId};
use crate::queue::Queue;

/// The engine's number of a generation; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GenerationId(pub(crate) u64);

/// The position of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordPlace {
    /// In the host queue, at this position.
    Queued(QueueId, u64),
    /// In the driver.
    Submitted,
}

/// The gate in front of a submitted record.
#[derive(Debug, Clone)]
pub(crate) struct GatePosition {
    pub(crate) queue: Arc<Queue>,
    pub(crate) gate: u32,
}

/// The latest record of an event. The generation stays pinned until `unpin`.
#[derive(Debug, Clone)]
pub(crate) enum LatestRecord {
    /// The record waits in this queue, at this position.
    Queued(GenerationId, QueueId, u64),
    /// The driver has the record, as this event.
    Submitted(GenerationId, Event),
    /// The record went into a capture; only the driver knows its meaning.
    Captured,
    /// The program has destroyed the event.
    Destroyed,
}

/// An event that the program has destroyed and that nothing uses any more, and its context if it was ever recorded.
type Freed = Option<(Event, Option<Context>)>;

/// One record of an event.
#[derive(Debug)]
struct Generation {
    /// The program's event.
    event: Event,
    /// The event that the driver recorded for it, and its context.
    handle: Option<(Event, Context)>,
    place: RecordPlace,
    /// Uses that keep it: its own record while queued, waits, and calls in progress.
    pins: u32,
    behind: Option<GatePosition>,
}

#[derive(Debug, Default)]
struct EventState {
    latest: Option<GenerationId>,
    captured: bool,
    /// The generation that the program's own event stands for.
    own_generation: Option<GenerationId>,
    flags: EventFlags,
    /// Its context. An event is recorded only in its own context.
    context: Option<Context>,
    /// Other processes know the event, so no pooled event may replace it.
    shared: bool,
    destroyed: bool,
}

/// All events that the program used.
#[derive(Debug, Default)]
pub(crate) struct Events {
    states: HashMap<Event, EventState>,
    generations: HashMap<GenerationId, Generation>,
    created_count: u64,
    pool: HashMap<(Context, EventFlags), Vec<Event>>,
}

impl Events {
    /// Notes how an event was created.
    pub(crate) fn register(&mut self, event: Event, flags: EventFlags, shared: bool) {
        self.states.insert(event, EventState { flags, shared, ..EventState::default() });
    }

    /// Begins a record: the event refers to the new generation from here on. The record pins it.
    pub(crate) fn begin_record(&mut self, event: Event, place: RecordPlace) -> Option<GenerationId> {
        if self.states.get(&event).is_some_and(|state| state.destroyed) {
            return None;
        }
        let generation = self.create(event, place, 1);
        let state = self.states.entry(event).or_default();
        state.captured = false;
        let before = state.latest.replace(generation);
        self.drop_unless_used(before);
        Some(generation)
    }

    /// Notes that the event was recorded on a capturing stream.
    pub(crate) fn mark_captured(&mut self, event: Event) {
        self.states.entry(event).or_default().captured = true;
    }

    /// The event to record generation `id` into; an error with the flags of the event that has to be created for it.
    pub(crate) fn assign_event(&mut self, id: GenerationId, context: Context) -> Result<Event, EventFlags> {
        let Some(generation) = self.generations.get_mut(&id) else { return Err(0) };
        let state = self.states.entry(generation.event).or_default();
        state.context = Some(context);
        let event = if state.own_generation.is_none() || state.own_generation == Some(id) || state.shared {
            state.own_generation = Some(id);
            generation.event
        } else {
            let pooled = self.pool.get_mut(&(context, state.flags)).and_then(Vec::pop);
            pooled.ok_or(state.flags)?
        };
        generation.handle = Some((event, context));
        Ok(event)
    }

    /// Uses a newly created event for generation `id`, or the program's own if none could be created.
    pub(crate) fn set_event(
        &mut self,
        id: GenerationId,
        context: Context,
        created: Option<Event>,
    ) -> Option<Event> {
        let generation = self.generations.get_mut(&id)?;
        let event = created.unwrap_or(generation.event);
        generation.handle = Some((event, context));
        Some(event)
    }

    /// Notes that the driver has the record of generation `id`.
    pub(crate) fn recorded(&mut self, id: GenerationId, behind: Option<GatePosition>) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.place = RecordPlace::Submitted;
            generation.behind = behind;
        }
    }

    /// The latest record of `event`, pinned.
    pub(crate) fn pin_latest(&mut self, event: Event) -> LatestRecord {
        let state = self.states.entry(event).or_default();
        if state.destroyed {
            return LatestRecord::Destroyed;
        }
        if state.captured {
            return LatestRecord::Captured;
        }
        let id = match state.latest {
            Some(id) => id,
            None => {
                // The event was recorded before the engine existed, or never: the driver knows.
                let id = self.create(event, RecordPlace::Submitted, 0);
                let state = self.states.entry(event).or_default();
                (state.latest, state.own_generation) = (Some(id), Some(id));
                id
            }
        };
        let Some(generation) = self.generations.get_mut(&id) else { return LatestRecord::Destroyed };
        generation.pins += 1;
        match generation.place {
            RecordPlace::Queued(queue, position) => LatestRecord::Queued(id, queue, position),
            RecordPlace::Submitted => {
                let handle = generation.handle.map_or(event, |(handle, _)| handle);
                LatestRecord::Submitted(id, handle)
            }
        }
    }

    /// The driver's event for generation `id`, and the gate in front of the record.
    pub(crate) fn handle(&self, id: GenerationId) -> Option<(Event, Option<GatePosition>)> {
        let generation = self.generations.get(&id)?;
        let handle = generation.handle.map_or(generation.event, |(handle, _)| handle);
        Some((handle, generation.behind.clone()))
    }

    /// Releases one pin of generation `id`.
    pub(crate) fn unpin(&mut self, id: GenerationId) -> Freed {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.pins = generation.pins.saturating_sub(1);
        }
        self.drop_unless_used(Some(id))
    }

    /// Notes that the program destroys the event.
    pub(crate) fn destroy(&mut self, event: Event) -> Freed {
        let state = self.states.entry(event).or_default();
        state.destroyed = true;
        let latest = state.latest.take();
        self.drop_unless_used(latest);
        self.remove_if_unused(event)
    }

    /// Forgets the events that were recorded in a context that has ended. Generations that are still pinned refer to
    /// nothing from here on.
    pub(crate) fn forget_context(&mut self, context: Context) {
        self.pool.retain(|(of, _), _| *of != context);
        let is_gone = |generation: &Generation| generation.handle.is_some_and(|(_, of)| of == context);
        let gone: HashSet<_> = self
            .generations
            .values()
            .filter(|generation| is_gone(generation))
            .map(|generation| generation.event)
            .collect();
        self.generations.retain(|_, generation| !is_gone(generation));
        self.states.retain(|event, _| !gone.contains(event));
    }

    /// Generations that are kept.
    pub(crate) fn generation_count(&self) -> usize {
        self.generations.len()
    }

    fn create(&mut self, event: Event, place: RecordPlace, pins: u32) -> GenerationId {
        self.created_count += 1;
        let id = GenerationId(self.created_count);
        self.generations.insert(id, Generation { event, handle: None, place, pins, behind: None });
        id
    }

    fn drop_unless_used(&mut self, id: Option<GenerationId>) -> Freed {
        let id = id?;
        let generation = self.generations.get(&id)?;
        let event = generation.event;
        let state = self.states.entry(event).or_default();
        if generation.pins > 0 || state.latest == Some(id) {
            return None;
        }
        if state.own_generation == Some(id) {
            state.own_generation = None;
        }
        let flags = state.flags;
        if let Some((handle, context)) = generation.handle.filter(|(handle, _)| *handle != event) {
            self.pool.entry((context, flags)).or_default().push(handle);
        }
        self.generations.remove(&id);
        self.remove_if_unused(event)
    }

    fn remove_if_unused(&mut self, event: Event) -> Freed {
        let free =
            self.states.get(&event).is_some_and(|state| state.destroyed && state.own_generation.is_none())
                && !self.generations.values().any(|generation| generation.event == event);
        if !free {
            return None;
        }
        let context = self.states.remove(&event).and_then(|state| state.context);
        Some((event, context))
    }
}
