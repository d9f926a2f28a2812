//! The words about memory that may leave the GPU: how much of it may be there, and where it is.

use super::{AtomicU64, GrantView, Ordering, ReportView, grant, read, report};

/// Unit of [`grant::MEMORY_ROOM`].
const MIB: u64 = 1 << 20;

/// What a process reports of its movable memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MovableMemory {
    /// Bytes that it has, wherever they are, and those that it is about to allocate.
    pub need: u64,
    /// Bytes of it that are on the GPU.
    pub resident: u64,
    /// A thread waits for the memory to return, or for room for more.
    pub waits: bool,
    /// Its place on the host is from an earlier manager. It does not use that of this one.
    pub has_earlier_place: bool,
    /// The process copies it at this moment, from the GPU or to it: its channel groups have to be enabled for that.
    pub moves: bool,
}

/// Bits of [`report::MEMORY_FLAGS`].
const WAITS: u64 = 1;
const HAS_EARLIER_PLACE: u64 = 2;
const MOVES: u64 = 4;

impl<'a> GrantView<'a> {
    /// Bytes of movable memory that the process may have on the GPU; `None`: the manager has not decided.
    pub fn memory_room(&self) -> Option<u64> {
        read(self.0, grant::MEMORY_ROOM).checked_sub(1).map(|mib| mib.saturating_mul(MIB))
    }

    /// Sets the bytes of movable memory that the process may have on the GPU, rounded up to MiB. Returns `true` if that is a change: the
    /// caller then wakes [`Self::memory_room_futex`].
    pub fn set_memory_room(&self, bytes: u64) -> bool {
        let word = bytes.div_ceil(MIB).saturating_add(1);
        let changes = self.0[grant::MEMORY_ROOM].load(Ordering::Relaxed) != word;
        if changes {
            self.0[grant::MEMORY_ROOM].store(word, Ordering::Release);
        }
        changes
    }

    /// The word of [`Self::memory_room`], whose low half is a futex.
    pub fn memory_room_futex(&self) -> &'a AtomicU64 {
        &self.0[grant::MEMORY_ROOM]
    }
}

impl ReportView<'_> {
    /// What the process reports of its movable memory. It can report anything.
    pub fn movable_memory(&self) -> MovableMemory {
        let flags = read(self.0, report::MEMORY_FLAGS);
        MovableMemory {
            need: read(self.0, report::MEMORY_NEED),
            resident: read(self.0, report::MEMORY_RESIDENT),
            waits: flags & WAITS != 0,
            has_earlier_place: flags & HAS_EARLIER_PLACE != 0,
            moves: flags & MOVES != 0,
        }
    }

    /// Reports the movable memory. One thread at a time. Returns `true` if the manager has to be woken: a thread begins to wait, a
    /// copy begins, or the memory has left or returned. It reads other changes in its next round.
    pub fn report_movable_memory(&self, memory: MovableMemory) -> bool {
        let before = self.movable_memory();
        if before != memory {
            // A reader between the stores sees more memory on the GPU than there is, never less.
            let flag = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
            let place = flag(memory.has_earlier_place, HAS_EARLIER_PLACE);
            let flags = flag(memory.waits, WAITS) | place | flag(memory.moves, MOVES);
            let words = [
                (report::MEMORY_NEED, memory.need),
                (report::MEMORY_RESIDENT, memory.resident),
                (report::MEMORY_FLAGS, flags),
            ];
            for (index, value) in words {
                self.0[index].store(value, Ordering::Release);
            }
        }
        let begins = (memory.waits && !before.waits) || (memory.moves && !before.moves);
        begins || (memory.resident == 0) != (before.resident == 0)
    }
}
