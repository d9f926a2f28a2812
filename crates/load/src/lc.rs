//! The latency-critical generator: a request every period on an absolute schedule. A request is a copy in, a short kernel and a copy out,
//! and then, if the configuration has them, tokens ([`TokenPattern`]).

mod tokens;

pub use tokens::TokenPattern;

use std::io::Write;
use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use crate::driver::{Error, RunError, final_buffer};
use crate::kernel;
use crate::memory::{DeviceBuffer, PinnedBuffer};
use crate::record::{LcCounts, PROGRESS_EVERY, Record, write_line};
use crate::samples::Samples;
use crate::session::{Session, Stream};
use crate::stop::StopCondition;
use tokens::TokenGenerator;

/// Blocks of a kernel that fills every SM of an H200 once.
pub const BLOCKS: u32 = 132;

/// A timer may wake the thread this much late, so the thread polls the clock for the rest of the wait.
const TIMER_SLACK: Duration = Duration::from_micros(80);

/// The configuration of a run.
#[derive(Debug, Clone)]
pub struct LcConfig {
    /// Device ordinal.
    pub device: i32,
    /// Time of a request's kernel on an H200.
    pub duration: Duration,
    /// Time between two requests.
    pub period: Duration,
    /// The largest delay of an arrival as a part of the period, 0..=1. The delays are pseudo-random, and the same in each run.
    pub jitter: f64,
    /// A request answered later than this after its arrival has missed its deadline; default: the period.
    pub deadline: Option<Duration>,
    /// Blocks of 1024 threads per kernel.
    pub blocks: u32,
    /// Words in the buffer that the kernels work on.
    pub elements: u32,
    /// Bytes of a request, and of its answer.
    pub payload: u32,
    /// What follows the first answer of each request.
    pub tokens: Option<TokenPattern>,
    /// Interval of progress records. If it is set, each record covers only the requests since the last one.
    pub report_every: Option<Duration>,
    /// When the run ends.
    pub stop: StopCondition,
}

/// Runs until the configured end and prints [`Record`]s. Latency is measured from a request's scheduled arrival, so it includes the time
/// that the request waits behind a slow one, and ends with its first answer.
/// Errors: the device cannot be set up, or the output cannot be written. A driver error during the run ends it and is in the last record.
pub fn run(config: &LcConfig, out: &mut impl Write) -> Result<(), RunError> {
    let session = Session::open(config.device)?;
    let mut run = Run::start(config, &session)?;
    write_line(&Record::started(&session)?, out)?;
    let ended = run.until_end(out);
    let (buffer, errors) = final_buffer(ended, || run.stream.synchronize().and_then(|()| run.state.words()))?;
    let histogram_us = run.samples.histogram();
    let earlier_us = run.earlier.iter().map(Samples::quantiles).collect();
    Ok(write_line(&Record::LcFinal { counts: run.counts(), buffer, earlier_us, histogram_us, errors }, out)?)
}

struct Run<'s> {
    config: &'s LcConfig,
    stream: Stream<'s>,
    request: PinnedBuffer<'s>,
    answer: PinnedBuffer<'s>,
    input: DeviceBuffer<'s>,
    state: DeviceBuffer<'s>,
    iterations: u32,
    tokens: Option<TokenGenerator<'s>>,
    begin: Instant,
    samples: Samples,
    /// The latencies before each mark.
    earlier: Vec<Samples>,
    requests: u64,
    launches: u64,
    missed: u64,
}

impl<'s> Run<'s> {
    fn start(config: &'s LcConfig, session: &'s Session) -> Result<Self, Error> {
        let payload = config.payload.max(1);
        let state = DeviceBuffer::with_initial_words(session, config.elements.max(1))?;
        let bytes = usize::try_from(payload).map_err(|_| Error::TooLarge(payload.into()))?;
        let answer_bytes =
            usize::try_from(state.bytes().min(payload.into())).map_err(|_| Error::TooLarge(state.bytes()))?;
        let mut run = Self {
            config,
            stream: session.stream()?,
            request: PinnedBuffer::new(session, bytes)?,
            answer: PinnedBuffer::new(session, answer_bytes)?,
            input: DeviceBuffer::new(session, payload.into())?,
            state,
            iterations: kernel::iterations(config.duration),
            tokens: config.tokens.clone().map(|pattern| TokenGenerator::new(pattern, session)).transpose()?,
            begin: Instant::now(),
            samples: Samples::default(),
            earlier: Vec::new(),
            requests: 0,
            launches: 0,
            missed: 0,
        };
        run.answer_one()?;
        run.begin = Instant::now();
        Ok(run)
    }

    fn until_end(&mut self, out: &mut impl Write) -> Result<(), RunError> {
        let deadline = self.config.deadline.unwrap_or(self.config.period);
        let mut jitter = ArrivalJitter::new(self.config.jitter);
        let mut reported = self.begin;
        // The first request arrives one period after the begin.
        let mut scheduled = self.begin + self.config.period;
        loop {
            let arrival = scheduled + self.config.period.mul_f64(jitter.next());
            if self.config.stop.reached(self.begin, arrival, self.launches) {
                return Ok(());
            }
            wait_until(arrival, TIMER_SLACK);
            self.answer_one()?;
            let latency = Instant::now() - arrival;
            if let Some(tokens) = &mut self.tokens {
                self.launches += tokens.generate(&self.stream, &self.state, self.config.blocks)?;
            }
            let now = Instant::now();
            if self.config.stop.marks() > self.earlier.len() as u64 {
                self.earlier.push(mem::take(&mut self.samples));
            }
            self.requests += 1;
            self.samples.push(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
            self.missed += u64::from(latency > deadline);
            scheduled += self.config.period;
            if now - reported >= self.config.report_every.unwrap_or(PROGRESS_EVERY) {
                reported = now;
                write_line(&Record::LcProgress(self.counts()), out)?;
                if self.config.report_every.is_some() {
                    self.samples = Samples::default();
                    self.tokens.iter_mut().for_each(|tokens| tokens.samples = Samples::default());
                }
            }
        }
    }

    fn answer_one(&mut self) -> Result<(), Error> {
        self.request.copy_to(&self.input, &self.stream)?;
        self.stream.launch(&self.state, self.config.blocks, self.iterations)?;
        self.launches += 1;
        self.answer.copy_from(&self.state, &self.stream)?;
        self.stream.synchronize()
    }

    fn counts(&self) -> LcCounts {
        LcCounts {
            seconds: self.begin.elapsed().as_secs_f64(),
            requests: self.requests,
            launches: self.launches,
            missed: self.missed,
            latency_us: self.samples.quantiles(),
            token_us: self.tokens.as_ref().map(|tokens| tokens.samples.quantiles()),
        }
    }
}

/// Sleeps until `poll_time` before `time`, then polls the clock.
pub(crate) fn wait_until(time: Instant, poll_time: Duration) {
    let left = time.saturating_duration_since(Instant::now());
    if left > poll_time {
        thread::sleep(left - poll_time);
    }
    while Instant::now() < time {
        std::hint::spin_loop();
    }
}

/// A fixed pseudo-random sequence in 0..jitter (xorshift), so that two runs have the same arrivals.
pub(crate) struct ArrivalJitter {
    state: u64,
    jitter: f64,
}

impl ArrivalJitter {
    pub(crate) fn new(jitter: f64) -> Self {
        Self { state: 0x9e37_79b9_7f4a_7c15, jitter: jitter.clamp(0.0, 1.0) }
    }

    pub(crate) fn next(&mut self) -> f64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as f64 / (1_u64 << 53) as f64 * self.jitter
    }
}

#[cfg(test)]
mod tests;
