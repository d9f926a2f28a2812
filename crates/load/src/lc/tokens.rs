//! The tokens behind a request's first answer, as a language model generates them: launches, a copy of 8 bytes to the host, a wait, and the
//! host's own time before the next token.

use std::time::{Duration, Instant};

use super::wait_until;
use crate::driver::Error;
use crate::kernel;
use crate::memory::{DeviceBuffer, PinnedBuffer};
use crate::samples::Samples;
use crate::session::{Session, Stream};

/// Bytes of a token's answer.
const ANSWER_BYTES: usize = 8;

/// The tokens of a request.
#[derive(Debug, Clone)]
pub struct TokenPattern {
    /// Tokens behind the first answer.
    pub tokens: u32,
    /// GPU time of a token on an H200, all its launches together.
    pub duration: Duration,
    /// Kernels of a token: one stands for a graph, some hundred for a program that launches each operation.
    pub launches: u32,
    /// The host's own time before each launch.
    pub launch_gap: Duration,
    /// The host's own time between an answer and the next token.
    pub gap: Duration,
}

impl TokenPattern {
    /// Iterations of one of a token's kernels.
    fn iterations(&self) -> u32 {
        kernel::iterations(self.duration / self.launches.max(1))
    }
}

/// Generates the tokens, and measures the time of each.
#[derive(Debug)]
pub(super) struct TokenGenerator<'s> {
    pattern: TokenPattern,
    answer: PinnedBuffer<'s>,
    /// Time from one answer to the next.
    pub(super) samples: Samples,
}

impl<'s> TokenGenerator<'s> {
    pub(super) fn new(pattern: TokenPattern, session: &'s Session) -> Result<Self, Error> {
        Ok(Self { pattern, answer: PinnedBuffer::new(session, ANSWER_BYTES)?, samples: Samples::default() })
    }

    /// Generates the tokens of a request whose first answer came just now. Returns the number of launches.
    pub(super) fn generate(
        &mut self,
        stream: &Stream<'_>,
        state: &DeviceBuffer<'_>,
        blocks: u32,
    ) -> Result<u64, Error> {
        let iterations = self.pattern.iterations();
        let mut answered = Instant::now();
        for _ in 0..self.pattern.tokens {
            poll_for(self.pattern.gap);
            for _ in 0..self.pattern.launches {
                poll_for(self.pattern.launch_gap);
                stream.launch(state, blocks, iterations)?;
            }
            self.answer.copy_from(state, stream)?;
            stream.synchronize()?;
            let now = Instant::now();
            self.samples.push(u64::try_from((now - answered).as_nanos()).unwrap_or(u64::MAX));
            answered = now;
        }
        Ok(u64::from(self.pattern.tokens) * u64::from(self.pattern.launches))
    }
}

/// Occupies the core for this time, as a program's own work does.
fn poll_for(time: Duration) {
    if !time.is_zero() {
        wait_until(Instant::now() + time, time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(launches: u32) -> TokenPattern {
        let gap = Duration::ZERO;
        TokenPattern { tokens: 1, duration: Duration::from_millis(1), launches, launch_gap: gap, gap }
    }

    #[test]
    fn launches_of_a_token_divide_its_gpu_time() {
        let whole = pattern(1).iterations();
        assert_eq!(whole, kernel::iterations(Duration::from_millis(1)));
        assert_eq!(pattern(300).iterations(), kernel::iterations(Duration::from_nanos(3_333)));
        assert_eq!(pattern(0).iterations(), whole, "a token without launches has no kernel to divide");
    }
}
