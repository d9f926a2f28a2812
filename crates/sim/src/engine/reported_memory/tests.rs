use super::*;

const MIB: u64 = 1 << 20;

#[test]
fn small_allocations_share_blocks_and_large_ones_take_whole_blocks() {
    let mut memory = ReportedMemory::default();
    memory.allocate(MIB);
    memory.allocate(MIB);
    memory.allocate(1);
    memory.allocate(3 * MIB);
    memory.record(512 * MIB, 0, 0);
    assert_eq!(memory.at(0), (512 + 4 + 4) * MIB);
    memory.free(1);
    memory.free(3 * MIB);
    memory.record(512 * MIB, 1, 0);
    assert_eq!(memory.at(1), (512 + 2) * MIB);
}

#[test]
fn a_report_with_lag_shows_the_total_of_an_earlier_time() {
    let mut memory = ReportedMemory::default();
    for step in 1..=10 {
        memory.allocate(2 * MIB);
        memory.record(0, step * 10, 30);
    }
    let reported: Vec<u64> = [70, 79, 100].map(|time| memory.at(time) / MIB).into();
    assert_eq!(reported, [14, 14, 20]);
    assert!(memory.history.len() <= 5, "entries older than the lag are dropped");
}
