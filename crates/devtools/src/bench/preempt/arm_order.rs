//! The order of the arms in a block. An arm that always came first would find the GPU as the pause before left it, and a drifting clock
//! would favour one arm. So the arms are shuffled once for each row, and each block begins with another arm.

use super::preemption_level::PreemptionLevel;

/// One part of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arm {
    /// Requests without other processes and without the hook, in two halves. Their difference is the noise.
    Alone(usize),
    /// Kernels without other processes.
    BestEffort,
    /// Both without the hook.
    Stock,
    /// Both with Sluice, with hints or without.
    Sluice(bool),
}

impl Arm {
    /// Name in the result.
    fn name(self) -> &'static str {
        match self {
            Self::Alone(0) => "alone",
            Self::Alone(_) => "alone-again",
            Self::BestEffort => "best-effort",
            Self::Stock => "stock",
            Self::Sluice(false) => "sluice",
            Self::Sluice(true) => "sluice-hinted",
        }
    }
}

/// The order of one row's arms.
#[derive(Debug, Clone)]
pub(super) struct ArmOrder(Vec<Arm>);

impl ArmOrder {
    /// Order of a row with these hints. The same seed gives the same order.
    pub(super) fn of(seed: u64, (kernel_us, level): (u32, PreemptionLevel), hints: &[bool]) -> Self {
        let mut arms = vec![Arm::Alone(0), Arm::Alone(1), Arm::BestEffort, Arm::Stock];
        arms.extend(hints.iter().map(|hint| Arm::Sluice(*hint)));
        let mut state = seed ^ u64::from(kernel_us) << 8 ^ level as u64;
        for last in (1..arms.len()).rev() {
            let among = u64::try_from(last).unwrap_or(0) + 1;
            arms.swap(last, usize::try_from(next(&mut state) % among).unwrap_or(0));
        }
        Self(arms)
    }

    /// The arms of block `number`.
    pub(super) fn block(&self, number: u32) -> Vec<Arm> {
        let mut arms = self.0.clone();
        let by = usize::try_from(number).unwrap_or(0) % arms.len().max(1);
        arms.rotate_left(by);
        // Otherwise each arm would follow the same arm in all blocks.
        if number % 2 == 1 {
            arms.reverse();
        }
        arms
    }

    /// Names of the arms of each block, as in the result.
    pub(super) fn names(&self, blocks: u32) -> Vec<String> {
        let block = |number| self.block(number).into_iter().map(Arm::name).collect::<Vec<_>>().join(" ");
        (0..blocks).map(block).collect()
    }
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests;
