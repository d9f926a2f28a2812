//! The driver's functions of the fake GPU.

use std::thread;

use sluice_preempt::command::Command;
use sluice_preempt::driver::{
    ChannelGroupError, ChannelGroups, Clock, Driver, EventFlags, GateProgress, StreamGates,
};
use sluice_preempt::ids::{Code, Context, Event, Stream};

use super::work::{self, REFUSED};
use super::{CallPoint, FakeGpu, GpuState, Job, Op};

impl Clock for FakeGpu {
    fn now_ns(&self) -> u64 {
        self.now()
    }

    fn pause(&self, ns: u64) {
        self.advance(ns);
        let mut state = self.state();
        state.pauses += 1;
        let endless = state.max_pauses.is_some_and(|max_pauses| state.pauses > max_pauses);
        drop(state);
        assert!(!endless, "a thread waits without end");
        thread::yield_now();
    }
}

impl GpuState {
    fn check(&self, stream: Stream) -> Result<(), Code> {
        self.check_context(stream.context);
        match self.sticky {
            Some(code) => Err(code),
            None if self.streams.get(&stream.handle).is_none_or(|fake| fake.destroyed) => {
                Err(Code::INVALID_HANDLE)
            }
            None => Ok(()),
        }
    }

    fn check_context(&self, context: Context) {
        assert!(!self.ended.contains(&context.0), "a call uses an object of an ended context");
    }

    fn check_event(&self, event: Event) {
        if let Some(context) = self.event_contexts.get(&event.0) {
            self.check_context(Context(*context));
        }
    }

    /// Jobs go to the stream, or to the graph into which the stream is captured.
    pub(crate) fn enqueue(&mut self, handle: u64, jobs: Vec<Job>) {
        if let Some(capture) = self.streams[&handle].capture {
            self.graphs.entry(capture).or_default().extend(jobs);
            return;
        }
        for job in jobs {
            self.submitted.push((handle, job.tag));
            self.push(handle, Op::Job(job));
        }
    }

    pub(crate) fn push(&mut self, handle: u64, op: Op) {
        self.made += 1;
        let seq = self.made;
        self.streams.get_mut(&handle).unwrap().ops.push_back((seq, op));
        let now = self.now;
        self.run_until(now);
    }

    /// Whether a call on this stream would invalidate a capture of a blocking stream.
    fn is_tied(&self, stream: Stream) -> bool {
        stream.is_legacy()
            && self.streams.values().any(|fake| {
                let other = fake.stream.unwrap();
                fake.capture.is_some() && other.is_ordered_with(stream)
            })
    }

    fn check_tied(&self, stream: Stream) {
        assert!(!self.is_tied(stream), "a call on the legacy default stream invalidates a capture");
    }

    fn note_blocked_submission(&mut self) -> bool {
        self.submission_blocked |= self.submissions_block;
        self.submissions_block
    }

    /// A call that breaks other threads' captures unless the thread is in the relaxed mode.
    fn unsafe_call(&mut self) {
        if !self.relaxed.contains(&thread::current().id()) {
            self.broken_captures.append(&mut self.global_captures);
        }
    }

    fn reached(&self, event: Event) -> Result<Option<u64>, Code> {
        self.check_event(event);
        if self.destroyed_events.contains(&event.0) {
            return Err(Code::INVALID_HANDLE);
        }
        if let Some(code) = self.sticky {
            return Err(code);
        }
        match self.events.get(&event.0) {
            None | Some((None, _)) => Ok(None),
            Some((Some(record), _)) => self.records[record].map(Some).ok_or(Code::NOT_READY),
        }
    }
}

impl Driver for FakeGpu {
    fn submit(&self, stream: Stream, command: &Command) -> Result<(), Code> {
        while self.state().note_blocked_submission() {
            thread::yield_now();
        }
        if let Command::Call(call) = command {
            let checked = self.state().check(stream);
            checked?;
            self.state().check_tied(stream);
            return call.make(stream.handle);
        }
        let mut state = self.state();
        state.check(stream)?;
        state.check_tied(stream);
        if matches!(command, Command::Launch(launch) if launch.function == REFUSED) {
            return Err(Code(701));
        }
        let jobs = work::jobs(command, |graph| state.graphs[&graph].clone());
        state.enqueue(stream.handle, jobs);
        Ok(())
    }

    fn record(&self, stream: Stream, event: Event) -> Result<(), Code> {
        let mut state = self.state();
        state.check(stream)?;
        state.check_tied(stream);
        assert!(!state.destroyed_events.contains(&event.0), "a destroyed event is recorded");
        let capture = state.streams[&stream.handle].capture;
        state.made += 1;
        let record = state.made;
        state.events.insert(event.0, (Some(record), capture));
        state.records.insert(record, None);
        if capture.is_none() {
            state.push(stream.handle, Op::Record(record));
        }
        Ok(())
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), Code> {
        self.interrupt(CallPoint::Wait);
        let mut state = self.state();
        state.check(stream)?;
        state.check_event(event);
        assert!(!state.destroyed_events.contains(&event.0), "a destroyed event is waited for");
        match state.events.get(&event.0).copied() {
            None | Some((None, _)) => {}
            Some((Some(_), Some(capture))) => {
                state.streams.get_mut(&stream.handle).unwrap().capture = Some(capture);
            }
            Some((Some(_), None)) if state.streams[&stream.handle].capture.is_some() => {
                return Err(Code(905));
            }
            Some((Some(record), None)) => state.push(stream.handle, Op::Wait(record)),
        }
        Ok(())
    }

    fn create_event(&self, context: Context, _: EventFlags) -> Result<Event, Code> {
        let mut state = self.state();
        state.check_context(context);
        state.made += 1;
        let event = 0x10_0000 + state.made;
        state.event_contexts.insert(event, context.0);
        state.events.insert(event, (None, None));
        Ok(Event(event))
    }

    fn destroy_event(&self, event: Event) -> Result<(), Code> {
        let mut state = self.state();
        state.check_event(event);
        assert!(state.destroyed_events.insert(event.0), "an event is destroyed twice");
        state.events.remove(&event.0);
        Ok(())
    }

    fn query_event(&self, event: Event) -> Result<(), Code> {
        let there = !self.state().destroyed_events.contains(&event.0);
        self.interrupt(CallPoint::Query);
        let mut state = self.state();
        assert!(there != state.destroyed_events.contains(&event.0), "an event is destroyed during a query");
        state.unsafe_call();
        state.reached(event).map(|_| ())
    }

    fn synchronize_event(&self, event: Event) -> Result<(), Code> {
        loop {
            match self.query_event(event) {
                Err(Code::NOT_READY) => self.pause(1000),
                result => return result,
            }
        }
    }

    fn elapsed_ns(&self, from: Event, to: Event) -> Result<u64, Code> {
        let state = self.state();
        let (from, to) = (state.reached(from)?, state.reached(to)?);
        to.zip(from).map(|(to, from)| to.saturating_sub(from)).ok_or(Code::INVALID_HANDLE)
    }

    fn query_stream(&self, stream: Stream) -> Result<(), Code> {
        let mut state = self.state();
        state.check(stream)?;
        state.unsafe_call();
        if state.streams[&stream.handle].ops.is_empty() { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<(), Code> {
        loop {
            match self.query_stream(stream) {
                Err(Code::NOT_READY) => self.pause(1000),
                result => return result,
            }
        }
    }

    fn destroy_stream(&self, stream: Stream) -> Result<(), Code> {
        let mut state = self.state();
        state.check_context(stream.context);
        let fake = state.streams.get_mut(&stream.handle).unwrap();
        assert!(!fake.destroyed, "a stream is destroyed twice");
        fake.destroyed = true;
        drop(state);
        self.interrupt(CallPoint::Destroy);
        Ok(())
    }

    fn destroy_graph(&self, graph: u64) -> Result<(), Code> {
        self.state().graphs.remove(&graph).map(|_| ()).ok_or(Code::INVALID_HANDLE)
    }

    fn is_capturing(&self, stream: Stream) -> bool {
        let answer = {
            let state = self.state();
            state.streams.get(&stream.handle).is_some_and(|fake| fake.capture.is_some())
                || state.is_tied(stream)
        };
        self.interrupt(CallPoint::Capturing);
        let state = self.state();
        state.check_context(stream.context);
        let fake = state.streams.get(&stream.handle);
        assert!(fake.is_none_or(|fake| !fake.destroyed), "a destroyed stream is queried for a capture");
        answer
    }

    fn exchange_capture_relaxed(&self, relaxed: bool) -> bool {
        let mut state = self.state();
        let thread = thread::current().id();
        if relaxed { !state.relaxed.insert(thread) } else { state.relaxed.remove(&thread) }
    }

    fn is_hung(&self, _: Context) -> bool {
        self.state().hung
    }

    fn stream_gates(&self) -> Option<&dyn StreamGates> {
        let gates = self.state().gates;
        gates.then_some(self)
    }

    fn channel_groups(&self) -> Option<&dyn ChannelGroups> {
        let slices = self.state().channel_groups.is_some();
        slices.then_some(self)
    }
}

impl StreamGates for FakeGpu {
    fn place(&self, stream: Stream, number: u32) -> Result<(), Code> {
        let mut state = self.state();
        state.check(stream)?;
        if state.refuses_gates {
            return Err(Code::INVALID_VALUE);
        }
        for op in [Op::Arrive(number), Op::Gate(number), Op::Pass(number)] {
            state.push(stream.handle, op);
        }
        Ok(())
    }

    fn store_word(&self, stream: Stream, word: u32) {
        let mut state = self.state();
        state.streams.get_mut(&stream.handle).unwrap().word = word;
        let now = state.now;
        state.run_until(now);
    }

    fn progress(&self, stream: Stream) -> GateProgress {
        let state = self.state();
        let fake = &state.streams[&stream.handle];
        GateProgress { arrived: fake.arrived, passed: fake.passed }
    }
}

impl ChannelGroups for FakeGpu {
    fn disable(&self, stream: Stream) -> Result<(), ChannelGroupError> {
        self.interrupt(CallPoint::DisableGroup);
        let mut state = self.state();
        state.check_context(stream.context);
        assert!(
            !state.streams[&stream.handle].destroyed,
            "the channel group of a destroyed stream is disabled"
        );
        let result = state.channel_groups.unwrap_or(Ok(()));
        if result.is_ok() {
            let now = state.now;
            let fake = state.streams.get_mut(&stream.handle).unwrap();
            fake.held = true;
            // The remaining time of the running job.
            fake.ends = fake.ends.map(|ends| ends.saturating_sub(now));
        }
        result
    }

    fn enable(&self, stream: Stream) {
        self.interrupt(CallPoint::EnableGroup);
        let mut state = self.state();
        state.check_context(stream.context);
        assert!(
            !state.streams[&stream.handle].destroyed,
            "the channel group of a destroyed stream is enabled"
        );
        let now = state.now;
        let fake = state.streams.get_mut(&stream.handle).unwrap();
        fake.held = false;
        fake.ends = fake.ends.map(|left| now + left);
        state.run_until(now);
    }
}
