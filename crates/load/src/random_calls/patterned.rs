//! Memory whose words are a function of their place. No kernel changes it, so a byte that is lost while the memory moves is found.

use super::Failure;
use super::random::Random;
use crate::driver::Error;
use crate::memory::DeviceBuffer;
use crate::session::Session;

/// The least memory that the hook makes in chunks, which may leave the GPU.
const GRANULE: u64 = 2 << 20;
/// The largest block in granules.
const MOST_GRANULES: u64 = 4;
/// An odd number whose product with an index changes most bits of it.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// A block from `cuMemAlloc` with a pattern of its own.
#[derive(Debug)]
pub(crate) struct PatternedBlock<'s> {
    buffer: DeviceBuffer<'s>,
    key: u64,
}

impl<'s> PatternedBlock<'s> {
    /// Allocates a block of a random size and fills it.
    pub(crate) fn random(session: &'s Session, random: &mut Random) -> Result<Self, Error> {
        let buffer = DeviceBuffer::new(session, GRANULE * (1 + random.below(MOST_GRANULES)))?;
        let block = Self { buffer, key: random.word() };
        block.buffer.fill(|index| word(block.key, index))?;
        Ok(block)
    }

    /// Reads the whole block and compares it.
    pub(crate) fn verify(&self) -> Result<(), Failure> {
        let found = self.buffer.words()?.into_iter().zip(0..);
        match found.into_iter().find(|(found, index)| *found != word(self.key, *index)) {
            None => Ok(()),
            Some((found, index)) => Err(Failure::WrongWord { index, found, expected: word(self.key, index) }),
        }
    }
}

fn word(key: u64, index: u64) -> u64 {
    (index ^ key).wrapping_mul(MULTIPLIER)
}

#[cfg(test)]
mod tests;
