//! The driver's face.

use std::thread;

use sluice_preempt::command::Command;
use sluice_preempt::driver::{Clock, Driver, EventFlags, Gate, Progress, SliceError, Slices};
use sluice_preempt::ids::{Code, Context, Event, Stream};

use super::work::{self, REFUSED};
use super::{During, Gpu, Inside, Job, Op};

impl Clock for Gpu {
    fn now_ns(&self) -> u64 {
        self.now()
    }

    fn pause(&self, ns: u64) {
        self.advance(ns);
        let mut inside = self.inside();
        inside.pauses += 1;
        let endless = inside.patience.is_some_and(|patience| inside.pauses > patience);
        drop(inside);
        assert!(!endless, "somebody waits for ever");
        thread::yield_now();
    }
}

impl Inside {
    fn check(&self, stream: Stream) -> Result<(), Code> {
        self.check_context(stream.context);
        match self.sticky {
            Some(code) => Err(code),
            None if self.lanes.get(&stream.handle).is_none_or(|lane| lane.destroyed) => {
                Err(Code::INVALID_HANDLE)
            }
            None => Ok(()),
        }
    }

    fn check_context(&self, context: Context) {
        assert!(!self.ended.contains(&context.0), "something of a context that has ended is used");
    }

    fn check_event(&self, event: Event) {
        if let Some(context) = self.event_contexts.get(&event.0) {
            self.check_context(Context(*context));
        }
    }

    /// Jobs go to the stream, or to the graph into which the stream is captured.
    pub(crate) fn enqueue(&mut self, handle: u64, jobs: Vec<Job>) {
        if let Some(capture) = self.lanes[&handle].capture {
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
        self.lanes.get_mut(&handle).unwrap().ops.push_back((seq, op));
        let now = self.now;
        self.run_until(now);
    }

    /// Whether a capture of a blocking stream would end invalid with a call on this one.
    fn is_tied(&self, stream: Stream) -> bool {
        stream.is_legacy()
            && self.lanes.values().any(|lane| {
                let other = lane.stream.unwrap();
                lane.capture.is_some() && other.is_ordered_with(stream)
            })
    }

    fn check_tied(&self, stream: Stream) {
        assert!(!self.is_tied(stream), "a call on the legacy default stream ends a capture");
    }

    fn holds_up(&mut self) -> bool {
        self.held_up |= self.stuck;
        self.stuck
    }

    /// A call that breaks other threads' captures, unless it is made relaxed.
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

impl Driver for Gpu {
    fn submit(&self, stream: Stream, command: &Command) -> Result<(), Code> {
        while self.inside().holds_up() {
            thread::yield_now();
        }
        if let Command::Call(call) = command {
            let checked = self.inside().check(stream);
            checked?;
            self.inside().check_tied(stream);
            return call.make(stream.handle);
        }
        let mut inside = self.inside();
        inside.check(stream)?;
        inside.check_tied(stream);
        if matches!(command, Command::Launch(launch) if launch.function == REFUSED) {
            return Err(Code(701));
        }
        let jobs = work::jobs(command, |graph| inside.graphs[&graph].clone());
        inside.enqueue(stream.handle, jobs);
        Ok(())
    }

    fn record(&self, stream: Stream, event: Event) -> Result<(), Code> {
        let mut inside = self.inside();
        inside.check(stream)?;
        inside.check_tied(stream);
        assert!(!inside.destroyed_events.contains(&event.0), "a destroyed event is recorded");
        let capture = inside.lanes[&stream.handle].capture;
        inside.made += 1;
        let record = inside.made;
        inside.events.insert(event.0, (Some(record), capture));
        inside.records.insert(record, None);
        if capture.is_none() {
            inside.push(stream.handle, Op::Record(record));
        }
        Ok(())
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), Code> {
        self.come_to(During::Wait);
        let mut inside = self.inside();
        inside.check(stream)?;
        inside.check_event(event);
        assert!(!inside.destroyed_events.contains(&event.0), "a destroyed event is waited for");
        match inside.events.get(&event.0).copied() {
            None | Some((None, _)) => {}
            Some((Some(_), Some(capture))) => {
                inside.lanes.get_mut(&stream.handle).unwrap().capture = Some(capture);
            }
            Some((Some(_), None)) if inside.lanes[&stream.handle].capture.is_some() => return Err(Code(905)),
            Some((Some(record), None)) => inside.push(stream.handle, Op::Wait(record)),
        }
        Ok(())
    }

    fn create_event(&self, context: Context, _: EventFlags) -> Result<Event, Code> {
        let mut inside = self.inside();
        inside.check_context(context);
        inside.made += 1;
        let event = 0x10_0000 + inside.made;
        inside.event_contexts.insert(event, context.0);
        inside.events.insert(event, (None, None));
        Ok(Event(event))
    }

    fn destroy_event(&self, event: Event) -> Result<(), Code> {
        let mut inside = self.inside();
        inside.check_event(event);
        assert!(inside.destroyed_events.insert(event.0), "an event is destroyed twice");
        inside.events.remove(&event.0);
        Ok(())
    }

    fn query_event(&self, event: Event) -> Result<(), Code> {
        let there = !self.inside().destroyed_events.contains(&event.0);
        self.come_to(During::Query);
        let mut inside = self.inside();
        assert!(
            there != inside.destroyed_events.contains(&event.0),
            "an event is destroyed while somebody asks about it"
        );
        inside.unsafe_call();
        inside.reached(event).map(|_| ())
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
        let inside = self.inside();
        let (from, to) = (inside.reached(from)?, inside.reached(to)?);
        to.zip(from).map(|(to, from)| to.saturating_sub(from)).ok_or(Code::INVALID_HANDLE)
    }

    fn query_stream(&self, stream: Stream) -> Result<(), Code> {
        let mut inside = self.inside();
        inside.check(stream)?;
        inside.unsafe_call();
        if inside.lanes[&stream.handle].ops.is_empty() { Ok(()) } else { Err(Code::NOT_READY) }
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
        let mut inside = self.inside();
        inside.check_context(stream.context);
        let lane = inside.lanes.get_mut(&stream.handle).unwrap();
        assert!(!lane.destroyed, "a stream is destroyed twice");
        lane.destroyed = true;
        drop(inside);
        self.come_to(During::Destroy);
        Ok(())
    }

    fn destroy_graph(&self, graph: u64) -> Result<(), Code> {
        self.inside().graphs.remove(&graph).map(|_| ()).ok_or(Code::INVALID_HANDLE)
    }

    fn is_capturing(&self, stream: Stream) -> bool {
        let answer = {
            let inside = self.inside();
            inside.lanes.get(&stream.handle).is_some_and(|lane| lane.capture.is_some())
                || inside.is_tied(stream)
        };
        self.come_to(During::Capturing);
        let inside = self.inside();
        inside.check_context(stream.context);
        let lane = inside.lanes.get(&stream.handle);
        assert!(lane.is_none_or(|lane| !lane.destroyed), "a destroyed stream is asked for its capture");
        answer
    }

    fn relax(&self, relaxed: bool) -> bool {
        let mut inside = self.inside();
        let thread = thread::current().id();
        if relaxed { !inside.relaxed.insert(thread) } else { inside.relaxed.remove(&thread) }
    }

    fn is_hung(&self, _: Context) -> bool {
        self.inside().hung
    }

    fn gate(&self) -> Option<&dyn Gate> {
        let gates = self.inside().gates;
        gates.then_some(self)
    }

    fn slices(&self) -> Option<&dyn Slices> {
        let slices = self.inside().slices.is_some();
        slices.then_some(self)
    }
}

impl Gate for Gpu {
    fn place(&self, stream: Stream, number: u32) -> Result<(), Code> {
        let mut inside = self.inside();
        inside.check(stream)?;
        if inside.refuses_gates {
            return Err(Code::INVALID_VALUE);
        }
        for op in [Op::Arrive(number), Op::Gate(number), Op::Pass(number)] {
            inside.push(stream.handle, op);
        }
        Ok(())
    }

    fn store(&self, stream: Stream, word: u32) {
        let mut inside = self.inside();
        inside.lanes.get_mut(&stream.handle).unwrap().word = word;
        let now = inside.now;
        inside.run_until(now);
    }

    fn progress(&self, stream: Stream) -> Progress {
        let inside = self.inside();
        let lane = &inside.lanes[&stream.handle];
        Progress { arrived: lane.arrived, passed: lane.passed }
    }
}

impl Slices for Gpu {
    fn hold(&self, stream: Stream) -> Result<(), SliceError> {
        self.come_to(During::Hold);
        let mut inside = self.inside();
        inside.check_context(stream.context);
        assert!(!inside.lanes[&stream.handle].destroyed, "the GPU is taken from a destroyed stream");
        let result = inside.slices.unwrap_or(Ok(()));
        if result.is_ok() {
            let now = inside.now;
            let lane = inside.lanes.get_mut(&stream.handle).unwrap();
            lane.held = true;
            // What is left of the running job.
            lane.ends = lane.ends.map(|ends| ends.saturating_sub(now));
        }
        result
    }

    fn release(&self, stream: Stream) {
        self.come_to(During::Release);
        let mut inside = self.inside();
        inside.check_context(stream.context);
        assert!(!inside.lanes[&stream.handle].destroyed, "the GPU is given back to a destroyed stream");
        let now = inside.now;
        let lane = inside.lanes.get_mut(&stream.handle).unwrap();
        lane.held = false;
        lane.ends = lane.ends.map(|left| now + left);
        inside.run_until(now);
    }
}
