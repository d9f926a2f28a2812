//! The host memory to which this process's memory may leave. The manager has made and filled it, so it is not charged to the program.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};

use sluice_driver_api::types::*;
use sluice_hook_core::lock;
use sluice_sys::page::SharedRegion;

use crate::leaked::Leaked;
use crate::real;

/// The memory and the file that it is.
#[derive(Debug)]
struct HostMemory {
    region: SharedRegion,
    /// The number of its inode.
    file: u64,
}

/// Registered for all contexts.
const REGISTER_PORTABLE: c_uint = 1;

static MEMORY: Leaked<HostMemory> = Leaked::none();

/// The memory is registered in pieces of this size. While the driver registers one it answers no other call of the machine for 7 ms.
const PIECE_BYTES: u64 = 64 << 20;

/// What is copied at once beside a latency-critical client: 80 us of the link. Otherwise a copy of the client waits for the rest of the time
/// slice that copy engines give a process, 1 ms.
const PACED_BYTES: u64 = 4 << 20;

/// The pieces that were registered, by their order in the memory.
static PIECES: Mutex<Vec<Piece>> = Mutex::new(Vec::new());

/// How much of a piece is registered, from its first byte on.
#[derive(Debug, Clone, Copy, Default)]
struct Piece {
    context: u64,
    bytes: u64,
}

/// A later manager has sent other memory.
static IS_OF_EARLIER_MANAGER: AtomicBool = AtomicBool::new(false);

/// The manager has sent host memory. The first one stays: it may hold the memory of this process.
pub(crate) fn received(memory: &OwnedFd) {
    let Ok(file) = memory.try_clone().map(File::from).and_then(|file| file.metadata()).map(|file| file.ino())
    else {
        return;
    };
    match MEMORY.get() {
        Some(known) => IS_OF_EARLIER_MANAGER.store(known.file != file, Release),
        None => {
            if let Ok(region) = SharedRegion::map_whole(memory.as_fd()) {
                MEMORY.publish(HostMemory { region, file });
            }
        }
    }
}

/// Whether the memory is not the one that the manager has sent which runs now.
pub(crate) fn is_of_earlier_manager() -> bool {
    IS_OF_EARLIER_MANAGER.load(Acquire)
}

/// Its size in bytes; 0 if there is none.
pub(crate) fn bytes() -> u64 {
    MEMORY.get().map_or(0, |memory| size_of_val(memory.region.words()) as u64)
}

/// The address of the byte at `offset`, if this many are there.
pub(crate) fn at(offset: u64, bytes: u64) -> Option<*mut c_void> {
    let words = MEMORY.get()?.region.words();
    let end = usize::try_from(offset.checked_add(bytes)?).ok()?;
    let offset = usize::try_from(offset).ok().filter(|_| end <= size_of_val(words))?;
    Some(words.as_ptr().cast::<c_void>().cast_mut().wrapping_byte_add(offset))
}

/// The parts of `bytes` at `offset` between the ends of pieces: a copy must not cross the end of a registration.
pub(crate) fn parts(offset: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset.saturating_add(bytes);
    std::iter::successors(Some(offset), |at| Some(at - at % PIECE_BYTES + PIECE_BYTES))
        .take_while(move |at| *at < end)
        .map(move |at| (at, (PIECE_BYTES - at % PIECE_BYTES).min(end - at)))
}

/// The pieces in which `bytes` at `offset` are copied beside a latency-critical client.
pub(crate) fn pieces(offset: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset.saturating_add(bytes);
    std::iter::successors(Some(offset), |at| Some(at + PACED_BYTES))
        .take_while(move |at| *at < end)
        .map(move |at| (at, PACED_BYTES.min(end - at)))
}

/// Pins the first `needed` bytes in the current context, so that copies run at the speed of the link. A driver that refuses copies more
/// slowly. The rest has no pages yet: pinning would make them, at the expense of the program.
///
/// No copy is in progress: the thread that copies calls this before.
pub(crate) fn register(context: u64, needed: u64) {
    parts(0, needed).for_each(|part| register_part(context, part));
}

/// Pins one more whole piece of the first `needed` bytes, if there is one whose pages the manager has made, as [`register`]. `false`: there is
/// none. A piece that is registered in part waits for a move: to unregister it the driver waits for all work of the context.
pub(crate) fn register_one(context: u64, needed: u64) -> bool {
    let is_due = |(start, bytes): &(u64, u64)| {
        let pages = MEMORY.get().zip(usize::try_from(*start).ok()).zip(usize::try_from(*bytes).ok());
        pages.is_some_and(|((memory, start), bytes)| memory.region.has_pages(start, bytes))
    };
    let is_new = |(start, bytes): &(u64, u64)| *bytes == PIECE_BYTES && !is_registered((*start, 1));
    let next = parts(0, needed).find(is_new).filter(is_due);
    next.map(|part| register_part(context, part)).is_some()
}

fn number(start: u64) -> usize {
    usize::try_from(start / PIECE_BYTES).unwrap_or(usize::MAX)
}

fn is_registered((start, bytes): (u64, u64)) -> bool {
    lock(&PIECES).get(number(start)).is_some_and(|piece| piece.bytes >= bytes)
}

/// Registers a part that begins with its piece. If less of the piece is registered, it is registered anew. A part that the driver refuses is
/// not tried again.
fn register_part(context: u64, (start, bytes): (u64, u64)) {
    let (Some(address), Ok(size)) = (at(start, bytes), usize::try_from(bytes)) else { return };
    let (Some(register), Some(unregister)) =
        (real::table().cuMemHostRegister_v2, real::table().cuMemHostUnregister)
    else {
        return;
    };
    if is_registered((start, bytes)) {
        return;
    }
    let mut pieces = lock(&PIECES);
    let least = pieces.len().max(number(start) + 1);
    pieces.resize(least, Piece::default());
    let Some(piece) = pieces.get_mut(number(start)) else { return };
    if piece.bytes > 0 {
        // SAFETY: it was registered below, and no copy is in progress, as the callers guarantee.
        let _unregistered = unsafe { unregister(address) };
    }
    // SAFETY: the memory is mapped for the rest of the process.
    let _refused = unsafe { register(address, size, REGISTER_PORTABLE) };
    *piece = Piece { context, bytes };
}

/// A context has ended, and with it what was registered in it.
pub(crate) fn context_ended(context: u64) {
    let mut pieces = lock(&PIECES);
    pieces.iter_mut().filter(|piece| piece.context == context).for_each(|piece| *piece = Piece::default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_what_is_asked_for_and_none_crosses_the_end_of_a_piece() {
        let found: Vec<(u64, u64)> = parts(PIECE_BYTES - 2, PIECE_BYTES + 5).collect();
        assert_eq!(found, [(PIECE_BYTES - 2, 2), (PIECE_BYTES, PIECE_BYTES), (2 * PIECE_BYTES, 3)]);
        assert_eq!(parts(0, 7).collect::<Vec<_>>(), [(0, 7)]);
        assert_eq!(parts(5, 0).count(), 0);
    }

    #[test]
    fn pieces_lie_one_behind_the_other_up_to_the_end() {
        let (mib, all) = (1 << 20, |offset, bytes| pieces(offset, bytes).collect::<Vec<_>>());
        assert_eq!(all(8 * mib, 10 * mib), [(8 * mib, 4 * mib), (12 * mib, 4 * mib), (16 * mib, 2 * mib)]);
        assert_eq!((all(0, 2 * mib), all(5, 0)), (vec![(0, 2 * mib)], vec![]));
    }
}
