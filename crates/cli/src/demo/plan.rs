//! Who takes part in the demo, and what was promised to whom.

use std::fmt::Write as _;

/// What a tenant is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Runs by token, within its quota.
    BestEffort,
    /// Holds a standing grant.
    LatencyCritical,
}

impl Class {
    /// As in the resource file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BestEffort => "best-effort",
            Self::LatencyCritical => "latency-critical",
        }
    }
}

/// One tenant: what it was promised, and the load it generates.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    /// Client name.
    pub(crate) name: &'static str,
    /// Class.
    pub(crate) class: Class,
    /// Guaranteed share of the GPU time of the best-effort tenants, 0..=1.
    pub(crate) quota: f64,
    /// Most it may use of the GPU, 0..=1.
    pub(crate) limit: f64,
    /// Memory limit, bytes.
    pub(crate) memory_limit: u64,
    /// It is told to allocate until it is refused.
    pub(crate) runs_into_limit: bool,
    /// Arguments of `sluice load`.
    pub(crate) load: &'static [&'static str],
}

/// The demo's three tenants.
pub(crate) fn tenants() -> Vec<Tenant> {
    vec![
        Tenant {
            name: "be-30",
            class: Class::BestEffort,
            quota: 0.3,
            limit: 1.0,
            memory_limit: 2 << 30,
            runs_into_limit: true,
            load: &["be", "--duration-us", "1000", "--depth", "4", "--grow"],
        },
        Tenant {
            name: "be-70",
            class: Class::BestEffort,
            quota: 0.7,
            limit: 1.0,
            memory_limit: 8 << 30,
            runs_into_limit: false,
            load: &["be", "--duration-us", "1000", "--depth", "4", "--memory", "1Gi"],
        },
        Tenant {
            name: "lc",
            class: Class::LatencyCritical,
            quota: 0.0,
            limit: 1.0,
            memory_limit: 1 << 30,
            runs_into_limit: false,
            load: &["lc", "--duration-us", "100", "--period-us", "10000"],
        },
    ]
}

/// The pod-manager's resource file for these tenants, YAML.
pub(crate) fn resource_file(tenants: &[Tenant]) -> String {
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
