//! Random numbers from a seed (xorshift64*).

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound.max(1)
    }

    /// The index of one of so many.
    pub(super) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }

    pub(super) fn one_in(&mut self, number: u64) -> bool {
        self.below(number) == 0
    }

    /// A time up to `most` whose logarithm is distributed evenly: short ones are as likely as long ones.
    pub(super) fn time(&mut self, most: u64) -> u64 {
        let bits = u64::from(most.max(2).ilog2()) + 1;
        let scale = self.below(bits);
        (1_u64 << scale).min(most) + self.below(1 << scale).min(most)
    }
}
