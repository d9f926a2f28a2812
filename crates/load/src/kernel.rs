//! The kernel of the generators, `spin(ptr, n, iters)`: a fixed amount of dependent arithmetic, then one step of `mix` on `n` words.
//!
//! `mix` is not idempotent, so the buffer shows how many kernels ran: a lost or repeated kernel changes its checksum.

use std::time::Duration;

/// Name of the kernel in both module texts.
pub const NAME: &str = "spin";

/// The kernel for a GPU, any since sm_50, before its innermost line is repeated.
const PTX: &str = include_str!("kernels/spin.ptx");
/// The marked line that [`module_for`] repeats, and how often.
const REPEATED: (&str, usize) = ("    fma.rn.f32 %x, %x, %a, %b; // 256 times\n", 256);

/// The same kernel for the simulator.
pub const SIMULATED: &str = include_str!("kernels/spin.sim");

/// Prefix of the device names of simulated GPUs.
pub const SIMULATED_DEVICE: &str = "Sluice Simulated";

/// Time of one iteration on an H200 at 1.98 GHz (four cycles), in nanoseconds.
pub const NS_PER_ITERATION: f64 = 2.02;

/// Threads per block of every launch.
pub const BLOCK: u32 = 1024;

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

/// The module text for a device of this name.
pub fn module_for(device_name: &str) -> String {
    if device_name.starts_with(SIMULATED_DEVICE) {
        return SIMULATED.to_owned();
    }
    let (line, times) = REPEATED;
    PTX.replace(line, &line.replace(" // 256 times", "").repeat(times))
}

/// Iterations that take about `duration` on an H200; saturates at 2^31.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=2^31 first")]
pub fn iterations(duration: Duration) -> u32 {
    (duration.as_secs_f64() * 1e9 / NS_PER_ITERATION).round().clamp(0.0, f64::from(1_u32 << 31)) as u32
}

/// Word `index` of a buffer before the first launch.
pub fn initial(index: u64) -> u64 {
    index.rotate_left(17) ^ 0x51_u64
}

/// Word `index` after one more launch.
pub fn mix(word: u64, index: u64) -> u64 {
    word.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT).wrapping_add(index)
}

/// Checksum of a buffer; it depends on every word and its index (FNV-1a over words).
pub fn checksum(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0xcbf2_9ce4_8422_2325, |sum, word| (sum ^ word).wrapping_mul(0x0100_0000_01b3))
}

/// Checksum of a buffer of `n` words after exactly `launches` launches. It is computed without running them, in
/// O(log launches + n). So a reader that knows the number of kernels knows the expected buffer.
pub fn expected_checksum(n: u32, launches: u64) -> u64 {
    let (factor, series) = affine_power(launches);
    checksum((0..u64::from(n)).map(|index| {
        let step = INCREMENT.wrapping_add(index);
        initial(index).wrapping_mul(factor).wrapping_add(series.wrapping_mul(step))
    }))
}

/// For x -> a*x + c applied `times` times: (a^times, 1 + a + ... + a^(times-1)), by squaring.
fn affine_power(times: u64) -> (u64, u64) {
    let (mut factor, mut series) = (1_u64, 0_u64);
    let (mut square_factor, mut square_series) = (MULTIPLIER, 1_u64);
    let mut left = times;
    while left > 0 {
        if left & 1 == 1 {
            series = series.wrapping_mul(square_factor).wrapping_add(square_series);
            factor = factor.wrapping_mul(square_factor);
        }
        square_series = square_series.wrapping_mul(square_factor).wrapping_add(square_series);
        square_factor = square_factor.wrapping_mul(square_factor);
        left >>= 1;
    }
    (factor, series)
}

#[cfg(test)]
mod tests;
