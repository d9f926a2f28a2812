use sluice_sim::module::{COPY, HOLD};

use super::*;

fn memory(runs_into_limit: bool) -> TenantMemory {
    TenantMemory { pid: 1, runs_into_limit, at_start: 600, held_at_start: 100, held: 100, peak: 100 }
}

#[test]
fn the_drivers_own_memory_is_not_counted_for_the_tenant() {
    let mut tenant = memory(false);
    tenant.update(Some(650), 9999);
    assert_eq!((tenant.held, tenant.peak), (150, 150));
    tenant.update(Some(600), 9999);
    assert_eq!((tenant.held, tenant.peak), (100, 150));
}

#[test]
fn without_known_processes_the_growing_tenant_has_the_devices_growth() {
    let (mut growing, mut other) = (memory(true), memory(false));
    growing.update(None, 70);
    other.update(None, 70);
    assert_eq!((growing.held, other.held), (170, 100));
}

#[test]
fn kernels_of_the_hook_are_not_counted_for_the_tenant() {
    let kernels = [("spin", 5), (HOLD, 3), (COPY, 4)].map(|(name, count)| (name.to_owned(), count));
    let row = ProcessLedger {
        kernels_submitted: 12,
        kernels_completed: 12,
        kernels: kernels.into(),
        ..ProcessLedger::default()
    };
    let reading = TenantReading::of_simulator(&row, 0);
    assert_eq!((reading.submitted, reading.completed), (5, 5));
}
