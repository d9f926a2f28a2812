//! Allocations in chunks of physical memory, behind addresses that never change.

use std::collections::{BTreeMap, BTreeSet};

/// The sizes of physical memory are multiples of this.
pub const GRANULE_BYTES: u64 = 2 << 20;

/// Physical memory in larger pieces is mapped and unmapped at the speed of the link: docs/reference/gpu.md, §11.
pub const CHUNK_BYTES: u64 = 64 << 20;

/// One piece of physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Where it is mapped.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// The driver's handle while the memory is on the GPU.
    pub handle: Option<u64>,
}

/// One allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// Its first address.
    pub address: u64,
    /// Its size, a multiple of [`GRANULE_BYTES`].
    pub bytes: u64,
    /// The context in which the program made it, and with which it ends.
    pub context: u64,
    /// Its physical memory, in the order of the addresses and without gaps.
    pub chunks: Vec<Chunk>,
    /// The program has freed it while a graph was captured. It exists until no capture is in progress.
    pub freed: bool,
}

/// The sizes of the chunks of an allocation: as few as possible.
pub fn chunk_sizes(bytes: u64) -> impl Iterator<Item = u64> {
    (0..bytes.div_ceil(CHUNK_BYTES)).map(move |at| CHUNK_BYTES.min(bytes - at * CHUNK_BYTES))
}

/// All allocations in chunks of one device.
#[derive(Debug, Default)]
pub struct ChunkTable {
    ranges: BTreeMap<u64, Range>,
    bytes: u64,
    peak: u64,
}

impl ChunkTable {
    /// An empty table.
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new(), bytes: 0, peak: 0 }
    }

    /// Bytes of all allocations, wherever they are.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The most bytes that all allocations had at once.
    pub fn peak_bytes(&self) -> u64 {
        self.peak
    }

    /// Bytes of all allocations that are on the GPU.
    pub fn resident_bytes(&self) -> u64 {
        let chunks = self.ranges.values().flat_map(|range| &range.chunks);
        chunks.filter(|chunk| chunk.handle.is_some()).map(|chunk| chunk.bytes).sum()
    }

    /// Adds an allocation. Addresses stay reserved until an allocation is taken out, so none is replaced.
    pub fn insert(&mut self, range: Range) {
        self.bytes += range.bytes;
        if let Some(replaced) = self.ranges.insert(range.address, range) {
            self.bytes -= replaced.bytes;
        }
        self.peak = self.peak.max(self.bytes);
    }

    /// The allocation that begins at this address, unless the program has freed it.
    fn at(&self, address: u64) -> Option<&Range> {
        self.ranges.get(&address).filter(|range| !range.freed)
    }

    /// The size of the allocation that begins at this address.
    pub fn size_of(&self, address: u64) -> Option<u64> {
        self.at(address).map(|range| range.bytes)
    }

    /// The context of the allocation that begins at this address.
    pub fn context_of(&self, address: u64) -> Option<u64> {
        self.at(address).map(|range| range.context)
    }

    /// Takes out the allocation that begins at this address.
    pub fn take(&mut self, address: u64) -> Option<Range> {
        self.at(address)?;
        self.remove(address)
    }

    /// Notes that the program has freed the allocation that begins at this address. Its memory stays until it is taken out.
    pub fn note_freed(&mut self, address: u64) {
        if let Some(range) = self.ranges.get_mut(&address) {
            range.freed = true;
        }
    }

    /// The allocations that the program has freed: the context of each, by address.
    pub fn freed(&self) -> BTreeMap<u64, u64> {
        let freed = self.ranges.values().filter(|range| range.freed);
        freed.map(|range| (range.address, range.context)).collect()
    }

    /// Takes out those of the allocations at these addresses that the program has freed.
    pub fn take_freed(&mut self, which: &BTreeMap<u64, u64>) -> Vec<Range> {
        self.take_all(|range| range.freed && which.contains_key(&range.address))
    }

    fn take_all(&mut self, which: impl Fn(&Range) -> bool) -> Vec<Range> {
        let addresses: Vec<u64> =
            self.ranges.values().filter(|range| which(range)).map(|range| range.address).collect();
        addresses.into_iter().filter_map(|address| self.remove(address)).collect()
    }

    fn remove(&mut self, address: u64) -> Option<Range> {
        let range = self.ranges.remove(&address)?;
        self.bytes -= range.bytes;
        Some(range)
    }

    /// Takes out the allocations that end with a context.
    pub fn take_context(&mut self, context: u64) -> Vec<Range> {
        self.take_all(|range| range.context == context)
    }

    /// The contexts of all allocations.
    pub fn contexts(&self) -> BTreeSet<u64> {
        self.ranges.values().map(|range| range.context).collect()
    }

    /// All allocations, by address.
    pub fn ranges_mut(&mut self) -> impl Iterator<Item = &mut Range> {
        self.ranges.values_mut()
    }

    /// Every chunk with its context and its place, as [`ChunkTable::places`].
    pub fn places_mut(&mut self) -> impl Iterator<Item = (u64, &mut Chunk, u64)> {
        let mut next = 0;
        let chunks = self.ranges.values_mut().flat_map(|range| {
            let context = range.context;
            range.chunks.iter_mut().map(move |chunk| (context, chunk))
        });
        chunks.map(move |(context, chunk)| {
            let place = next;
            next += chunk.bytes;
            (context, chunk, place)
        })
    }

    /// Every chunk with its context and its place in the host memory, where the chunks lie one behind the other. While nothing is added
    /// or taken out, the places stay the same.
    pub fn places(&self) -> impl Iterator<Item = (u64, &Chunk, u64)> {
        let chunks =
            self.ranges.values().flat_map(|range| range.chunks.iter().map(|chunk| (range.context, chunk)));
        chunks.scan(0, |next, (context, chunk)| {
            let place = *next;
            *next += chunk.bytes;
            Some((context, chunk, place))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(address: u64, bytes: u64, context: u64) -> Range {
        let mut at = address;
        let chunks = chunk_sizes(bytes).map(|bytes| {
            at += bytes;
            Chunk { address: at - bytes, bytes, handle: Some(at) }
        });
        Range { address, bytes, context, chunks: chunks.collect(), freed: false }
    }

    proptest! {
        #[test]
        fn chunks_cover_the_allocation_and_are_as_few_as_possible(granules in 1_u64..200) {
            let bytes = granules * GRANULE_BYTES;
            let sizes: Vec<u64> = chunk_sizes(bytes).collect();
            prop_assert_eq!(sizes.iter().sum::<u64>(), bytes);
            prop_assert!(sizes.iter().all(|size| *size > 0 && *size <= CHUNK_BYTES && size % GRANULE_BYTES == 0));
            prop_assert_eq!(sizes.len() as u64, bytes.div_ceil(CHUNK_BYTES));
        }

        #[test]
        fn places_in_host_memory_do_not_overlap_and_end_at_the_sum(sizes in proptest::collection::vec(1_u64..80, 1..10)) {
            let mut table = ChunkTable::new();
            for (at, granules) in sizes.iter().enumerate() {
                table.insert(range((at as u64 + 1) << 40, granules * GRANULE_BYTES, 1));
            }
            let mut end = 0;
            for (_, chunk, place) in table.places() {
                prop_assert_eq!(place, end);
                end = place + chunk.bytes;
            }
            prop_assert_eq!(end, table.bytes());
            let places: Vec<u64> = table.places().map(|(_, _, place)| place).collect();
            prop_assert_eq!(table.places_mut().map(|(_, _, place)| place).collect::<Vec<_>>(), places);
        }
    }

    #[test]
    fn allocation_freed_in_a_capture_is_unknown_to_the_program_and_has_its_place_until_it_is_taken_out() {
        let mut table = ChunkTable::new();
        table.insert(range(1 << 40, 4 << 20, 7));
        table.insert(range(2 << 40, 6 << 20, 8));
        table.note_freed(1 << 40);
        assert_eq!(
            (table.size_of(1 << 40), table.context_of(1 << 40), table.take(1 << 40)),
            (None, None, None)
        );
        assert_eq!((table.bytes(), table.places().count()), (10 << 20, 2));
        let freed = table.freed();
        assert_eq!(freed, BTreeMap::from([(1 << 40, 7)]));
        table.note_freed(2 << 40);
        assert_eq!(table.take_freed(&freed), [Range { freed: true, ..range(1 << 40, 4 << 20, 7) }]);
        assert_eq!((table.bytes(), table.peak_bytes()), (6 << 20, 10 << 20), "what was freed later stays");
        assert_eq!(table.take_freed(&freed), []);
    }

    #[test]
    fn allocations_end_with_their_context_and_only_with_it() {
        let mut table = ChunkTable::new();
        table.insert(range(1 << 40, 4 << 20, 7));
        table.insert(range(2 << 40, 6 << 20, 8));
        assert_eq!(table.resident_bytes(), 10 << 20);
        table.ranges_mut().next().unwrap().chunks[0].handle = None;
        assert_eq!((table.resident_bytes(), table.bytes()), (6 << 20, 10 << 20));
        table.ranges_mut().next().unwrap().chunks[0].handle = Some((1 << 40) + (4 << 20));
        assert_eq!(table.take_context(7), [range(1 << 40, 4 << 20, 7)]);
        assert_eq!(
            (table.bytes(), table.size_of(1 << 40), table.size_of(2 << 40)),
            (6 << 20, None, Some(6 << 20))
        );
        assert_eq!(table.take((2 << 40) + 1), None, "no allocation begins there");
        assert!(table.take(2 << 40).is_some());
        assert_eq!(table.bytes(), 0);
    }
}
