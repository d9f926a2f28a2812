//! Moves the content of all chunks between the GPU and the host memory, and their physical memory with it: while a copy runs, the driver
//! gives back or makes the memory of other chunks.

use std::cell::Cell;
use std::time::Duration;

use sluice_driver_api::types::*;
use sluice_hook_core::platform::{Driver, Mark, Stream};
use sluice_hook_core::residency::{Chunk, ChunkTable};
use sluice_sys::clock::monotonic_ns;

use super::physical;
use crate::gpu::{pointer, with_context};
use crate::process::ManagedDevice;
use crate::{host_memory, real, thread_state};

/// The memory of so many chunks is given back at once, after their copies.
const GROUP: usize = 8;

/// The longest pause between two pieces.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// How the return of all memory ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Back {
    /// All of it is on the GPU, with its content.
    Complete,
    /// The GPU has no room for it, or the driver has refused a call. Nothing is there, and the content is on the host.
    NoRoom,
    /// The context has an error, as the program's next call shows. Nothing is on the GPU, so the program can read no wrong byte.
    Failed,
}

/// The copies of a move, for the log.
#[derive(Debug, Default)]
pub(super) struct CopyCount {
    /// Copies that were submitted.
    pub(super) copies: Cell<u64>,
    /// Pauses after a copy.
    pub(super) pauses: Cell<u64>,
}

/// Chunks in a row whose copies have been submitted, up to a mark.
struct Group {
    mark: Mark,
    chunks: usize,
}

/// Copies everything to the host and gives the memory on the GPU back. `false`: a copy was refused, and everything is where it was.
pub(super) fn out(managed: &ManagedDevice, chunks: &mut ChunkTable, count: &CopyCount) -> bool {
    register(managed, chunks);
    let (groups, submitted) = submit_out(managed, chunks, count);
    if submitted {
        let mut rest = chunks.places_mut();
        for group in &groups {
            // If the copies have failed, their context has an error and runs nothing more. Without its memory it can read no wrong byte.
            _ = has_reached(group.mark);
            rest.by_ref().take(group.chunks).for_each(|(_, chunk, _)| physical::empty_chunk(chunk));
        }
    } else {
        chunks.contexts().into_iter().for_each(|context| _ = synchronize(context));
    }
    groups.iter().for_each(|group| managed.device.driver.discard(group.mark));
    submitted
}

/// Submits the copies of all chunks to the host, with a mark behind each group. `false`: one was refused, or could not be marked.
fn submit_out(managed: &ManagedDevice, chunks: &ChunkTable, count: &CopyCount) -> (Vec<Group>, bool) {
    let mut groups = Vec::new();
    let (mut number, mut rest) = (0, chunks.places().peekable());
    while let Some((context, chunk, place)) = rest.next() {
        if !copy(managed, context, chunk, (place, Direction::Out), count) {
            return (groups, false);
        }
        number += 1;
        if number == GROUP || rest.peek().is_none_or(|(next, ..)| *next != context) {
            let Some(mark) = managed.device.driver.mark(context, legacy()) else { return (groups, false) };
            groups.push(Group { mark, chunks: number });
            number = 0;
        }
    }
    (groups, true)
}

/// Makes the memory of all chunks on the GPU anew and copies their content back.
pub(super) fn back(
    managed: &ManagedDevice,
    chunks: &mut ChunkTable,
    device: c_int,
    count: &CopyCount,
) -> Back {
    register(managed, chunks);
    let is_submitted = chunks.places_mut().all(|(context, chunk, place)| {
        let filled = with_context(context, || physical::fill_chunk(chunk, device));
        filled == Some(Ok(())) && copy(managed, context, chunk, (place, Direction::In), count)
    });
    // Also after a failure: no copy may run when the memory is unmapped. All contexts are waited for.
    let failed = chunks.contexts().into_iter().filter(|context| !synchronize(*context)).count();
    let back = match (failed, is_submitted) {
        (0, true) => return Back::Complete,
        // The content on the host is whole, and the next attempt may succeed.
        (0, false) => Back::NoRoom,
        _ => Back::Failed,
    };
    chunks.ranges_mut().for_each(physical::empty);
    back
}

/// Pins the host memory that has not been pinned yet. The driver may wait for the GPU meanwhile.
fn register(managed: &ManagedDevice, chunks: &ChunkTable) {
    if let Some(context) = chunks.contexts().first() {
        with_context(*context, || as_work(managed, || host_memory::register(*context, chunks.bytes())));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Out,
    In,
}

/// Submits the copy of a chunk to its place in the host memory, or from there. `false`: the driver has refused it.
fn copy(
    managed: &ManagedDevice,
    context: u64,
    chunk: &Chunk,
    (place, direction): (u64, Direction),
    count: &CopyCount,
) -> bool {
    let table = real::table();
    let submit = |(at, bytes): (u64, u64)| {
        let (Some(host), Ok(size)) = (host_memory::at(at, bytes), usize::try_from(bytes)) else {
            return CUresult::ERROR_INVALID_VALUE;
        };
        let device = chunk.address + (at - place);
        let submitted = match direction {
            Direction::Out => table.cuMemcpyDtoHAsync_v2.map(|copy| {
                // SAFETY: the host memory has room for the chunk there, and nothing else uses it or the chunk, which is mapped.
                unsafe { copy(host, device, size, std::ptr::null_mut()) }
            }),
            Direction::In => table.cuMemcpyHtoDAsync_v2.map(|copy| {
                // SAFETY: as above.
                unsafe { copy(device, host, size, std::ptr::null_mut()) }
            }),
        };
        submitted.unwrap_or(CUresult::ERROR_NOT_SUPPORTED)
    };
    let submit = |part| {
        count.copies.update(|copies| copies + 1);
        as_work(managed, || submit(part)) == CUresult::SUCCESS
    };
    let pause = || {
        count.pauses.update(|pauses| pauses + 1);
        pause(context)
    };
    let all = || {
        host_memory::parts(place, chunk.bytes).all(|(at, bytes)| {
            if !managed.device.link.paces_moves() {
                return submit((at, bytes));
            }
            host_memory::pieces(at, bytes).all(|piece| submit(piece) && pause())
        })
    };
    with_context(context, all) == Some(true)
}

/// Waits for a piece, and then for as long as it took, so that half of the link's time is left to others. `false`: the context has an error.
fn pause(context: u64) -> bool {
    let begun = monotonic_ns();
    let copied = synchronize(context);
    let took = Duration::from_nanos(monotonic_ns().saturating_sub(begun));
    std::thread::sleep(took.min(LONGEST_PAUSE));
    copied
}

/// The legacy default stream, in which the copies run.
fn legacy() -> Stream {
    Stream::new(0, false, 0)
}

/// Calls `submit`, which submits a copy to the legacy default stream or waits for the GPU. It counts as work of the process: the channel groups
/// of a process without work may be disabled.
fn as_work<R>(managed: &ManagedDevice, submit: impl FnOnce() -> R) -> R {
    let stream = legacy();
    let is_noted = thread_state::with_thread(|thread| {
        managed.device.needs_note(stream, thread) && managed.device.begin_work(stream, thread)
    });
    let result = submit();
    if is_noted {
        managed.device.end_submission();
    }
    result
}

/// Waits for a mark. `false` if its context has an error.
fn has_reached(mark: Mark) -> bool {
    let wait = || {
        // SAFETY: the event is the hook's, and its context is alive, because it has an allocation.
        real::table().cuEventSynchronize.map(|wait| unsafe { wait(pointer(mark.event)) })
    };
    with_context(mark.context, wait).flatten() == Some(CUresult::SUCCESS) || synchronize(mark.context)
}

/// Waits for all work of a context. `false` if the context has an error.
pub(super) fn synchronize(context: u64) -> bool {
    let wait = || {
        // SAFETY: no arguments; waits for the context that `with_context` made current.
        real::table().cuCtxSynchronize.map(|wait| unsafe { wait() })
    };
    with_context(context, wait).flatten() == Some(CUresult::SUCCESS)
}
