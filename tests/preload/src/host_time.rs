//! Processor time that the host of this machine gives to other machines ("steal" in /proc/stat).
//!
//! A test with a bound on real time cannot judge the time that the host has taken. It allows for exactly that time: nothing on a quiet
//! machine. The allowance depends on the host alone, never on what the test measures.

use std::fs;
use std::time::Instant;

/// Measures what the host takes from a moment on.
pub struct HostTime {
    begin: Instant,
    stolen_ns: u64,
}

impl HostTime {
    /// Begins to measure.
    ///
    /// # Panics
    /// When /proc/stat cannot be read.
    pub fn begin() -> Self {
        Self { begin: Instant::now(), stolen_ns: stolen_ns() }
    }

    /// Time that the host has taken from all processors together, nanoseconds.
    ///
    /// # Panics
    /// When /proc/stat cannot be read.
    pub fn taken_ns(&self) -> u64 {
        stolen_ns() - self.stolen_ns
    }

    /// The same as part of the time that has passed: by so much may a share of that time differ.
    ///
    /// # Panics
    /// When /proc/stat cannot be read.
    pub fn taken(&self) -> f64 {
        self.taken_ns() as f64 / self.begin.elapsed().as_nanos().max(1) as f64
    }
}

fn stolen_ns() -> u64 {
    /// A tick of /proc/stat: USER_HZ is 100 for every program.
    const TICK_NS: u64 = 10_000_000;
    let stat = fs::read_to_string("/proc/stat").unwrap_or_else(|error| panic!("reading /proc/stat: {error}"));
    let ticks = stolen_ticks(&stat).unwrap_or_else(|| panic!("no steal time in /proc/stat: {stat}"));
    ticks * TICK_NS
}

/// The eighth number of the first line, which sums up all processors.
fn stolen_ticks(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(8)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number() {
        assert_eq!(stolen_ticks("cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 1 2\n"), Some(88));
        assert_eq!(stolen_ticks("cpu  1 2 3\n"), None);
    }
}
