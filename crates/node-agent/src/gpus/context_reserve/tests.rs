//! Tests of `context_reserve.rs`.

use super::*;

const GIB: u64 = 1 << 30;

#[test]
fn default_is_half_a_gibibyte_for_each_slot_and_at_most_a_tenth() {
    assert_eq!(ContextReserve::Default.bytes(140 * GIB, 10), 5 * GIB);
    assert_eq!(ContextReserve::Default.bytes(20 * GIB, 10), 2 * GIB);
    assert_eq!(ContextReserve::Default.bytes(140 * GIB, 100), 14 * GIB);
}

#[test]
fn stated_reserve_is_exact_up_to_all_of_the_memory() {
    let reserve: ContextReserve = "2Gi".parse().unwrap();
    assert_eq!(reserve.bytes(80 * GIB, 10), 20 * GIB);
    assert_eq!(reserve.bytes(8 * GIB, 10), 8 * GIB);
    assert_eq!(ContextReserve::PerSlot(0).bytes(80 * GIB, 10), 0);
}

#[test]
fn value_that_is_no_quantity_is_refused() {
    assert!("half".parse::<ContextReserve>().unwrap_err().contains("such as 512Mi"));
}
