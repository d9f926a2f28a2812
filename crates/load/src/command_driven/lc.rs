//! The latency-critical generator on command: requests of short kernels that arrive at a rate, whether or not the last one is answered.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use super::{Answer, Command, HookApi, LaunchEvidence, ServeResult, WORDS, next_command, unix_ns};
use crate::driver::{Error, RunError};
use crate::kernel;
use crate::lc::{ArrivalJitter, BLOCKS, wait_until};
use crate::memory::DeviceBuffer;
use crate::record::write_line;
use crate::session::{Session, Stream};

/// The largest delay of an arrival as a part of the period. Exactly periodic arrivals could keep step with another process's time slices.
const JITTER: f64 = 0.25;
/// The longest time from a hint to its request, microseconds.
pub const MAX_LEAD_US: u32 = 5_000;
/// Time from a command to its first arrival, so that a hint fits before it.
const FIRST_ARRIVAL: Duration = Duration::from_micros(MAX_LEAD_US as u64);
/// Before an arrival the thread polls the clock for this time instead of sleeping. Waking up takes some hundred microseconds on some
/// machines and must not be part of the latency.
const POLL_TIME: Duration = Duration::from_millis(1);
/// A block ends early if a request has a latency above this.
const MAX_LATENCY: Duration = Duration::from_secs(5);

/// The kernels of a request.
#[derive(Debug, Clone)]
pub struct LcConfig {
    /// Device ordinal.
    pub device: i32,
    /// Kernels of a request, one after the other; at least 1.
    pub kernels: u32,
    /// Time of each on an H200.
    pub duration: Duration,
}

/// Executes [`Command::Serve`] until the input ends.
pub fn run(config: &LcConfig, input: &mut impl BufRead, out: &mut impl Write) -> Result<(), RunError> {
    let session = Session::open(config.device)?;
    let mut server = Server {
        config,
        stream: session.stream()?,
        buffer: DeviceBuffer::with_initial_words(&session, WORDS)?,
        iterations: kernel::iterations(config.duration),
        hook: HookApi::find(),
        launches: 0,
    };
    server.answer_one()?;
    write_line(&Answer::ready(&session, &server.hook), out)?;
    while let Some(command) = next_command(input)? {
        if let Command::Serve { requests, warm_up, period_us, lead_us } = command {
            let period = Duration::try_from_secs_f64(period_us / 1e6).unwrap_or_default();
            write_line(&Answer::Served(server.serve(requests, warm_up, period, lead_us)?), out)?;
        }
    }
    Ok(())
}

struct Server<'s> {
    config: &'s LcConfig,
    stream: Stream<'s>,
    buffer: DeviceBuffer<'s>,
    iterations: u32,
    hook: HookApi,
    launches: u64,
}

impl Server<'_> {
    fn serve(
        &mut self,
        requests: u32,
        warm_up: u32,
        period: Duration,
        lead_us: u32,
    ) -> Result<ServeResult, Error> {
        let (begin, begin_ns) = (Instant::now(), unix_ns());
        let holds = self.hook.hold_kernels();
        let mut jitter = ArrivalJitter::new(JITTER);
        let mut hints = BTreeMap::new();
        let mut latencies_ns = Vec::with_capacity(requests as usize);
        let at = |moment: Instant| begin_ns.saturating_add(nanoseconds(moment - begin));
        let (mut from_ns, mut to_ns) = (begin_ns, begin_ns);
        for nth in 0..warm_up.saturating_add(requests) {
            let due = begin + FIRST_ARRIVAL + period * nth + period.mul_f64(jitter.next());
            if lead_us > 0 {
                wait_until(due - Duration::from_micros(lead_us.min(MAX_LEAD_US).into()), POLL_TIME);
                if let Some(code) = self.hook.hint(lead_us) {
                    *hints.entry(code).or_insert(0) += u64::from(nth >= warm_up);
                }
            }
            wait_until(due, POLL_TIME);
            self.answer_one()?;
            let now = Instant::now();
            if nth == warm_up {
                from_ns = at(due);
            }
            if nth >= warm_up {
                latencies_ns.push(nanoseconds(now - due));
            }
            to_ns = at(now);
            if now - due > MAX_LATENCY {
                break;
            }
        }
        let hints = hints.into_iter().filter(|(_, times)| *times > 0);
        let hints = hints.map(|(code, times): (i32, u64)| (code.to_string(), times)).collect();
        let proof = LaunchEvidence::read(self.launches, &self.buffer)?;
        Ok(ServeResult {
            latencies_ns,
            from_ns,
            to_ns,
            hints,
            holds: self.hook.hold_kernels() - holds,
            proof,
        })
    }

    fn answer_one(&mut self) -> Result<(), Error> {
        for _ in 0..self.config.kernels.max(1) {
            self.stream.launch(&self.buffer, BLOCKS, self.iterations)?;
            self.launches += 1;
        }
        self.stream.synchronize()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
