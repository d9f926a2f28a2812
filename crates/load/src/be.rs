//! The best-effort generator: kernels that fill the GPU, back to back, a bounded number in flight.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use crate::driver::{Error, RunError, final_buffer};
use crate::kernel;
use crate::memory::DeviceBuffer;
use crate::record::{BeCounts, PROGRESS_EVERY, Record, write_line};
use crate::session::{Event, Session, Stream};
use crate::stop::StopCondition;

/// Blocks of a kernel that fills every SM of an H200 twice.
pub const BLOCKS: u32 = 264;

/// Time between two steps of memory growth, so that memory grows while kernels run.
const GROW_EVERY: Duration = Duration::from_millis(5);

/// The configuration of a run.
#[derive(Debug, Clone)]
pub struct BeConfig {
    /// Device ordinal.
    pub device: i32,
    /// Time of one kernel on an H200.
    pub duration: Duration,
    /// Kernels in flight, at least 1.
    pub depth: u32,
    /// Blocks of 1024 threads per kernel.
    pub blocks: u32,
    /// Words in the buffer that the kernels work on.
    pub elements: u32,
    /// Bytes of device memory to allocate besides the buffer; a refusal is counted and the run continues.
    pub memory: u64,
    /// Allocate while running until not one more byte is granted.
    pub grow: bool,
    /// Launch nothing after this time, but do not end.
    pub idle_after: Option<Duration>,
    /// Alternate between launching for the first time and pausing for the second.
    pub bursts: Option<(Duration, Duration)>,
    /// After the setup, wait for a mark on standard input.
    pub start_with_mark: bool,
    /// When the run ends.
    pub stop: StopCondition,
}

/// Runs until the configured end and prints [`Record`]s.
/// Errors: the device cannot be set up, or the output cannot be written. A driver error during the run ends it and is in the last record.
pub fn run(config: &BeConfig, out: &mut impl Write) -> Result<(), RunError> {
    let session = Session::open(config.device)?;
    let mut run = Run::start(config, &session)?;
    write_line(&Record::started(&session)?, out)?;
    if config.start_with_mark {
        config.stop.wait_for_mark();
        run.begin = Instant::now();
    }
    let ended = run.until_end(out);
    let (buffer, errors) = final_buffer(ended, || run.drain().and_then(|()| run.buffer.words()))?;
    Ok(write_line(&Record::BeFinal { counts: run.counts(), buffer, errors }, out)?)
}

/// The state of a run. `begin` is the time at which the first kernel was completed.
struct Run<'s> {
    config: &'s BeConfig,
    session: &'s Session,
    stream: Stream<'s>,
    buffer: DeviceBuffer<'s>,
    held: Vec<DeviceBuffer<'s>>,
    growth: Option<Growth>,
    in_flight: Vec<Event<'s>>,
    iterations: u32,
    begin: Instant,
    counts: BeCounts,
    /// When the last kernel was completed; `None` after a pause of the generator.
    last_end: Option<Instant>,
}

impl<'s> Run<'s> {
    fn start(config: &'s BeConfig, session: &'s Session) -> Result<Self, Error> {
        let stream = session.stream()?;
        let buffer = DeviceBuffer::with_initial_words(session, config.elements.max(1))?;
        let in_flight = (0..config.depth.max(1)).map(|_| session.event()).collect::<Result<_, _>>()?;
        let mut run = Self {
            config,
            session,
            stream,
            buffer,
            held: Vec::new(),
            growth: config.grow.then(Growth::default),
            in_flight,
            iterations: kernel::iterations(config.duration),
            begin: Instant::now(),
            counts: BeCounts::default(),
            last_end: None,
        };
        run.launch()?;
        run.drain()?;
        if config.memory > 0 {
            run.hold(config.memory)?;
        }
        run.begin = Instant::now();
        Ok(run)
    }

    fn until_end(&mut self, out: &mut impl Write) -> Result<(), RunError> {
        let (mut reported, mut grown) = (self.begin, self.begin);
        loop {
            let now = Instant::now();
            if self.config.stop.reached(self.begin, now, self.counts.launches) {
                return Ok(());
            }
            if now - reported >= PROGRESS_EVERY {
                reported = now;
                write_line(&Record::BeProgress(self.counts()), out)?;
            }
            if now - grown >= GROW_EVERY {
                grown = now;
                self.grow()?;
            }
            match pause(self.config, now - self.begin) {
                Some(time) => {
                    self.drain()?;
                    self.last_end = None;
                    thread::sleep(time.min(GROW_EVERY));
                }
                None => self.launch()?,
            }
        }
    }

    /// Launches one kernel. Waits for the oldest one first if `depth` are in flight.
    fn launch(&mut self) -> Result<(), Error> {
        let depth = self.in_flight.len() as u64;
        if self.counts.launches - self.counts.completed == depth {
            self.wait_for_oldest()?;
        }
        self.stream.launch(&self.buffer, self.config.blocks, self.iterations)?;
        let index = self.event_index(self.counts.launches);
        self.counts.launches += 1;
        self.in_flight[index].record(&self.stream)
    }

    fn wait_for_oldest(&mut self) -> Result<(), Error> {
        self.in_flight[self.event_index(self.counts.completed)].wait()?;
        self.counts.completed += 1;
        let now = Instant::now();
        if let Some(last) = self.last_end.replace(now) {
            let stall = (now - last).as_secs_f64() * 1e6;
            self.counts.longest_stall_us = self.counts.longest_stall_us.max(stall);
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Error> {
        while self.counts.completed < self.counts.launches {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder of a length")]
    fn event_index(&self, launch: u64) -> usize {
        (launch % self.in_flight.len() as u64) as usize
    }

    /// Allocates `bytes` and keeps them. Returns whether they were granted; a refusal is counted.
    fn hold(&mut self, bytes: u64) -> Result<bool, Error> {
        match DeviceBuffer::new(self.session, bytes) {
            Ok(chunk) => {
                self.held.push(chunk);
                self.count_memory();
                Ok(true)
            }
            Err(why) if why.is_out_of_memory() => {
                self.counts.denied += 1;
                Ok(false)
            }
            Err(why) => Err(why),
        }
    }

    fn grow(&mut self) -> Result<(), Error> {
        let Some(bytes) = self.growth.as_ref().and_then(Growth::next) else { return Ok(()) };
        if !self.hold(bytes)?
            && let Some(growth) = &mut self.growth
        {
            growth.refused();
        }
        Ok(())
    }

    fn count_memory(&mut self) {
        self.counts.held_bytes = self.buffer.bytes() + self.held.iter().map(DeviceBuffer::bytes).sum::<u64>();
        self.counts.peak_bytes = self.counts.peak_bytes.max(self.counts.held_bytes);
    }

    fn counts(&mut self) -> BeCounts {
        self.count_memory();
        self.counts.seconds = self.begin.elapsed().as_secs_f64();
        self.counts.clone()
    }
}

/// The remaining time of a pause at `elapsed` since the begin; `None` while the generator launches.
fn pause(config: &BeConfig, elapsed: Duration) -> Option<Duration> {
    if config.idle_after.is_some_and(|after| elapsed >= after) {
        return Some(Duration::MAX);
    }
    let (burst, gap) = config.bursts?;
    let cycle = (burst + gap).as_nanos().max(1);
    let into = elapsed.as_nanos() % cycle;
    let left = u64::try_from(cycle - into).unwrap_or(u64::MAX);
    (into >= burst.as_nanos()).then(|| Duration::from_nanos(left))
}

/// The largest chunk, bytes.
const FIRST_CHUNK: u64 = 64 << 20;

/// Allocation sizes that fill a memory limit to the byte: large chunks first, half the size after each refusal. When one byte is
/// refused, the limit is reached exactly.
struct Growth {
    /// Size in bytes; zero when the limit is reached.
    next: u64,
}

impl Default for Growth {
    fn default() -> Self {
        Self { next: FIRST_CHUNK }
    }
}

impl Growth {
    /// Bytes to allocate next, or `None` when the limit is reached.
    fn next(&self) -> Option<u64> {
        (self.next > 0).then_some(self.next)
    }

    /// Records that the allocation of [`Growth::next`] was refused.
    fn refused(&mut self) {
        self.next /= 2;
    }
}

#[cfg(test)]
mod tests;
