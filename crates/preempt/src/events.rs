//! Events by generation: each record makes one, and a wait means the one that was last when it was called.
//!
//! The first generation uses the program's own event, and so does every later one for which it is free. While somebody still
//! means an older generation the next one is recorded into an event of the pool instead.

mod generation;

use std::collections::{HashMap, HashSet};

use crate::driver::EventFlags;
use crate::ids::{Context, Event, QueueId};

pub(crate) use generation::{GatePosition, Generation, GenerationId, RecordPlace};

/// What an event's last generation says to somebody who asks now; the generation stays until `unpin`.
#[derive(Debug, Clone)]
pub(crate) enum LatestRecord {
    /// Its record is in this queue, at this position.
    Queued(GenerationId, QueueId, u64),
    /// The driver has it, as this event.
    Submitted(GenerationId, Event),
    /// It was recorded into a capture; only the driver knows what it means.
    Captured,
    /// The program has destroyed the event.
    Destroyed,
}

impl LatestRecord {
    /// The driver's event, if it has one.
    pub(crate) fn handle(&self) -> Option<Event> {
        if let Self::Submitted(_, handle) = self { Some(*handle) } else { None }
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
struct EventState {
    latest: Option<GenerationId>,
    captured: bool,
    /// Which generation the program's own event stands for.
    own_generation: Option<GenerationId>,
    flags: EventFlags,
    /// Its context; an event is recorded in its own only.
    context: Option<Context>,
    /// Other processes know the event: nothing else may stand for it.
    shared: bool,
    destroyed: bool,
}

/// All events that were used.
#[derive(Debug, Default)]
pub(crate) struct Events {
    states: HashMap<Event, EventState>,
    generations: HashMap<GenerationId, Generation>,
    created_count: u64,
    pool: HashMap<(Context, EventFlags), Vec<Event>>,
}

impl Events {
    /// Notes how an event was made.
    pub(crate) fn register(&mut self, event: Event, flags: EventFlags, shared: bool) {
        self.states.insert(event, EventState { flags, shared, ..EventState::default() });
    }

    /// A record was called: what the event means from here on. Its record keeps it until it is unpinned.
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

    /// A record was called on a capturing stream.
    pub(crate) fn mark_captured(&mut self, event: Event) {
        self.states.entry(event).or_default().captured = true;
    }

    /// The event to record generation `id` into; `None` if one has to be made, with these flags.
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

    /// An event that was made for generation `id`.
    pub(crate) fn set_event(&mut self, id: GenerationId, context: Context, event: Event) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.handle = Some((event, context));
            self.states.entry(generation.event).or_default().context = Some(context);
        }
    }

    /// Likewise, but none could be created_count: the program's own has to do.
    pub(crate) fn set_own_event(&mut self, id: GenerationId, context: Context) -> Option<Event> {
        let generation = self.generations.get_mut(&id)?;
        generation.handle = Some((generation.event, context));
        self.states.entry(generation.event).or_default().context = Some(context);
        Some(generation.event)
    }

    /// The driver has the record of generation `id`.
    pub(crate) fn recorded(&mut self, id: GenerationId, behind: Option<GatePosition>) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.place = RecordPlace::Submitted;
            generation.behind = behind;
        }
    }

    /// What `event` means now.
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
                // Recorded before anybody looked, or never: the driver knows.
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

    /// Where the driver has generation `id`.
    pub(crate) fn handle(&self, id: GenerationId) -> Option<(Event, Option<GatePosition>)> {
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
        let state = self.states.entry(event).or_default();
        state.destroyed = true;
        let latest = state.latest.take();
        self.drop_unless_used(latest);
        self.remove_if_unused(event)
    }

    /// A context has ended, and its events with it; those that were recorded there. Whoever still means one means nothing.
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
        let Some(id) = id else { return Freed::default() };
        let Some(generation) = self.generations.get(&id) else { return Freed::default() };
        let event = generation.event;
        let state = self.states.entry(event).or_default();
        if generation.pins > 0 || state.latest == Some(id) {
            return Freed::default();
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
            return Freed::default();
        }
        let context = self.states.remove(&event).and_then(|state| state.context);
        Freed { destroy: Some(event), context }
    }
}
