//! The Prometheus series, built from the facts of one moment.
//!
//! Counters of a client start at 0 with its manager's process. Prometheus handles such resets as it does for any
//! restarted program.

use prometheus::core::Collector;
use prometheus::{IntGaugeVec, Opts, Registry};
use sluice_units::WHOLE_PPM;

use super::Facts;
use super::client_families::ClientFamilies;
use super::gpu_families::GpuFamilies;

/// Registers all series with an empty registry.
///
/// # Errors
/// A name is already taken.
pub fn register(facts: &Facts, registry: &Registry) -> prometheus::Result<()> {
    let clients = ClientFamilies::new(registry)?;
    let gpus = GpuFamilies::new(registry)?;
    let build = IntGaugeVec::new(
        opts("sluice_build_info", "Version of the running component"),
        &["version", "component"],
    )?;
    build.with_label_values(&[env!("CARGO_PKG_VERSION"), "node-agent"]).set(1);
    registry.register(Box::new(build))?;
    let refused = IntGaugeVec::new(
        opts(
            "sluice_refused_pods",
            "Pods of this node that request a GPU and get none; their events contain the reason",
        ),
        &["node"],
    )?;
    refused.with_label_values(&[&facts.node]).set(whole(facts.assignments.refused.len()));
    registry.register(Box::new(refused))?;
    for gpu in facts.inventory.iter().flat_map(|inventory| &inventory.gpus) {
        gpus.add(gpu, facts);
    }
    for (gpu, snapshot) in &facts.snapshots {
        if let Ok(snapshot) = snapshot {
            clients.add(gpu, snapshot, facts);
        }
    }
    Ok(())
}

pub(super) fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help)
}

pub(super) fn take<C: Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<C>,
) -> prometheus::Result<C> {
    let made = made?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

pub(super) fn ratio(ppm: u32) -> f64 {
    f64::from(ppm) / f64::from(WHOLE_PPM)
}

pub(super) fn seconds(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

/// Value of a gauge; a number that is too large is shown as the largest.
pub(super) fn whole(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}
