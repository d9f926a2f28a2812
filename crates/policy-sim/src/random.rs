//! Random times. The sequence of a seed is always the same.

/// The randomness of one client.
#[derive(Clone, Debug)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    /// A sequence of its own for each purpose of each client.
    pub(crate) fn new(seed: u64, client: usize, purpose: u64) -> Self {
        let mut mix =
            fastrand::Rng::with_seed(seed ^ purpose.rotate_left(48) ^ (client as u64).rotate_left(24));
        Self(fastrand::Rng::with_seed(mix.u64(..)))
    }

    /// Exponential with this mean, at least 1 ns.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a logarithm of at most 2^53 times the mean"
    )]
    pub(crate) fn exponential(&mut self, mean_ns: u64) -> u64 {
        // 1 − u is in (0, 1]: its logarithm is finite.
        (-(1.0 - self.0.f64()).ln() * mean_ns as f64).round().max(1.0) as u64
    }

    /// Uniform between 0 and `most`, both included.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        if most == 0 { 0 } else { self.0.u64(0..=most) }
    }
}
