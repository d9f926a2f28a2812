use super::*;
use proptest::prelude::*;

impl AllocationTable {
    /// Bytes of all allocations on a device.
    fn bytes_on(&self, device: u32) -> u64 {
        let slots = self.slots.values().filter(|slot| slot.allocation.device == device);
        slots.map(|slot| slot.allocation.bytes).sum()
    }
}

fn allocation(bytes: u64, device: u32, context: u64) -> Allocation {
    Allocation { bytes, device, context, pool: 0 }
}

#[test]
fn a_handle_with_two_references_is_charged_until_both_are_gone() {
    let mut ledger = AllocationTable::new();
    ledger.insert(HandleSpace::Physical, 5, allocation(100, 0, 0));
    ledger.retain(HandleSpace::Physical, 5);
    assert_eq!(ledger.release(HandleSpace::Physical, 5), None);
    assert_eq!(ledger.bytes_on(0), 100);
    assert_eq!(ledger.release(HandleSpace::Physical, 5).map(|a| a.bytes), Some(100));
    assert_eq!(ledger.bytes_on(0), 0);
}

#[test]
fn array_and_pointer_of_the_same_number_are_two_allocations() {
    let mut ledger = AllocationTable::new();
    ledger.insert(HandleSpace::Pointer, 5, allocation(1, 0, 0));
    ledger.insert(HandleSpace::Array, 5, allocation(10, 0, 0));
    assert_eq!(ledger.release(HandleSpace::Pointer, 5).map(|a| a.bytes), Some(1));
    assert_eq!(ledger.bytes_on(0), 10);
}

#[test]
fn a_free_the_driver_refused_leaves_the_charge() {
    let mut ledger = AllocationTable::new();
    ledger.insert(HandleSpace::Pointer, 5, allocation(100, 0, 0));
    let taken = ledger.release(HandleSpace::Pointer, 5);
    ledger.restore(HandleSpace::Pointer, 5, taken);
    assert_eq!(ledger.bytes_on(0), 100);
}

#[test]
fn a_destroyed_context_takes_only_its_own_allocations() {
    let mut ledger = AllocationTable::new();
    ledger.insert(HandleSpace::Pointer, 1, allocation(1, 0, 7));
    ledger.insert(HandleSpace::Array, 2, allocation(10, 0, 7));
    ledger.insert(HandleSpace::Pointer, 3, allocation(100, 0, 8));
    ledger.insert(HandleSpace::Physical, 4, allocation(1000, 0, 0));
    assert_eq!(ledger.remove_context(7), BTreeMap::from([(0, 11)]));
    assert_eq!(ledger.remove_context(0), BTreeMap::new());
    assert_eq!(ledger.bytes_on(0), 1100);
}

#[test]
fn allocations_of_a_detached_pool_are_charged_by_themselves() {
    let mut ledger = AllocationTable::new();
    let of_pool = |bytes, pool| Allocation { pool, ..allocation(bytes, 0, 0) };
    ledger.insert(HandleSpace::Pointer, 1, of_pool(1, 7));
    ledger.insert(HandleSpace::Pointer, 2, of_pool(10, 7));
    ledger.insert(HandleSpace::Pointer, 3, of_pool(100, 8));
    ledger.insert(HandleSpace::Pointer, 4, of_pool(1000, 0));
    assert_eq!(ledger.detach_pool(7, 20), 11);
    assert_eq!(ledger.detach_pool(7, 20), 0);
    assert_eq!(ledger.release(HandleSpace::Pointer, 2), Some(of_pool(10, 0)));
    assert_eq!(ledger.release(HandleSpace::Pointer, 3), Some(of_pool(100, 8)));
}

#[test]
fn allocations_of_a_detached_pool_release_no_more_than_the_pool_was_charged() {
    let mut ledger = AllocationTable::new();
    let of_pool = |bytes, pool| Allocation { pool, ..allocation(bytes, 0, 0) };
    ledger.insert(HandleSpace::Pointer, 1, of_pool(20, 7));
    ledger.insert(HandleSpace::Pointer, 2, of_pool(10, 7));
    assert_eq!(ledger.detach_pool(7, 25), 25);
    assert_eq!(ledger.release(HandleSpace::Pointer, 1), Some(of_pool(20, 0)));
    assert_eq!(ledger.release(HandleSpace::Pointer, 2), Some(of_pool(5, 0)));
}

proptest! {
    #[test]
    fn table_contains_what_was_inserted_and_not_released(
        steps in proptest::collection::vec((0u8..4, 0u64..6, 1u64..1000, 0u32..2), 0..200),
    ) {
        let mut ledger = AllocationTable::new();
        // The same rules over a plain list of (handle, bytes, device, references).
        let mut naive: Vec<(u64, u64, u32, u32)> = Vec::new();
        for (what, handle, bytes, device) in steps {
            let at = naive.iter().position(|entry| entry.0 == handle);
            match what {
                0 | 1 => {
                    let old = ledger.insert(HandleSpace::Pointer, handle, allocation(bytes, device, 0));
                    prop_assert_eq!(old.map(|a| a.bytes), at.map(|at| naive.remove(at).1));
                    naive.push((handle, bytes, device, 1));
                }
                2 => {
                    let expected = at.and_then(|at| {
                        naive[at].3 -= 1;
                        (naive[at].3 == 0).then(|| naive.remove(at).1)
                    });
                    prop_assert_eq!(ledger.release(HandleSpace::Pointer, handle).map(|a| a.bytes), expected);
                }
                _ => {
                    ledger.retain(HandleSpace::Pointer, handle);
                    if let Some(at) = at { naive[at].3 += 1; }
                }
            }
            for device in 0..2 {
                let expected: u64 = naive.iter().filter(|e| e.2 == device).map(|e| e.1).sum();
                prop_assert_eq!(ledger.bytes_on(device), expected);
            }
        }
    }
}
