//! The library of disturbances: what may happen to a node while its tenants run, as values with a time.

use crate::simulated_gpu::{Change, MS, S, SimulatedGpu, TenantSpec};
use proptest::prelude::*;
use sluice_core::ledger::Class;

/// After this time without a manager the hooks take over, if the resource file allows that.
const MANAGER_LOSS_NS: u64 = 200 * MS;

/// One disturbance. After it, everything is as before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Disturbance {
    /// The manager makes no step for this time. The hooks wait for it, or take over after 200 ms.
    ManagerStall { ns: u64, hooks_take_over: bool },
    /// A tenant's process is stopped: it reports what it reported before, and no work of it runs.
    Freeze { tenant: usize, ns: u64 },
    /// A tenant's process dies. Another one starts after this time.
    Kill { tenant: usize, restart_ns: u64 },
    /// A client has another class for this time.
    ClassChange { tenant: usize, class: Class, ns: u64 },
    /// The resource file is read again: nothing has changed.
    Reload,
    /// A client has another request for this time.
    RequestChange { tenant: usize, request: f64, ns: u64 },
    /// A client is removed, and added again after this time.
    Leave { tenant: usize, ns: u64 },
    /// Another client that always has work joins, and leaves after this time.
    Join { request: f64, ns: u64 },
    /// A tenant starts one kernel of this length.
    LongKernel { tenant: usize, ns: u64 },
    /// The driver fails every control for this time.
    ControlFailure { ns: u64 },
}

impl Disturbance {
    /// How long it lasts.
    pub(crate) const fn lasts_ns(&self) -> u64 {
        match self {
            Self::Reload => 0,
            Self::Kill { restart_ns: ns, .. }
            | Self::ManagerStall { ns, .. }
            | Self::Freeze { ns, .. }
            | Self::ClassChange { ns, .. }
            | Self::RequestChange { ns, .. }
            | Self::Leave { ns, .. }
            | Self::Join { ns, .. }
            | Self::LongKernel { ns, .. }
            | Self::ControlFailure { ns } => *ns,
        }
    }

    /// For how long the tenant to which it happens may hold the GPU by its own doing. It repays that time.
    pub(crate) const fn owed_ns(&self) -> u64 {
        match self {
            Self::Freeze { ns, .. } | Self::LongKernel { ns, .. } => *ns,
            _ => 0,
        }
    }

    /// Has it happen to these tenants at a time.
    pub(crate) fn schedule(self, gpu: &mut SimulatedGpu, tenants: &[TenantSpec], at: u64) {
        let end = at + self.lasts_ns();
        let joined = gpu.next_tenant();
        let mut temporary = |from: Change, back: Change| {
            gpu.schedule(at, from);
            gpu.schedule(end, back);
        };
        match self {
            Self::ManagerStall { hooks_take_over, .. } => {
                temporary(Change::ManagerStops { until: end }, Change::ManagerResumes);
                if hooks_take_over {
                    gpu.schedule(at + MANAGER_LOSS_NS, Change::HooksTakeOver);
                }
            }
            Self::Freeze { tenant, .. } => temporary(Change::Freezes(tenant), Change::Thaws(tenant)),
            Self::Kill { tenant, .. } => temporary(Change::Dies(tenant), Change::Starts(tenant)),
            Self::ClassChange { tenant, class, .. } => {
                let before = tenants[tenant];
                temporary(Change::Becomes(tenant, before.of_class(class)), Change::Becomes(tenant, before));
            }
            Self::Reload => {
                for (tenant, spec) in tenants.iter().enumerate() {
                    gpu.schedule(at, Change::Becomes(tenant, *spec));
                }
            }
            Self::RequestChange { tenant, request, .. } => {
                let before = tenants[tenant];
                let changed = TenantSpec { request, ..before };
                temporary(Change::Becomes(tenant, changed), Change::Becomes(tenant, before));
            }
            Self::Leave { tenant, .. } => temporary(Change::Leaves(tenant), Change::Returns(tenant)),
            Self::Join { request, .. } => {
                temporary(Change::Joins(TenantSpec::saturating(request)), Change::Leaves(joined));
            }
            Self::LongKernel { tenant, ns } => gpu.schedule(at, Change::LongKernel(tenant, ns)),
            Self::ControlFailure { .. } => gpu.schedule(at, Change::ControlsFail { until: end }),
        }
    }
}

/// One of every kind, as the issue names them. The first tenant is the one to which they happen.
pub(crate) const EXAMPLES: [Disturbance; 13] = [
    Disturbance::ManagerStall { ns: 4 * S, hooks_take_over: false },
    Disturbance::ManagerStall { ns: 4 * S, hooks_take_over: true },
    Disturbance::LongKernel { tenant: 0, ns: 2 * S },
    Disturbance::LongKernel { tenant: 0, ns: 3 * S },
    Disturbance::Freeze { tenant: 0, ns: 1_500 * MS },
    Disturbance::Kill { tenant: 0, restart_ns: 700 * MS },
    Disturbance::ClassChange { tenant: 0, class: Class::LatencyCritical, ns: 2 * S },
    Disturbance::ClassChange { tenant: 0, class: Class::High, ns: 2 * S },
    Disturbance::Reload,
    Disturbance::RequestChange { tenant: 0, request: 0.05, ns: 2 * S },
    Disturbance::Leave { tenant: 0, ns: 2 * S },
    Disturbance::Join { request: 0.3, ns: 2 * S },
    Disturbance::ControlFailure { ns: S },
];

/// Any disturbance of this many tenants that has no effect on the clients' enforcement level.
pub(crate) fn any_disturbance(tenants: usize) -> impl Strategy<Value = Disturbance> {
    let ns = (1_u64..40).prop_map(|tenths| tenths * 100 * MS);
    let class = prop::sample::select(Class::ALL.to_vec());
    let request = (0_u32..50).prop_map(|percent| f64::from(percent) / 100.0);
    (0..tenants, ns, class, request, any::<bool>(), 0..9).prop_map(
        |(tenant, ns, class, request, hooks_take_over, kind)| match kind {
            0 => Disturbance::ManagerStall { ns, hooks_take_over },
            // What a tenant owes for longer takes longer to simulate, and shows nothing else.
            1 => Disturbance::Freeze { tenant, ns: ns.min(S) },
            2 => Disturbance::Kill { tenant, restart_ns: ns },
            3 => Disturbance::ClassChange { tenant, class, ns },
            4 => Disturbance::Reload,
            5 => Disturbance::RequestChange { tenant, request, ns },
            6 => Disturbance::Leave { tenant, ns },
            7 => Disturbance::Join { request, ns },
            _ => Disturbance::LongKernel { tenant, ns: ns.min(S) },
        },
    )
}

/// Random disturbances, each with its time after the one before. They may overlap.
pub(crate) fn any_sequence(tenants: usize) -> impl Strategy<Value = Vec<(u64, Disturbance)>> {
    let pause = (0_u64..20).prop_map(|tenths| tenths * 100 * MS);
    prop::collection::vec((pause, any_disturbance(tenants)), 1..4).prop_map(|steps| {
        let times = steps.iter().scan(S, |at, (pause, _)| {
            *at += pause;
            Some(*at)
        });
        times.collect::<Vec<u64>>().into_iter().zip(steps).map(|(at, (_, what))| (at, what)).collect()
    })
}
