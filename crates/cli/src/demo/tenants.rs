//! The demo's three tenants: the promise to each, its load, its process and its result.

use std::fmt::Write as _;

use sluice_load::record::Record;
use sluice_load::samples::Quantiles;
use sluice_test_bed::{Tenant, TestBed};

use super::oracle::TenantReading;
use super::report::Outcome;

/// Limit of each tenant's share of the GPU time, 0..=1.
pub(crate) const LIMIT: f64 = 1.0;

/// Share of the GPU that the latency-critical tenant requests: several times what its requests need. Beyond its request it would be
/// delayed for the best-effort ones.
pub(crate) const CRITICAL_REQUEST: f64 = 0.1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Class {
    /// Runs by token, within its quota.
    BestEffort,
    /// Holds an unlimited grant.
    LatencyCritical,
}

impl Class {
    /// Name in the resource file.
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }
}

/// One tenant: its promise, and the load that it generates.
#[derive(Debug, Clone)]
pub(crate) struct TenantPlan {
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    /// Guaranteed share, 0..=1: of the GPU for the latency-critical tenant, of what its request leaves for the others.
    pub(crate) quota: f64,
    /// Bytes.
    pub(crate) memory_limit: u64,
    /// It allocates until it is refused.
    pub(crate) runs_into_limit: bool,
    /// Time of one of its kernels on an H200, microseconds.
    pub(crate) kernel_us: u32,
    /// Device memory that it allocates before it reports its start, bytes.
    pub(crate) holds_at_start: u64,
}

impl TenantPlan {
    /// Its request in the resource file. All requests add up to 1.
    fn request(&self) -> f64 {
        match self.class {
            Class::BestEffort => self.quota * (1.0 - CRITICAL_REQUEST),
            Class::LatencyCritical => self.quota,
        }
    }

    /// Arguments of `sluice load`. Best-effort tenants wait for a mark before they work.
    pub(crate) fn load(&self) -> Vec<String> {
        let mut arguments = match self.class {
            Class::BestEffort => "be --depth 4 --start-with-mark".to_owned(),
            Class::LatencyCritical => "lc --period-us 10000".to_owned(),
        };
        arguments += &format!(" --duration-us {}", self.kernel_us);
        if self.holds_at_start > 0 {
            arguments += &format!(" --memory {}", self.holds_at_start);
        }
        if self.runs_into_limit {
            arguments += " --grow";
        }
        arguments.split(' ').map(str::to_owned).collect()
    }
}

/// The plans of the three tenants.
pub(crate) fn plans() -> Vec<TenantPlan> {
    let first = TenantPlan {
        name: "be-30",
        class: Class::BestEffort,
        quota: 0.3,
        memory_limit: 2 << 30,
        runs_into_limit: true,
        kernel_us: 1000,
        holds_at_start: 0,
    };
    let others = TenantPlan { runs_into_limit: false, ..first };
    let second =
        TenantPlan { name: "be-70", quota: 0.7, memory_limit: 8 << 30, holds_at_start: 1 << 30, ..others };
    let critical = TenantPlan {
        name: "lc",
        class: Class::LatencyCritical,
        quota: CRITICAL_REQUEST,
        memory_limit: 1 << 30,
        kernel_us: 100,
        ..others
    };
    vec![first, second, critical]
}

/// The pod-manager's resource file for these tenants, YAML.
pub(crate) fn resource_file(tenants: &[TenantPlan]) -> String {
    let mut text = String::from("clients:\n");
    for tenant in tenants {
        let TenantPlan { name, memory_limit, class, .. } = tenant;
        let (class, request) = (class.name(), tenant.request());
        let _ = writeln!(
            text,
            "  - {{ name: {name}, request: {request:.2}, limit: {LIMIT}, memory: {memory_limit}, class: {class} }}"
        );
    }
    text
}

/// A tenant that was started.
#[derive(Debug)]
pub(crate) struct DemoTenant {
    pub(crate) plan: TenantPlan,
    pub(crate) load: Tenant,
}

impl DemoTenant {
    /// Starts it under the hook and waits until its first kernel has run. `pause` may end the wait.
    pub(crate) fn start(
        bed: &TestBed,
        plan: &TenantPlan,
        pause: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let mut load = Tenant::start(bed, plan.name, plan.name, plan.load())?;
        load.wait_until_started(pause)?;
        Ok(Self { plan: plan.clone(), load })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.load.process.pid()
    }

    /// Kernels launched and kernels completed by its own count. Its buffer has to prove them.
    pub(crate) fn claimed_kernels(&self) -> (u64, u64) {
        match self.plan.class {
            Class::BestEffort => (self.load.be.launches, self.load.be.completed),
            Class::LatencyCritical => (self.load.lc.launches, self.load.lc.launches),
        }
    }

    /// Everything known of it after its end.
    pub(crate) fn outcome(&self, reading: TenantReading) -> Outcome {
        let (buffer, errors) = match &self.load.final_record {
            Some(Record::BeFinal { buffer, errors, .. } | Record::LcFinal { buffer, errors, .. }) => {
                (Some(buffer.clone()), errors.clone())
            }
            _ => (None, vec![format!("it ended without a result{}", self.load.process.log_tail())]),
        };
        Outcome { reading, denied: self.load.be.denied, buffer, errors }
    }

    /// Latency before the other tenants began, if it is latency-critical.
    pub(crate) fn latency_alone(&self) -> Option<Quantiles> {
        match &self.load.final_record {
            Some(Record::LcFinal { earlier_us, .. }) => earlier_us.first().copied(),
            _ => None,
        }
    }
}

/// Reads the records that the tenants have printed. Fails if a tenant has ended or printed a line that is no record.
pub(crate) fn poll(tenants: &mut [DemoTenant]) -> anyhow::Result<()> {
    tenants.iter_mut().try_for_each(|tenant| tenant.load.poll())
}
