use super::*;
use proptest::prelude::*;
use sluice_comm::latency::{BOUNDS_NS, bucket};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

fn add(page: &mut Latencies, ns: u64) {
    page.sum_ns = page.sum_ns.wrapping_add(ns);
    page.counts[bucket(ns)] = page.counts[bucket(ns)].wrapping_add(1);
}

fn all(counts: &[u64; BUCKETS]) -> u64 {
    counts.iter().sum()
}

#[test]
fn latencies_of_an_honest_process_are_read_exactly() {
    let (mut reader, mut page) = (LatencyReader::new(0), Latencies::default());
    [3 * MS, 5 * MS, 700_000].into_iter().for_each(|ns| add(&mut page, ns));
    let read = reader.read(page, SECOND).unwrap();
    assert_eq!((all(&read.counts), read.sum_ns), (3, 8_700_000));
    assert_eq!(read.counts[bucket(5 * MS)], 1);
    // A sum without its count.
    page.sum_ns += 4 * MS;
    let ahead = reader.read(page, 2 * SECOND).unwrap();
    page.counts[bucket(4 * MS)] += 1;
    let counted = reader.read(page, 3 * SECOND).unwrap();
    assert_eq!((all(&ahead.counts), all(&counted.counts), ahead.sum_ns + counted.sum_ns), (0, 1, 4 * MS));
}

#[test]
fn request_that_is_longer_than_the_time_between_two_readings_counts() {
    let (mut reader, mut page) = (LatencyReader::new(0), Latencies::default());
    for second in 1..=30 {
        reader.read(page, second * SECOND).unwrap();
    }
    add(&mut page, 30 * SECOND);
    assert_eq!(reader.read(page, 30 * SECOND + MS).unwrap().sum_ns, 30 * SECOND);
}

#[test]
fn more_latencies_than_fit_into_the_time_are_left_out_and_later_ones_count() {
    let (mut reader, mut page) = (LatencyReader::new(0), Latencies::default());
    page.counts[bucket(SECOND)] = 40;
    assert_eq!(reader.read(page, SECOND), None, "no process has 40 steps of a second in one second");
    page.counts[0] = u64::MAX;
    assert_eq!(reader.read(page, 2 * SECOND), None);
    page.sum_ns = u64::MAX / 2;
    add(&mut page, 2 * MS);
    // The sum has jumped, and no latency is above the bound of its bucket.
    let read = reader.read(page, 3 * SECOND).unwrap();
    assert_eq!((all(&read.counts), read.sum_ns), (1, BOUNDS_NS[bucket(2 * MS)]));
    add(&mut page, 2 * MS);
    assert_eq!(reader.read(page, 4 * SECOND).map(|read| all(&read.counts)), Some(1));
}

#[test]
fn counters_that_go_backwards_are_left_out_and_later_ones_count() {
    let (mut reader, mut page) = (LatencyReader::new(0), Latencies::default());
    (0..5).for_each(|_| add(&mut page, 2 * MS));
    reader.read(page, SECOND).unwrap();
    page.counts[bucket(2 * MS)] = 1;
    assert_eq!(reader.read(page, 2 * SECOND), None);
    add(&mut page, 3 * MS);
    let read = reader.read(page, 3 * SECOND).unwrap();
    assert_eq!((all(&read.counts), read.sum_ns), (1, 3 * MS));
}

proptest! {
    /// Whatever a process writes: what counts fits into the elapsed time, and the sum agrees with the counts.
    #[test]
    fn no_page_counts_more_than_could_have_happened(
        pages in proptest::collection::vec(
            (proptest::collection::vec((0..BUCKETS, any::<u64>()), 0..6), any::<u64>(), 0..100 * SECOND),
            1..20,
        ),
        small in any::<bool>(),
    ) {
        let (mut reader, mut page, mut now) = (LatencyReader::new(0), Latencies::default(), 0_u64);
        let (mut fits, mut least, mut most, mut sum) = (0_u128, 0_u128, 0_u128, 0_u128);
        for (words, sum_ns, elapsed) in pages {
            now += elapsed;
            for (bucket, value) in words {
                let count = &mut page.counts[bucket];
                *count = if small { count.wrapping_add(value % 50) } else { value };
            }
            page.sum_ns = sum_ns;
            if let Some(read) = reader.read(page, now) {
                fits += least_ns(&read.counts, SHORTEST_NS);
                least += least_ns(&read.counts, 0);
                most += most_ns(&read.counts);
                sum += u128::from(read.sum_ns);
            }
            prop_assert!(fits.max(sum) <= u128::from(now) * PARALLEL);
            prop_assert!(least <= sum && sum <= most);
        }
    }
}
