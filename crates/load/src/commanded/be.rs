//! The best-effort one: kernels back to back, a bounded number in flight, and when they were seen to end.

use std::collections::VecDeque;
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use super::program::Hook;
use super::{Answer, Command, Proof, Ran, next_command, unix_ns};
use crate::be::BLOCKS;
use crate::driver::Error;
use crate::kernel;
use crate::memory::DeviceBuffer;
use crate::record::BufferState;
use crate::report::RunError;
use crate::session::{Event, Session, Stream};

/// Events in flight. There is work behind each, so the GPU does not run dry while the host wakes up.
const DEPTH: usize = 8;
/// Kernels share an event up to this much work, as waiting for each of very short ones would slow them down.
const WORK_PER_EVENT: Duration = Duration::from_micros(100);
/// Words of the buffer that every kernel changes.
const WORDS: u32 = 64;

/// Answers [`Command::Run`] and [`Command::Stop`] until the input ends.
///
/// # Errors
/// Those of the driver, of the output, and commands that are none.
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
        ended: Vec::new(),
    };
    worker.launch(1, 0)?;
    worker.drain()?;
    let name = session.device_name().to_owned();
    Answer::Ready { pid: std::process::id(), device: name, hooked: Hook::find().is_there() }.write_to(out)?;
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
                Answer::Ran(worker.told(from_ns, to_ns)?).write_to(out)?;
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
    /// When so many kernels were first seen to have ended, from the begin of [`Worker::run`] on.
    ended: Vec<(u64, u64)>,
}

impl Worker<'_> {
    /// Runs until it is told to stop; the span that is asked for, or `None` at the end of the input.
    fn run(
        &mut self,
        length: Duration,
        commands: &Receiver<Result<Option<Command>, RunError>>,
        out: &mut impl Write,
    ) -> Result<Option<(u64, u64)>, RunError> {
        let kernels = WORK_PER_EVENT.as_nanos() / length.as_nanos().max(1);
        let (kernels, iterations) =
            (u32::try_from(kernels).unwrap_or(1).clamp(1, 64), kernel::iterations(length));
        // Everything before has ended.
        self.ended = vec![(unix_ns(), self.launches)];
        let mut told = false;
        loop {
            self.launch(kernels, iterations)?;
            if self.idle.is_empty() {
                self.wait_for_oldest()?;
            }
            if !told && self.ended.len() > 1 {
                told = true;
                Answer::Running.write_to(out)?;
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

    /// Launches so many kernels and an event behind them; one must be idle.
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
            self.ended.push((unix_ns(), launches));
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

    fn told(&self, from_ns: u64, to_ns: u64) -> Result<Ran, Error> {
        let (kernels, span_ns) = (within(&self.ended, from_ns, to_ns), to_ns.saturating_sub(from_ns));
        let (before_ns, first_ns) = around(&self.ended, from_ns);
        let proof = Proof { launches: self.launches, buffer: BufferState::of(&self.buffer.words()?) };
        Ok(Ran { kernels, span_ns, before_ns, first_ns, proof })
    }
}

/// Kernels of a span. It is the whole of the span: who stands at its begin or to its end gets no more for that.
fn within(ended: &[(u64, u64)], from_ns: u64, to_ns: u64) -> f64 {
    (up_to(ended, to_ns) - up_to(ended, from_ns)).max(0.0)
}

/// Kernels that had ended at a moment. Those that ended between the looks before and after it count in proportion to the time.
fn up_to(ended: &[(u64, u64)], moment: u64) -> f64 {
    let next = ended.partition_point(|(when, _)| *when < moment);
    let before = next.checked_sub(1).and_then(|last| ended.get(last));
    match (before, ended.get(next)) {
        (Some(before), Some(after)) => {
            let part = (moment - before.0) as f64 / (after.0 - before.0) as f64;
            before.1 as f64 + part * (after.1 - before.1) as f64
        }
        (Some(only), None) | (None, Some(only)) => only.1 as f64,
        (None, None) => 0.0,
    }
}

/// From the last look before a moment to it, and from it to the next look.
fn around(ended: &[(u64, u64)], moment: u64) -> (Option<u64>, Option<u64>) {
    let next = ended.partition_point(|(when, _)| *when < moment);
    let before = next.checked_sub(1).and_then(|last| ended.get(last));
    (before.map(|(when, _)| moment - when), ended.get(next).map(|(when, _)| when - moment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn counts(ended: &[(u64, u64)], from_ns: u64, to_ns: u64, kernels: f64) {
        let found = within(ended, from_ns, to_ns);
        assert!((found - kernels).abs() < 1e-9, "{found} instead of {kernels}");
    }

    #[test]
    fn kernels_that_end_at_the_ends_of_a_span_count_in_part() {
        let ended = [(10, 1), (20, 2), (30, 4), (40, 7), (50, 8)];
        counts(&ended, 20, 40, 5.0);
        counts(&ended, 15, 45, 6.0);
        counts(&ended, 20, 20, 0.0);
        counts(&ended, 60, 90, 0.0);
        counts(&[], 0, 90, 0.0);
    }

    #[test]
    fn a_span_in_which_somebody_stands_counts_as_a_whole() {
        let stood_to_the_end = [(0, 0), (100, 10), (1100, 11), (1200, 21)];
        counts(&stood_to_the_end, 0, 600, 10.5);
        let stood_all_along = [(0, 0), (100, 10), (1100, 11)];
        counts(&stood_all_along, 200, 1000, 0.8);
    }

    #[test]
    fn a_moment_lies_between_two_looks() {
        let ended = [(10, 1), (20, 2), (50, 4)];
        assert_eq!(around(&ended, 27), (Some(7), Some(23)));
        assert_eq!(around(&ended, 20), (Some(10), Some(0)));
        assert_eq!(around(&ended, 5), (None, Some(5)));
        assert_eq!(around(&ended, 51), (Some(1), None));
    }
}
