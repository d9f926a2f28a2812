//! Clients and their entitled shares, computed from the definition and not from the ledger.

use super::Arrivals;
use sluice_core::Share;
use sluice_core::ledger::{Class, ClientSpec, Policy};

/// The least weight of a client without a request.
const LEAST_WEIGHT: f64 = 0.01;

/// A client with one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TenantSpec {
    pub(crate) request: f64,
    pub(crate) limit: f64,
    pub(crate) class: Class,
    pub(crate) arrivals: Arrivals,
}

impl TenantSpec {
    /// A best-effort client without a limit that always has work.
    pub(crate) const fn saturating(request: f64) -> Self {
        Self { request, limit: 1.0, class: Class::BestEffort, arrivals: Arrivals::Saturating }
    }

    pub(crate) fn of_class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    pub(crate) const fn limited(self, limit: f64) -> Self {
        Self { limit, ..self }
    }

    pub(crate) const fn with(self, arrivals: Arrivals) -> Self {
        Self { arrivals, ..self }
    }
}

/// The ledger's form of a client.
pub(crate) fn client_spec(tenant: &TenantSpec) -> ClientSpec {
    let share = |fraction| Share::from_fraction(fraction).unwrap();
    ClientSpec { request: share(tenant.request), limit: share(tenant.limit), class: tenant.class }
}

/// The ledger's settings in all simulations.
pub(crate) fn ledger_policy() -> Policy {
    Policy::default()
}

/// A client for which an entitled share is computed: all of them have work, of at most `demand` of the GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) request: f64,
    pub(crate) limit: f64,
    pub(crate) class: Class,
    pub(crate) demand: f64,
}

impl From<&TenantSpec> for Claim {
    fn from(tenant: &TenantSpec) -> Self {
        let TenantSpec { request, limit, class, arrivals } = *tenant;
        let demand = match arrivals {
            Arrivals::Periodic { period_ns, work_ns } => work_ns as f64 / period_ns as f64,
            _ => 1.0,
        };
        Self { request, limit, class, demand }
    }
}

impl Claim {
    fn most(&self) -> f64 {
        self.limit.min(self.demand)
    }
}

/// Entitled shares of clients that all have work. The levels are served from the best one on. Each leaves to the levels
/// below what they have requested, and one percent to a client without a request.
pub(crate) fn entitled(claims: &[Claim]) -> Vec<f64> {
    let requests: f64 = claims.iter().map(|claim| claim.request).sum();
    let without = claims.iter().filter(|claim| claim.request == 0.0).count();
    let unrequested = ((1.0 - requests) / without.max(1) as f64).max(LEAST_WEIGHT);
    let weight = |claim: &Claim| if claim.request > 0.0 { claim.request } else { unrequested };
    let mut shares = vec![0.0; claims.len()];
    let mut left = 1.0;
    for class in Class::ALL {
        let guaranteed = |claim: &Claim| {
            if claim.class > class { claim.request.max(LEAST_WEIGHT).min(claim.most()) } else { 0.0 }
        };
        let below: f64 = claims.iter().map(guaranteed).sum();
        let members: Vec<usize> = (0..claims.len()).filter(|index| claims[*index].class == class).collect();
        let weights: Vec<f64> = members.iter().map(|index| weight(&claims[*index])).collect();
        let most: Vec<f64> = members.iter().map(|index| claims[*index].most()).collect();
        for (index, share) in members.iter().zip(divide((left - below).max(0.0), &weights, &most)) {
            shares[*index] = share;
            left -= share;
        }
    }
    shares
}

/// Divides `total` in proportion to the weights. What a client cannot use goes to the others, in proportion again.
fn divide(total: f64, weights: &[f64], most: &[f64]) -> Vec<f64> {
    let mut shares = vec![0.0; weights.len()];
    let mut open: Vec<usize> = (0..weights.len()).collect();
    let mut left = total;
    loop {
        let sum: f64 = open.iter().map(|index| weights[*index]).sum();
        let full = |index: &usize| left * weights[*index] / sum >= most[*index];
        let Some(position) = open.iter().position(full) else {
            open.iter().for_each(|index| shares[*index] = left * weights[*index] / sum);
            return shares;
        };
        let index = open.swap_remove(position);
        shares[index] = most[index];
        left -= most[index];
    }
}
