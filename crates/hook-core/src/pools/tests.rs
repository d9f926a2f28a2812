use super::*;
use proptest::prelude::*;

const POOL: PoolId = PoolId::Pool(7);

fn table() -> PoolTable {
    let mut pools = PoolTable::new();
    pools.add(POOL, PoolLocation::Device(1));
    pools
}

/// The correction of a pool's charge, which the manager grants.
fn settle(pools: &mut PoolTable, bytes: u64, reserved: u64) -> Correction {
    let mut made = None;
    assert!(pools.settle(POOL, bytes, reserved, |correction| made.replace(correction).is_none()));
    made.expect("a correction")
}

/// As [`settle`], but the manager refuses it.
fn refuse(pools: &mut PoolTable, bytes: u64, reserved: u64) -> Correction {
    let mut made = None;
    assert!(!pools.settle(POOL, bytes, reserved, |correction| made.replace(correction).is_some()));
    made.expect("a correction")
}

/// One allocation that reserves its bytes, with the pool's size after it.
fn allocate(pools: &mut PoolTable, bytes: u64, reserved: u64) -> Correction {
    pools.begin(POOL, bytes);
    settle(pools, bytes, reserved)
}

#[test]
fn pool_is_charged_by_its_reserved_size() {
    let mut pools = table();
    assert_eq!(allocate(&mut pools, 10, 10), Correction::Release(0));
    assert_eq!(allocate(&mut pools, 10, 32), Correction::Charge(12), "the driver took whole blocks");
    assert_eq!(allocate(&mut pools, 10, 32), Correction::Release(10), "memory that was used before");
    assert_eq!(settle(&mut pools, 0, 32), Correction::Release(0), "freed memory that the pool keeps");
    assert_eq!(settle(&mut pools, 0, 0), Correction::Release(32));
}

#[test]
fn pool_is_charged_to_its_device() {
    let mut pools = table();
    pools.add(PoolId::Pool(8), PoolLocation::Host);
    pools.add(PoolId::Graphs(0), PoolLocation::Device(0));
    assert_eq!(pools.of_devices(), [(POOL, 1), (PoolId::Graphs(0), 0)]);
    assert_eq!(pools.location(PoolId::Pool(8)), Some(PoolLocation::Host));
    assert_eq!(pools.location(PoolId::Pool(9)), None);
}

#[test]
fn allocations_of_two_threads_are_not_charged_twice() {
    let mut pools = table();
    pools.begin(POOL, 10);
    pools.begin(POOL, 20);
    // The driver has made both before the first is settled.
    assert_eq!(settle(&mut pools, 10, 30), Correction::Release(0));
    assert_eq!(settle(&mut pools, 20, 30), Correction::Release(0));
}

#[test]
fn failed_allocation_leaves_the_charge() {
    let mut pools = table();
    allocate(&mut pools, 10, 10);
    pools.begin(POOL, 5);
    pools.cancel(POOL, 5);
    assert_eq!(settle(&mut pools, 0, 10), Correction::Release(0));
}

#[test]
fn refused_correction_is_asked_for_again() {
    let mut pools = table();
    assert_eq!(refuse(&mut pools, 0, 8), Correction::Charge(8));
    assert_eq!(settle(&mut pools, 0, 8), Correction::Charge(8));
}

#[test]
fn pool_is_in_excess_from_a_refused_correction_to_the_next_granted_one() {
    let mut pools = table();
    allocate(&mut pools, 8, 8);
    assert!(!pools.is_in_excess(POOL));
    assert_eq!(refuse(&mut pools, 0, 16), Correction::Charge(8));
    assert!(pools.is_in_excess(POOL), "the pool has 16 bytes, of which 8 are charged");
    assert_eq!(settle(&mut pools, 0, 8), Correction::Release(0));
    assert!(!pools.is_in_excess(POOL));
}

#[test]
fn removed_pool_returns_its_charge() {
    let mut pools = table();
    allocate(&mut pools, 10, 10);
    assert_eq!(pools.remove(POOL), Some((1, 10)));
    assert_eq!(pools.remove(POOL), None);
    pools.restore(POOL, 1, 10);
    assert_eq!(settle(&mut pools, 0, 10), Correction::Release(0));
}

proptest! {
    /// Allocations begin, are made by the driver, and are settled in any order; frees change the reserved size at any time.
    #[test]
    fn charge_covers_the_reserved_size_and_no_more_than_is_in_flight(
        steps in proptest::collection::vec((0u8..4, 1u64..100), 0..100),
    ) {
        let mut pools = table();
        let (mut held, mut reserved) = (0u64, 0u64);
        let (mut begun, mut made): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        for (what, bytes) in steps {
            let settled = match what {
                0 => {
                    pools.begin(POOL, bytes);
                    held += bytes;
                    begun.push(bytes);
                    None
                }
                1 => {
                    made.extend(begun.pop().inspect(|bytes| reserved += bytes));
                    None
                }
                2 => made.pop(),
                _ => {
                    reserved = reserved.saturating_sub(bytes);
                    Some(0)
                }
            };
            if let Some(bytes) = settled {
                match settle(&mut pools, bytes, reserved) {
                    Correction::Charge(more) => held += more,
                    Correction::Release(less) => held -= less,
                }
                let in_flight: u64 = begun.iter().chain(&made).sum();
                prop_assert!((reserved.max(in_flight)..=reserved + in_flight).contains(&held));
            }
        }
    }
}

#[test]
fn size_that_is_older_than_the_last_correction_is_not_used() {
    let mut pools = table();
    pools.begin(POOL, 10);
    let [first, second] = [(); 2].map(|()| pools.begin_query(POOL).expect("a known pool"));
    assert!(pools.is_queried(POOL) && pools.end_query(first));
    assert_eq!(settle(&mut pools, 10, 10), Correction::Release(0));
    assert!(!pools.end_query(second), "it may have been asked before the driver made the allocation");
    assert!(!pools.is_queried(POOL));
    let third = pools.begin_query(POOL).expect("a known pool");
    pools.keep(POOL, 0);
    assert!(!pools.end_query(third));
    assert!(pools.begin_query(PoolId::Pool(9)).is_none());
}

#[test]
fn kept_allocation_is_charged_until_a_size_shows_otherwise() {
    let mut pools = table();
    pools.begin(POOL, 10);
    pools.keep(POOL, 10);
    assert_eq!(settle(&mut pools, 0, 10), Correction::Release(0));
    assert_eq!(settle(&mut pools, 0, 4), Correction::Release(6));
}

#[test]
fn correction_releases_nothing_of_an_allocation_that_is_being_made() {
    let mut pools = table();
    assert_eq!(allocate(&mut pools, 100, 100), Correction::Release(0));
    pools.begin(POOL, 60);
    // Another thread corrects the charges before the driver has made the allocation.
    assert_eq!(settle(&mut pools, 0, 100), Correction::Release(0));
    assert_eq!(settle(&mut pools, 60, 160), Correction::Release(0));
    assert_eq!(pools.remove(POOL), Some((1, 160)));
}

proptest! {
    /// Whatever the manager refuses, the pool's charge is what was granted and not released.
    #[test]
    fn refused_correction_changes_no_charge(
        steps in proptest::collection::vec((0u64..100, 0u64..40, any::<bool>()), 0..60),
    ) {
        let (mut pools, mut account, mut last) = (table(), 0, 0);
        for (reserved, bytes, grants) in steps {
            pools.begin(POOL, bytes);
            account += bytes;
            pools.settle(POOL, bytes, reserved, |correction| match correction {
                Correction::Charge(more) => {
                    account += if grants { more } else { 0 };
                    grants
                }
                Correction::Release(less) => {
                    account -= less;
                    true
                }
            });
            last = reserved;
        }
        let charged = match settle(&mut pools, 0, last) {
            Correction::Charge(more) => account + more,
            Correction::Release(less) => account - less,
        };
        prop_assert_eq!(charged, last);
        prop_assert_eq!(pools.remove(POOL), Some((1, last)));
    }
}
