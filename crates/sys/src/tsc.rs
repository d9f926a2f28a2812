//! The processor's time-stamp counter, and its relation to CLOCK_MONOTONIC.
//!
//! Reading the counter costs a few nanoseconds and no system call, which is why deadlines are compared with it.

use crate::clock;
use std::time::Duration;

/// The counter. It may be read a little before or after neighbouring instructions.
#[inline]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: rdtsc exists on every x86-64 and has no effect but its result.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    clock::monotonic_ns()
}

/// Whether the counter runs at one constant rate in all states of the processor, as CPUID reports it.
///
/// False on other architectures than x86-64, whose counters are not used.
pub fn invariant() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        const EXTENDED: u32 = 0x8000_0000;
        const POWER: u32 = 0x8000_0007;
        use std::arch::x86_64::__cpuid;
        __cpuid(EXTENDED).eax >= POWER && __cpuid(POWER).edx & (1 << 8) != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// How counter and CLOCK_MONOTONIC relate: one moment on both, and the rate between them.
///
/// NTP adjusts CLOCK_MONOTONIC but not the counter, so they drift apart by up to some parts per million from the last
/// measured moment. For conversions far from it, call [`refresh`](Calibration::refresh) about every second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calibration {
    base: Moment,
    /// Rate as a fraction: this many ticks ...
    ticks: u64,
    /// ... in this many nanoseconds. Both below 2^48 and above 0.
    ns: u64,
    /// The counter was set since the rate was measured, and may run at another rate.
    is_rate_uncertain: bool,
}

/// A refresh less than this after the last one is too close to measure a rate, in nanoseconds.
const REFRESH_NS: u64 = 10_000_000;

/// The largest difference between counter and clock since the last refresh that is taken for drift, in nanoseconds, besides
/// a thousandth of the time between. NTP adjusts the clock by at most half a thousandth. A larger difference means that the
/// counter was set: a virtual machine was moved to another host, or suspended.
const DRIFT_NS: u64 = 1_000_000;

/// One moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The counter.
    pub ticks: u64,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub ns: u64,
}

impl Moment {
    /// Reads both clocks as closely together as possible: the best of a few attempts, good to some tens of nanoseconds.
    pub fn read() -> Self {
        let mut best = Self { ticks: now(), ns: clock::monotonic_ns() };
        let mut narrowest = u64::MAX;
        for _ in 0..16 {
            let before = now();
            let ns = clock::monotonic_ns();
            let width = now().wrapping_sub(before);
            if width < narrowest {
                (narrowest, best) = (width, Self { ticks: before.wrapping_add(width / 2), ns });
            }
        }
        best
    }
}

impl Calibration {
    /// Measures for about 20 ms. `None` if the counter is unusable: not invariant, or removed from the kernel's list of
    /// clocks (for example because the counters of two sockets differ).
    pub fn measure() -> Option<Self> {
        if !invariant() || !listed(AVAILABLE) {
            return None;
        }
        let first = Moment::read();
        std::thread::sleep(Duration::from_millis(20));
        Self::between(first, Moment::read())
    }

    /// From two moments, the second after the first.
    pub fn between(first: Moment, second: Moment) -> Option<Self> {
        let ticks = second.ticks.checked_sub(first.ticks)?;
        let ns = second.ns.checked_sub(first.ns)?;
        // 48 bits leave the rate exact to 10^-14 and the products below within 128 bits.
        let spare = (u64::BITS - (ticks | ns).leading_zeros()).saturating_sub(48);
        let (ticks, ns) = (ticks >> spare, ns >> spare);
        (ticks > 0 && ns > 0).then_some(Self { base: second, ticks, ns, is_rate_uncertain: false })
    }

    /// Takes the present moment as the one to convert from, and the rate since the last as the rate, unless the two are
    /// less than 10 ms apart. Conversions before and after may differ by the drift of the clocks in between.
    pub fn refresh(&mut self) {
        self.refresh_at(Moment::read());
    }

    /// [`refresh`](Self::refresh) for a moment read elsewhere.
    ///
    /// If the counter was set since the last refresh, also to a lower value, conversions start from this moment with the
    /// rate from before. The next refresh measures the rate.
    pub fn refresh_at(&mut self, moment: Moment) {
        let elapsed = moment.ns.saturating_sub(self.base.ns);
        if elapsed < REFRESH_NS {
            return;
        }
        let expected = self.ns_at(moment.ticks).abs_diff(moment.ns) <= DRIFT_NS + elapsed / 1000;
        match Self::between(self.base, moment) {
            Some(fresh) if expected || self.is_rate_uncertain => *self = fresh,
            _ => (self.base, self.is_rate_uncertain) = (moment, true),
        }
    }

    /// Whether the counter was set since the rate was measured: [`refresh`](Self::refresh) soon measures it.
    pub fn is_rate_uncertain(&self) -> bool {
        self.is_rate_uncertain
    }

    /// The counter's value when CLOCK_MONOTONIC shows `monotonic_ns`; 0 or `u64::MAX` if it is outside its range.
    pub fn ticks_at(&self, monotonic_ns: u64) -> u64 {
        convert(monotonic_ns, self.base.ns, self.ns, self.base.ticks, self.ticks)
    }

    /// CLOCK_MONOTONIC in nanoseconds when the counter shows `ticks`; 0 or `u64::MAX` if it is outside its range.
    pub fn ns_at(&self, ticks: u64) -> u64 {
        convert(ticks, self.base.ticks, self.ticks, self.base.ns, self.ns)
    }
}

/// `to + (value - from) * to_rate / from_rate`, rounded down, so that a later value never converts to an earlier one.
fn convert(value: u64, from: u64, from_rate: u64, to: u64, to_rate: u64) -> u64 {
    // 65 bits times 48 bits fit into 127. The divisor is positive.
    let distance = (i128::from(value) - i128::from(from)) * i128::from(to_rate);
    let there = i128::from(to) + distance.div_euclid(i128::from(from_rate).max(1));
    u64::try_from(there.max(0)).unwrap_or(u64::MAX)
}

/// Linux's list of usable clocks.
const AVAILABLE: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

/// Whether the kernel lists the TSC. If the list cannot be read, CPUID's answer decides.
fn listed(path: &str) -> bool {
    std::fs::read_to_string(path).map_or(true, |clocks| clocks.split_whitespace().any(|clock| clock == "tsc"))
}
