//! A record of steps and their times that the threads of several processes write into one memfd: for benchmarks of what passes between
//! processes.

use crate::clock;
use crate::page::SharedRegion;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// Words of the file: the number of steps, then one word for each step.
const WORDS: usize = 1 << 15;
/// Words of a page of memory.
const PAGE: usize = 512;
/// The upper bits of a word are the step, the others its time: enough for two years since the machine started.
const TIME_BITS: u32 = 56;

/// The record.
#[derive(Debug)]
pub struct StepLog(SharedRegion);

impl StepLog {
    /// An empty record, and the file behind it. Errors: those of [`SharedRegion::create`].
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let (region, file) = SharedRegion::create("sluice-steps", WORDS)?;
        Ok((Self(region), file))
    }

    /// The record of another process, under a path such as `/proc/PID/fd/N`.
    /// Errors: the file cannot be opened for writing, or is not what [`Self::create`] makes.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = std::fs::File::options().read(true).write(true).open(path)?;
        let region = SharedRegion::map(file.as_fd(), WORDS)?;
        // A page that is first written in a step would delay it.
        region.words().iter().step_by(PAGE).for_each(|word| _ = word.fetch_or(0, AcqRel));
        Ok(Self(region))
    }

    /// Adds a step at the present time. When the record is full, steps are dropped.
    pub fn record(&self, step: u8) {
        let time = clock::monotonic_ns() & ((1 << TIME_BITS) - 1);
        let [count, steps @ ..] = self.0.words() else { return };
        let at = usize::try_from(count.fetch_add(1, AcqRel)).unwrap_or(usize::MAX);
        if let Some(word) = steps.get(at) {
            word.store(u64::from(step) << TIME_BITS | time, Release);
        }
    }

    /// Takes all steps and their times. Steps that another thread adds at this moment may be lost.
    pub fn take(&self) -> Vec<(u8, u64)> {
        let [count, steps @ ..] = self.0.words() else { return Vec::new() };
        let recorded = usize::try_from(count.swap(0, AcqRel)).unwrap_or(usize::MAX).min(steps.len());
        let words = steps[..recorded].iter().map(|word| word.load(Acquire));
        words.map(|word| ((word >> TIME_BITS) as u8, word & ((1 << TIME_BITS) - 1))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn steps_recorded_through_the_path_are_taken_in_order_with_their_times() {
        let (log, file) = StepLog::create().unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let other = StepLog::open(Path::new(&path)).unwrap();
        let begin = clock::monotonic_ns();
        other.record(7);
        other.record(3);
        let taken = log.take();
        assert_eq!(taken.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [7, 3]);
        assert!(begin <= taken[0].1 && taken[0].1 <= taken[1].1 && taken[1].1 <= clock::monotonic_ns());
        assert!(log.take().is_empty());
    }

    #[test]
    fn file_of_another_size_is_refused() {
        let (_region, file) = SharedRegion::create("other", PAGE).unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        assert_eq!(StepLog::open(Path::new(&path)).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
