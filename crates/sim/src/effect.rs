//! Effects of kernels on memory, exactly defined, so that results can be checked to the bit.

use serde::{Deserialize, Serialize};

/// The effect of one execution of a kernel on `n` consecutive 64-bit words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Nothing.
    None,
    /// `x[i] = x[i] * 6364136223846793005 + 1442695040888963407 + i`: a second or misordered execution changes the result.
    Mix,
    /// `x[i] += 1`: counts executions.
    Add,
    /// `x[i] = value`.
    Fill(u64),
}

impl Effect {
    /// Applies the effect to the words. Arithmetic wraps.
    pub fn apply(self, words: &mut [u64]) {
        match self {
            Effect::None => {}
            Effect::Mix => {
                for (i, word) in (0u64..).zip(words) {
                    *word = word
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407)
                        .wrapping_add(i);
                }
            }
            Effect::Add => words.iter_mut().for_each(|word| *word = word.wrapping_add(1)),
            Effect::Fill(value) => words.fill(value),
        }
    }
}

#[cfg(test)]
mod tests;
