//! Pseudo-random numbers that follow from a seed.

/// A sequence of pseudo-random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another sequence, which follows from the state of this one and from `number`.
    #[must_use]
    pub fn split(&self, number: u64) -> Self {
        let mut other = Self(self.0 ^ number.wrapping_add(1).wrapping_mul(0xd1b5_4a32_d192_ed03));
        Self(other.word())
    }

    /// The next number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.word().checked_rem(bound).unwrap_or(0)
    }

    /// An index into a list of this length; 0 if it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// True once in `times` times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

#[cfg(test)]
mod tests;
