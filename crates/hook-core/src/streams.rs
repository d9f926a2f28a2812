//! The streams used during a grant, and which of them may have unfinished work.

use crate::platform::{Mark, Stream, StreamKind, StreamLocation};

/// One stream used during the grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsedStream {
    /// The stream's context.
    pub context: u64,
    /// The stream.
    pub stream: Stream,
    /// Whether the legacy default stream waits for this stream.
    pub blocking: bool,
    /// An event behind the work of a default stream, recorded because a capture is open, or behind the work of any stream before a command
    /// that needs no grant: see [`Device::launched_during_capture`] and [`Device::begin_waiting_command`].
    ///
    /// [`Device::launched_during_capture`]: crate::device::Device::launched_during_capture
    /// [`Device::begin_waiting_command`]: crate::device::Device::begin_waiting_command
    tail: Option<Mark>,
    /// Whether the event is behind all launches that were noted.
    is_tail_last: bool,
    /// Epoch of the newest launch that was noted and is not known to have finished; 0 if there is none.
    dirty: u64,
    /// The same for commands that need no grant, of a hardware-scheduled process.
    command: u64,
}

impl UsedStream {
    /// Whether a launch on the stream is not known to have finished.
    pub fn is_dirty(&self) -> bool {
        self.dirty != 0
    }

    /// Whether a command that needs no grant was noted, and is not known to have finished.
    pub fn has_command(&self) -> bool {
        self.command != 0
    }

    /// The last event that was recorded behind work of the stream.
    pub fn tail(&self) -> Option<Mark> {
        self.tail
    }

    /// The event behind all launches, if there is one.
    pub fn end(&self) -> Option<Mark> {
        self.tail.filter(|_| self.is_tail_last)
    }

    /// Whether a drain can wait for all work of the stream while a capture is open.
    pub fn is_reachable_in_capture(&self) -> bool {
        self.stream.kind == StreamKind::Created || !self.is_dirty() || self.is_tail_last
    }
}

/// What a wait of the host covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitTarget {
    /// A stream that the program created, in any context: no two have the same handle.
    Created(Stream),
    /// One stream of a context.
    Stream(u64, Stream),
    /// The legacy default stream of a context, and with it all its blocking streams.
    Legacy(u64),
    /// Everything in a context.
    Context(u64),
}

impl WaitTarget {
    /// Whether the wait includes everything submitted to the stream.
    pub fn covers(&self, used: &UsedStream) -> bool {
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

/// The streams of a grant.
#[derive(Debug, Default)]
pub struct StreamSet {
    streams: Vec<UsedStream>,
}

impl StreamSet {
    /// Notes a launch on the stream during `epoch` (not 0).
    pub fn note(&mut self, context: u64, stream: Stream, blocking: bool, epoch: u64) {
        let used = self.used(context, stream, blocking);
        (used.dirty, used.is_tail_last) = (epoch, false);
    }

    /// The location of a noted stream that the program created. The meaning of other handles depends on the calling thread.
    pub fn located(&self, stream: Stream) -> Option<StreamLocation> {
        let its = |used: &&UsedStream| used.stream == stream && stream.kind == StreamKind::Created;
        let used = self.streams.iter().find(its)?;
        Some(StreamLocation { context: used.context, blocking: used.blocking })
    }

    /// A wait of the program for `what` has ended: launches noted in epochs before `epoch` have finished.
    pub fn finished(&mut self, what: WaitTarget, epoch: u64) {
        for used in &mut self.streams {
            if what.covers(used) && used.dirty < epoch {
                used.dirty = 0;
            }
            if what.covers(used) && used.command < epoch {
                used.command = 0;
            }
        }
        // Clean ones are never looked up, and those with an event are kept until the next drain returns it. Under an unlimited grant the streams of ended threads would accumulate.
        self.streams.retain(|used| {
            used.is_dirty()
                || used.has_command()
                || used.tail.is_some()
                || used.stream.kind != StreamKind::PerThread
        });
    }

    /// The launches of a stream have finished. Commands behind them may not have.
    pub fn launches_finished(&mut self, context: u64, stream: Stream, epoch: u64) {
        let is_its = |used: &&mut UsedStream| used.context == context && used.stream == stream;
        for used in self.streams.iter_mut().filter(is_its).filter(|used| used.dirty < epoch) {
            used.dirty = 0;
        }
    }

    /// Notes a command that needs no grant during `epoch` (not 0).
    pub fn note_command(&mut self, context: u64, stream: Stream, blocking: bool, epoch: u64) {
        self.used(context, stream, blocking).command = epoch;
    }

    /// The stream's entry, which is made if there is none.
    fn used(&mut self, context: u64, stream: Stream, blocking: bool) -> &mut UsedStream {
        let known = self.streams.iter().position(|used| used.context == context && used.stream == stream);
        let at = known.unwrap_or_else(|| {
            self.streams.push(UsedStream {
                context,
                stream,
                blocking,
                tail: None,
                is_tail_last: false,
                dirty: 0,
                command: 0,
            });
            self.streams.len() - 1
        });
        &mut self.streams[at]
    }

    /// Whether a command that needs no grant was noted, and is not known to have finished.
    pub fn any_command(&self) -> bool {
        self.streams.iter().any(UsedStream::has_command)
    }

    /// Keeps an event behind the stream's work. Returns the event that is not needed any more: the former one, or this one if the stream is
    /// not noted.
    pub fn set_tail(&mut self, context: u64, stream: Stream, tail: Mark) -> Option<Mark> {
        match self.streams.iter_mut().find(|used| used.context == context && used.stream == stream) {
            Some(used) => {
                used.is_tail_last = true;
                used.tail.replace(tail)
            }
            None => Some(tail),
        }
    }

    /// As [`Self::set_tail`], if no launch was noted from `epoch` on.
    pub fn set_end(&mut self, context: u64, stream: Stream, end: Mark, epoch: u64) -> Option<Mark> {
        let is_noted = |used: &UsedStream| used.context == context && used.stream == stream;
        if self.streams.iter().any(|used| is_noted(used) && used.dirty < epoch) {
            self.set_tail(context, stream, end)
        } else {
            Some(end)
        }
    }

    /// Takes the events behind the streams' work: after the loss of the manager no drain returns them.
    pub fn take_tails(&mut self) -> impl Iterator<Item = Mark> {
        self.streams.iter_mut().filter_map(|used| {
            used.is_tail_last = false;
            used.tail.take()
        })
    }

    /// The stream with work, if there is exactly one.
    pub fn only_dirty(&self) -> Option<&UsedStream> {
        let mut dirty = self.streams.iter().filter(|used| used.is_dirty());
        dirty.next().filter(|_| dirty.next().is_none())
    }

    /// Whether a launch is not known to have finished.
    pub fn any_dirty(&self) -> bool {
        self.streams.iter().any(UsedStream::is_dirty)
    }

    /// Whether a launch on another stream is not known to have finished.
    pub fn any_dirty_besides(&self, context: u64, stream: Stream) -> bool {
        let is_other = |used: &UsedStream| used.context != context || used.stream != stream;
        self.streams.iter().any(|used| used.is_dirty() && is_other(used))
    }

    /// Whether launches in several contexts are not known to have finished.
    pub fn has_dirty_contexts(&self) -> bool {
        let mut dirty = self.streams.iter().filter(|used| used.is_dirty()).map(|used| used.context);
        dirty.next().is_some_and(|first| dirty.any(|context| context != first))
    }

    /// Removes a stream, whatever its context: a destroyed handle must not be used again.
    pub fn remove(&mut self, stream: Stream) -> Option<UsedStream> {
        let at = self.streams.iter().position(|used| used.stream == stream)?;
        Some(self.streams.swap_remove(at))
    }

    /// Removes all streams of a context.
    pub fn remove_context(&mut self, context: u64) {
        self.streams.retain(|used| used.context != context);
    }

    /// All streams.
    pub fn all(&self) -> &[UsedStream] {
        &self.streams
    }

    /// Takes all streams. The capacity stays, so that noting a stream under the next grant does not allocate.
    pub fn take(&mut self) -> Vec<UsedStream> {
        let used = self.streams.clone();
        self.streams.clear();
        used
    }
}

#[cfg(test)]
mod tests;
