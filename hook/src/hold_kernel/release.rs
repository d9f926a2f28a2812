//! The release of hold kernels by the host, and the count of those that are over.

use std::sync::atomic::Ordering::Relaxed;

use super::counts::{RELEASED, UNRELEASED};
use super::resources::Resources;
use crate::process::ManagedDevice;

/// Counts the last hold kernel of a context if it has ended.
pub(super) fn count(managed: &ManagedDevice, resources: &mut Resources) {
    let Some(finished) = resources.take_finished() else { return };
    managed.active_hold.set_counted();
    managed.device.link.count_hold(finished.held_ns);
    UNRELEASED.fetch_add(finished.unreleased, Relaxed);
    if let Some(times) = finished.times {
        managed.device.hold_kernels.with(|state| state.learn_times(times));
    }
}

pub(super) fn release_hold(managed: &ManagedDevice, ticket: Option<u32>) {
    if let (Some(ticket), Some(page)) = (ticket, managed.active_hold.page()) {
        page.release(ticket);
        RELEASED.fetch_add(1, Relaxed);
        managed.active_hold.clear_expected_work(&managed.device);
    }
}
