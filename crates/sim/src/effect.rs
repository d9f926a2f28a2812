//! Effects of kernels on memory, exactly defined, so that results can be checked to the bit.

use serde::{Deserialize, Serialize};

/// The effect of one execution of a kernel on `n` consecutive 64-bit words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Nothing.
    None,
    /// `x[i] = x[i] * 6364136223846793005 + 1442695040888963407 + i`: running it twice or out of order shows.
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
mod tests {
    use super::*;

    #[test]
    fn mix_is_the_documented_formula_and_not_idempotent() {
        let mut words = [0, 1, u64::MAX];
        Effect::Mix.apply(&mut words);
        assert_eq!(words[0], 1_442_695_040_888_963_407);
        assert_eq!(words[1], 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407 + 1);
        let once = words;
        Effect::Mix.apply(&mut words);
        assert_ne!(words, once);
    }

    #[test]
    fn add_counts_executions_and_fill_forgets_them() {
        let mut words = [41, u64::MAX];
        Effect::Add.apply(&mut words);
        assert_eq!(words, [42, 0]);
        Effect::Fill(7).apply(&mut words);
        assert_eq!(words, [7, 7]);
    }
}
