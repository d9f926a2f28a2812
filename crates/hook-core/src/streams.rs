//! The streams used during a grant, and which of them may still have work.

use crate::platform::{Located, Stream, StreamKind};

/// One stream used during the grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// The stream's context.
    pub context: u64,
    /// The stream.
    pub stream: Stream,
    /// Whether the legacy default stream waits for it.
    pub blocking: bool,
    /// Epoch of the newest launch noted and not yet known to be finished; 0 if none.
    dirty: u64,
}

impl Used {
    /// Whether a launch on the stream is not known to have finished.
    pub fn is_dirty(&self) -> bool {
        self.dirty != 0
    }
}

/// What a host wait has waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// A stream that the program created, whatever its context: no two have the same handle.
    Created(Stream),
    /// One stream of a context.
    Stream(u64, Stream),
    /// The legacy default stream of a context, and with it all its blocking streams.
    Legacy(u64),
    /// Everything in a context.
    Context(u64),
}

impl Waited {
    /// Whether the wait includes everything submitted to the stream.
    pub fn covers(&self, used: &Used) -> bool {
        match *self {
            Self::Created(stream) => used.stream == stream,
            Self::Stream(context, stream) => used.context == context && used.stream == stream,
            Self::Legacy(context) => {
                used.context == context && (used.blocking || used.stream.kind == StreamKind::Legacy)
            }
            Self::Context(context) => used.context == context,
        }
    }
}

/// The streams a grant has to answer for.
#[derive(Debug, Default)]
pub struct StreamSet {
    streams: Vec<Used>,
}

impl StreamSet {
    /// Notes a launch on the stream during `epoch` (not 0).
    pub fn note(&mut self, context: u64, stream: Stream, blocking: bool, epoch: u64) {
        match self.streams.iter_mut().find(|used| used.context == context && used.stream == stream) {
            Some(used) => used.dirty = epoch,
            None => self.streams.push(Used { context, stream, blocking, dirty: epoch }),
        }
    }

    /// Where a stream lives, if it was noted and the program created it: what other handles mean depends on who asks.
    pub fn located(&self, stream: Stream) -> Option<Located> {
        let its = |used: &&Used| used.stream == stream && stream.kind == StreamKind::Created;
        let used = self.streams.iter().find(its)?;
        Some(Located { context: used.context, blocking: used.blocking })
    }

    /// The program has waited for `what`; launches noted in epochs before `epoch` have finished.
    pub fn finished(&mut self, what: Waited, epoch: u64) {
        for used in &mut self.streams {
            if what.covers(used) && used.dirty < epoch {
                used.dirty = 0;
            }
        }
        // Only asked about while dirty; under a standing grant those of threads long gone would pile up.
        self.streams.retain(|used| used.is_dirty() || used.stream.kind != StreamKind::PerThread);
    }

    /// The stream with work, if there is exactly one.
    pub fn only_dirty(&self) -> Option<&Used> {
        let mut dirty = self.streams.iter().filter(|used| used.is_dirty());
        dirty.next().filter(|_| dirty.next().is_none())
    }

    /// Whether a launch is not known to have finished.
    pub fn any_dirty(&self) -> bool {
        self.streams.iter().any(Used::is_dirty)
    }

    /// Removes a stream whatever its context (a destroyed handle may not be used again).
    pub fn remove(&mut self, stream: Stream) -> Option<Used> {
        let at = self.streams.iter().position(|used| used.stream == stream)?;
        Some(self.streams.swap_remove(at))
    }

    /// Removes all streams of a context.
    pub fn remove_context(&mut self, context: u64) {
        self.streams.retain(|used| used.context != context);
    }

    /// All streams.
    pub fn all(&self) -> &[Used] {
        &self.streams
    }

    /// Forgets all streams.
    pub fn clear(&mut self) {
        self.streams.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn created(handle: u64) -> Stream {
        Stream::new(handle, false, 1)
    }

    #[test]
    fn a_launch_after_the_wait_began_keeps_the_stream_dirty() {
        let mut set = StreamSet::default();
        set.note(7, created(100), true, 1);
        set.note(7, created(100), true, 2);
        set.finished(Waited::Stream(7, created(100)), 2);
        assert!(set.any_dirty(), "the launch of epoch 2 came after the wait of epoch 2 began");
        set.finished(Waited::Stream(7, created(100)), 3);
        assert!(!set.any_dirty());
    }

    #[test]
    fn a_wait_for_the_legacy_stream_leaves_out_streams_that_do_not_block_it() {
        let mut set = StreamSet::default();
        set.note(7, created(100), true, 1);
        set.note(7, created(101), false, 1);
        set.note(7, created(0), true, 1);
        set.finished(Waited::Legacy(7), 2);
        let dirty: Vec<u64> = set.all().iter().filter(|u| u.is_dirty()).map(|u| u.stream.handle).collect();
        assert_eq!(dirty, [101]);
    }

    #[test]
    fn a_wait_for_one_context_says_nothing_about_another() {
        let mut set = StreamSet::default();
        set.note(7, created(0), true, 1);
        set.note(8, created(0), true, 1);
        set.finished(Waited::Context(7), 2);
        assert!(set.any_dirty());
        set.remove_context(8);
        assert!(!set.any_dirty());
    }

    #[test]
    fn a_stream_that_was_noted_is_found_again_until_it_is_destroyed() {
        let mut set = StreamSet::default();
        set.note(7, created(100), false, 1);
        set.note(7, created(0), true, 1);
        set.finished(Waited::Created(created(100)), 2);
        assert_eq!(set.located(created(100)), Some(Located { context: 7, blocking: false }));
        assert_eq!(set.located(created(0)), None, "whose default stream it is, the current context says");
        set.remove(created(100));
        assert_eq!(set.located(created(100)), None);
        set.note(8, created(100), true, 3);
        assert_eq!(
            set.located(created(100)),
            Some(Located { context: 8, blocking: true }),
            "another of that handle"
        );
        set.remove_context(8);
        assert_eq!(set.located(created(100)), None);
    }

    #[test]
    fn a_wait_for_a_created_stream_needs_no_context_to_be_known_by() {
        let mut set = StreamSet::default();
        set.note(7, created(100), true, 1);
        set.note(8, created(101), true, 1);
        set.finished(Waited::Created(created(100)), 2);
        let dirty: Vec<u64> = set.all().iter().filter(|u| u.is_dirty()).map(|u| u.stream.handle).collect();
        assert_eq!(dirty, [101]);
    }

    #[test]
    fn default_streams_of_threads_do_not_pile_up() {
        let mut set = StreamSet::default();
        for thread in 1..100 {
            set.note(7, Stream::new(2, false, thread), true, u64::from(thread));
            set.finished(Waited::Context(7), u64::from(thread) + 1);
        }
        set.note(7, Stream::new(2, false, 100), true, 100);
        assert_eq!(set.all().len(), 1);
    }

    #[test]
    fn default_streams_of_two_threads_are_two_streams() {
        let (one, two) = (Stream::new(0, true, 1), Stream::new(2, false, 2));
        assert_ne!(one, two);
        assert_eq!(one, Stream::new(2, false, 1));
        assert_eq!(one.driver_handle(), 2);
        assert_eq!(Stream::new(0, false, 1), Stream::new(1, true, 1));
    }
}
