//! Tests of `node_status.rs`.

use super::*;

const AMOUNTS: Countable = Countable { slots: 20, milli: 2000, memory_mib: 163_840 };

fn status(capacity: &Value, allocatable: &Value) -> NodeStatus {
    serde_json::from_value(json!({"capacity": capacity, "allocatable": allocatable})).unwrap()
}

#[test]
fn bare_node_gets_both_resources_in_capacity_and_allocatable() {
    let amounts = json!({"sluice.dev/milli": "2000", "sluice.dev/memory-mib": "163840"});
    let expected = json!({"status": {"capacity": amounts, "allocatable": amounts}});
    assert_eq!(patch(None, Some(AMOUNTS)), Some(expected));
}

#[test]
fn equal_amounts_in_any_notation_are_not_written() {
    let amounts = json!({"cpu": "8", "sluice.dev/gpu": "20", "sluice.dev/milli": "2k", "sluice.dev/memory-mib": "163840"});
    assert_eq!(patch(Some(&status(&amounts, &amounts)), Some(AMOUNTS)), None);
}

#[test]
fn only_amounts_that_differ_are_written() {
    let is = json!({"sluice.dev/milli": "2k", "sluice.dev/memory-mib": "163840"});
    let zeroed = json!({"sluice.dev/milli": "0", "sluice.dev/memory-mib": "163840"});
    let expected = json!({"status": {"allocatable": {"sluice.dev/milli": "2000"}}});
    assert_eq!(patch(Some(&status(&is, &zeroed)), Some(AMOUNTS)), Some(expected));
}

#[test]
fn node_without_amounts_loses_the_resources() {
    let is = json!({"cpu": "8", "sluice.dev/milli": "2k", "sluice.dev/memory-mib": "163840"});
    assert_eq!(patch(Some(&status(&is, &is)), None), Some(removal()));
    assert_eq!(patch(None, None), None);
}
