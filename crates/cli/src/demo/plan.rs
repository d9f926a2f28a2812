//! The demo's three tenants: the promise to each, and its load.

use std::fmt::Write as _;

/// Class of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Runs by token, within its quota.
    BestEffort,
    /// Holds an unlimited grant.
    LatencyCritical,
}

impl Class {
    /// Name in the resource file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BestEffort => "best-effort",
            Self::LatencyCritical => "latency-critical",
        }
    }
}

/// One tenant: its promise, and the load that it generates.
#[derive(Debug, Clone)]
pub(crate) struct TenantPlan {
    /// Client name.
    pub(crate) name: &'static str,
    /// Class.
    pub(crate) class: Class,
    /// Guaranteed share of the GPU time of the best-effort tenants, 0..=1.
    pub(crate) quota: f64,
    /// Limit of its share of the GPU time, 0..=1.
    pub(crate) limit: f64,
    /// Memory limit, bytes.
    pub(crate) memory_limit: u64,
    /// It allocates until it is refused.
    pub(crate) runs_into_limit: bool,
    /// Time of one of its kernels on an H200, microseconds.
    pub(crate) kernel_us: u32,
    /// Device memory that it allocates before it reports its start, bytes.
    pub(crate) holds_at_start: u64,
}

impl TenantPlan {
    /// Arguments of `sluice load`. Best-effort tenants wait for a mark before they work.
    pub(crate) fn load(&self) -> Vec<String> {
        let mut arguments: Vec<String> = match self.class {
            Class::BestEffort => vec!["be".into(), "--depth".into(), "4".into(), "--start-with-mark".into()],
            Class::LatencyCritical => vec!["lc".into(), "--period-us".into(), "10000".into()],
        };
        arguments.extend(["--duration-us".into(), self.kernel_us.to_string()]);
        if self.holds_at_start > 0 {
            arguments.extend(["--memory".into(), self.holds_at_start.to_string()]);
        }
        if self.runs_into_limit {
            arguments.push("--grow".into());
        }
        arguments
    }
}

/// The demo's three tenants.
pub(crate) fn tenants() -> Vec<TenantPlan> {
    vec![
        TenantPlan {
            name: "be-30",
            class: Class::BestEffort,
            quota: 0.3,
            limit: 1.0,
            memory_limit: 2 << 30,
            runs_into_limit: true,
            kernel_us: 1000,
            holds_at_start: 0,
        },
        TenantPlan {
            name: "be-70",
            class: Class::BestEffort,
            quota: 0.7,
            limit: 1.0,
            memory_limit: 8 << 30,
            runs_into_limit: false,
            kernel_us: 1000,
            holds_at_start: 1 << 30,
        },
        TenantPlan {
            name: "lc",
            class: Class::LatencyCritical,
            quota: 0.0,
            limit: 1.0,
            memory_limit: 1 << 30,
            runs_into_limit: false,
            kernel_us: 100,
            holds_at_start: 0,
        },
    ]
}

/// The pod-manager's resource file for these tenants, YAML.
pub(crate) fn resource_file(tenants: &[TenantPlan]) -> String {
    let mut text = String::from("clients:\n");
    for tenant in tenants {
        let _ = writeln!(
            text,
            "  - {{ name: {}, request: {}, limit: {}, memory: {}, class: {} }}",
            tenant.name,
            tenant.quota,
            tenant.limit,
            tenant.memory_limit,
            tenant.class.name()
        );
    }
    text
}
