//! The atomics under the pages: the standard ones, or loom's in its model.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A page.
pub(crate) type Words<'a> = &'a [AtomicU64; super::WORDS];

/// Reads a word so that everything its writer stored before it is visible, too.
pub(crate) fn read(words: Words<'_>, index: usize) -> u64 {
    let value = words[index].load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    value
}
