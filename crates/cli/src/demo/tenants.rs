//! The tenants of a run: their plans, their processes and their results.

use std::time::{Duration, Instant};

use sluice_load::record::Record;
use sluice_load::samples::Quantiles;
use sluice_test_bed::{Tenant, TestBed};

use super::oracle::TenantReading;
use super::plan::{Class, TenantPlan};
use super::report::Outcome;

/// A tenant that was started.
#[derive(Debug)]
pub(crate) struct DemoTenant {
    /// Its promise and its load.
    pub(crate) plan: TenantPlan,
    /// Its process.
    pub(crate) process: Tenant,
}

impl DemoTenant {
    /// Starts it under the hook and waits until its first kernel has run. `pause` may end the wait.
    ///
    /// # Errors
    /// If it does not start, and those of `pause`.
    pub(crate) fn start(
        bed: &TestBed,
        plan: &TenantPlan,
        pause: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let mut process = Tenant::start(bed, plan.name, plan.name, plan.load())?;
        process.wait_until_started(pause)?;
        Ok(Self { plan: plan.clone(), process })
    }

    /// Kernels launched and kernels completed by its own count. Its buffer has to prove them.
    pub(crate) fn claimed_kernels(&self) -> (u64, u64) {
        match self.plan.class {
            Class::BestEffort => (self.process.be.launches, self.process.be.completed),
            Class::LatencyCritical => (self.process.lc.launches, self.process.lc.launches),
        }
    }

    /// Everything known of it after its end.
    pub(crate) fn outcome(&self, reading: TenantReading) -> Outcome {
        let (buffer, errors) = match &self.process.final_record {
            Some(Record::BeFinal { buffer, errors, .. } | Record::LcFinal { buffer, errors, .. }) => {
                (Some(buffer.clone()), errors.clone())
            }
            _ => (None, vec![format!("it ended without a result{}", self.process.log_tail())]),
        };
        Outcome { reading, denied: self.process.be.denied, buffer, errors }
    }

    /// Latency before the other tenants began, if it is latency-critical.
    pub(crate) fn latency_alone(&self) -> Option<Quantiles> {
        match &self.process.final_record {
            Some(Record::LcFinal { earlier_us, .. }) => earlier_us.first().copied(),
            _ => None,
        }
    }
}

/// Reads the records of all tenants for `time`.
///
/// # Errors
/// If a tenant ended early or printed a line that is no record, and those of `pause`.
pub(crate) fn poll_for(
    time: Duration,
    tenants: &mut [DemoTenant],
    mut pause: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        poll(tenants)?;
        pause()?;
    }
    Ok(())
}

/// Reads the records that the tenants have printed, and fails if a tenant has ended.
///
/// # Errors
/// If a tenant ended early or printed a line that is no record.
pub(crate) fn poll(tenants: &mut [DemoTenant]) -> anyhow::Result<()> {
    tenants.iter_mut().try_for_each(|tenant| tenant.process.poll())
}
