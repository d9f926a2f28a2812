//! Memory that may leave the GPU: where it is, and which calls of the program may use it.

mod chunks;
mod gate;

pub use chunks::{CHUNK_BYTES, Chunk, ChunkTable, GRANULE_BYTES, Range, chunk_sizes};
pub use gate::{Pass, ResidencyGate};
