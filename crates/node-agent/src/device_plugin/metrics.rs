//! The plugin's metrics.

use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// Buckets from 50 µs to 1 s; the target is 5 ms.
const ALLOCATE_BUCKETS: [f64; 12] =
    [0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.1, 0.5, 1.0];

/// Handles to the plugin's series. Clones share the same series.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub(super) allocate: Histogram,
    pub(super) registrations: IntCounterVec,
    pub(super) registered: IntGauge,
    pub(super) slots: IntGaugeVec,
}

impl Metrics {
    /// Creates the series and registers them.
    ///
    /// # Errors
    /// The registry already has series of these names.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let allocate = HistogramOpts::new(
            "sluice_device_plugin_allocate_seconds",
            "Time from kubelet's Allocate request to the answer, seconds.",
        );
        let registrations = Opts::new(
            "sluice_device_plugin_registrations_total",
            "Attempts to register the plugin with kubelet, by outcome (ok, error).",
        );
        let slots = Opts::new(
            "sluice_device_plugin_seats",
            "DeviceSlots of the node by health (healthy, unhealthy), held or not.",
        );
        let metrics = Self {
            allocate: Histogram::with_opts(allocate.buckets(ALLOCATE_BUCKETS.to_vec()))?,
            registrations: IntCounterVec::new(registrations, &["outcome"])?,
            registered: IntGauge::new(
                "sluice_device_plugin_registered",
                "1 while the plugin is registered with kubelet, else 0.",
            )?,
            slots: IntGaugeVec::new(slots, &["health"])?,
        };
        for outcome in ["ok", "error"] {
            metrics.registrations.with_label_values(&[outcome]);
        }
        registry.register(Box::new(metrics.allocate.clone()))?;
        registry.register(Box::new(metrics.registrations.clone()))?;
        registry.register(Box::new(metrics.registered.clone()))?;
        registry.register(Box::new(metrics.slots.clone()))?;
        Ok(metrics)
    }
}
