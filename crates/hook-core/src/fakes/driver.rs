//! A driver whose work ends when a test says so.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::ManualClock;
use crate::lock;
use crate::platform::*;

/// A driver whose streams have work until a test removes it. The event of a mark is the stream's handle.
#[derive(Debug, Default)]
pub(crate) struct FakeDriver {
    pub(crate) busy: Mutex<Vec<u64>>,
    pub(crate) capturing: Mutex<Vec<u64>>,
    /// Streams with work of which all launches have ended.
    pub(crate) without_launches: Mutex<Vec<u64>>,
    /// When streams that are still busy have no work any more, for queries of streams; 0: never.
    pub(crate) command_until_ns: AtomicU64,
    pub(crate) marked: Mutex<Vec<u64>>,
    pub(crate) drained: Mutex<Vec<u64>>,
    /// Threads that are about to wait for a context are held up.
    pub(crate) holds_drains: AtomicBool,
    /// Threads that are held up so, or were.
    pub(crate) held_drains: AtomicU64,
    /// How long a wait for a mark takes.
    pub(crate) drain_ns: AtomicU64,
    /// When all work has ended, for queries of marks; 0: it has not.
    pub(crate) ends_ns: AtomicU64,
    /// Waits for marks.
    pub(crate) waits: AtomicU64,
    /// Waits for marks do not end.
    pub(crate) holds_waits: AtomicBool,
    pub(crate) elapsed_ns: AtomicU64,
    pub(crate) live_marks: AtomicU64,
    /// The context of all streams; 0 stands for 7.
    pub(crate) context: AtomicU64,
    /// Queries of streams do not end, and how many have begun meanwhile.
    pub(crate) holds_queries: AtomicBool,
    pub(crate) held_queries: AtomicU64,
    /// Queries of streams, and how long each takes.
    pub(crate) queries: AtomicU64,
    pub(crate) query_ns: AtomicU64,
    pub(crate) no_context: AtomicBool,
    /// Since when the manager holds them back; 0 if it does not.
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
        let context = Some(self.context.load(SeqCst)).filter(|context| *context != 0).unwrap_or(7);
        (!self.no_context.load(SeqCst)).then_some(StreamLocation { context, blocking: true })
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
        while self.holds_waits.load(SeqCst) {
            std::thread::yield_now();
        }
        if let Some(clock) = lock(&self.clock).as_ref() {
            clock.advance(self.drain_ns.load(SeqCst));
        }
        lock(&self.busy).retain(|stream| *stream != mark.event);
    }

    fn is_reached(&self, mark: Mark) -> bool {
        if lock(&self.without_launches).contains(&mark.event) {
            return true;
        }
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
        while self.holds_queries.load(SeqCst) {
            self.held_queries.fetch_add(1, SeqCst);
            std::thread::yield_now();
        }
        if let Some(clock) = lock(&self.clock).as_ref() {
            clock.advance(self.query_ns.load(SeqCst));
        }
        let now = lock(&self.clock).as_ref().map_or(0, |clock| clock.now_ns());
        let until = self.command_until_ns.load(SeqCst);
        let has_ended = until != 0 && now >= until;
        (stream.kind != StreamKind::PerThread)
            .then(|| has_ended || !lock(&self.busy).contains(&stream.handle))
    }

    fn has_queued(&self, context: u64) -> bool {
        self.live_queued.load(SeqCst) || self.has_queued_of_destroyed(context)
    }

    fn has_queued_of_destroyed(&self, _context: u64) -> bool {
        self.queue_queries.fetch_add(1, SeqCst);
        let now = lock(&self.clock).as_ref().map_or(0, |clock| clock.now_ns());
        now < self.queued_until_ns.load(SeqCst)
    }

    fn drain_context(&self, context: u64) {
        self.held_drains.fetch_add(1, SeqCst);
        while self.holds_drains.load(SeqCst) {
            std::thread::yield_now();
        }
        lock(&self.drained).push(context);
    }
}
