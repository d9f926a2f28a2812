//! The best-effort generator on command: kernels back to back, a bounded number in flight, and the times of their completion.

use std::collections::VecDeque;
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use super::{Answer, Command, HookApi, LaunchEvidence, RunResult, WORDS, next_command, unix_ns};
use crate::be::BLOCKS;
use crate::driver::{Error, RunError};
use crate::kernel;
use crate::memory::DeviceBuffer;
use crate::record::write_line;
use crate::session::{Event, Session, Stream};

/// Events in flight. There is work behind each, so the GPU stays busy while the host wakes up.
const DEPTH: usize = 8;
/// Kernels share an event up to this much work, because waiting for each very short kernel would slow the generator down.
const WORK_PER_EVENT: Duration = Duration::from_micros(100);

/// Executes [`Command::Run`] and [`Command::Stop`] until the input ends.
pub fn run(
    device: i32,
    mut input: impl BufRead + Send + 'static,
    out: &mut impl Write,
) -> Result<(), RunError> {
    let session = Session::open(device)?;
    let mut worker = Worker {
        stream: session.stream()?,
        buffer: DeviceBuffer::with_initial_words(&session, WORDS)?,
        idle: (0..DEPTH).map(|_| session.event()).collect::<Result<_, _>>()?,
        in_flight: VecDeque::new(),
        launches: 0,
        completed: Vec::new(),
    };
    worker.launch(1, 0)?;
    worker.drain()?;
    write_line(&Answer::ready(&session, &HookApi::find()), out)?;
    let (sender, commands) = channel();
    thread::Builder::new().name("commands".to_owned()).spawn(move || {
        loop {
            let next = next_command(&mut input);
            let last = !matches!(next, Ok(Some(_)));
            if sender.send(next).is_err() || last {
                return;
            }
        }
    })?;
    while let Ok(command) = commands.recv() {
        match command? {
            None => break,
            Some(Command::Run { kernel_us }) => {
                let length = Duration::try_from_secs_f64(kernel_us / 1e6).unwrap_or_default();
                let Some((from_ns, to_ns)) = worker.run(length, &commands, out)? else { break };
                write_line(&Answer::Ran(worker.measurement(from_ns, to_ns)?), out)?;
            }
            Some(_) => {}
        }
    }
    Ok(())
}

struct Worker<'s> {
    stream: Stream<'s>,
    buffer: DeviceBuffer<'s>,
    idle: Vec<Event<'s>>,
    /// Events with the launches up to each.
    in_flight: VecDeque<(Event<'s>, u64)>,
    launches: u64,
    /// (time, kernels completed by then) since the begin of [`Worker::run`], in order.
    completed: Vec<(u64, u64)>,
}

impl Worker<'_> {
    /// Runs until [`Command::Stop`] and returns its span, or `None` at the end of the input.
    fn run(
        &mut self,
        length: Duration,
        commands: &Receiver<Result<Option<Command>, RunError>>,
        out: &mut impl Write,
    ) -> Result<Option<(u64, u64)>, RunError> {
        let kernels = WORK_PER_EVENT.as_nanos() / length.as_nanos().max(1);
        let (kernels, iterations) =
            (u32::try_from(kernels).unwrap_or(1).clamp(1, 64), kernel::iterations(length));
        // All earlier kernels are completed.
        self.completed = vec![(unix_ns(), self.launches)];
        let mut has_answered = false;
        loop {
            self.launch(kernels, iterations)?;
            if self.idle.is_empty() {
                self.wait_for_oldest()?;
            }
            if !has_answered && self.completed.len() > 1 {
                has_answered = true;
                write_line(&Answer::Running, out)?;
            }
            match commands.try_recv() {
                Err(TryRecvError::Empty) => {}
                Ok(command) => match command? {
                    Some(Command::Stop { from_ns, to_ns }) => {
                        self.drain()?;
                        return Ok(Some((from_ns, to_ns)));
                    }
                    Some(_) => {}
                    None => return Ok(None),
                },
                Err(TryRecvError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Launches this many kernels and records an event behind them. One event must be idle.
    fn launch(&mut self, kernels: u32, iterations: u32) -> Result<(), Error> {
        for _ in 0..kernels {
            self.stream.launch(&self.buffer, BLOCKS, iterations)?;
            self.launches += 1;
        }
        if let Some(event) = self.idle.pop() {
            event.record(&self.stream)?;
            self.in_flight.push_back((event, self.launches));
        }
        Ok(())
    }

    fn wait_for_oldest(&mut self) -> Result<(), Error> {
        if let Some((event, launches)) = self.in_flight.pop_front() {
            event.wait()?;
            // The times stay in order even if the clock is set back.
            let last = self.completed.last().map_or(0, |(when, _)| *when);
            self.completed.push((unix_ns().max(last), launches));
            self.idle.push(event);
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Error> {
        while !self.in_flight.is_empty() {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    fn measurement(&self, from_ns: u64, to_ns: u64) -> Result<RunResult, Error> {
        let (kernels, span_ns) =
            (kernels_within(&self.completed, from_ns, to_ns), to_ns.saturating_sub(from_ns));
        let (before_ns, first_ns) = gaps_around(&self.completed, from_ns);
        let proof = LaunchEvidence::read(self.launches, &self.buffer)?;
        Ok(RunResult { kernels, span_ns, before_ns, first_ns, proof })
    }
}

/// Kernels completed in a span. `samples` are (time, kernels completed by then), in order, in nanoseconds of one clock.
/// The span is never shortened: a program that is stopped at its begin or end has completed fewer.
fn kernels_within(samples: &[(u64, u64)], from_ns: u64, to_ns: u64) -> f64 {
    (completed_by(samples, to_ns) - completed_by(samples, from_ns)).max(0.0)
}

/// Kernels completed at a time, interpolated between the samples before and after it.
fn completed_by(samples: &[(u64, u64)], time: u64) -> f64 {
    let next = samples.partition_point(|(sampled, _)| *sampled < time);
    let before = next.checked_sub(1).and_then(|last| samples.get(last));
    match (before, samples.get(next)) {
        (Some(before), Some(after)) => {
            let part = (time - before.0) as f64 / (after.0 - before.0) as f64;
            before.1 as f64 + part * (after.1 - before.1) as f64
        }
        (Some(only), None) | (None, Some(only)) => only.1 as f64,
        (None, None) => 0.0,
    }
}

/// The times from the last sample before `time` to it, and from it to the next sample.
fn gaps_around(samples: &[(u64, u64)], time: u64) -> (Option<u64>, Option<u64>) {
    let next = samples.partition_point(|(sampled, _)| *sampled < time);
    let before = next.checked_sub(1).and_then(|last| samples.get(last));
    (before.map(|(sampled, _)| time - sampled), samples.get(next).map(|(sampled, _)| sampled - time))
}

#[cfg(test)]
mod tests;
