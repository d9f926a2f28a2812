//! Shares of clients that always have work, in every window of 1 s: from 2 s after a disturbance on, or once a client has repaid
//! what it took by its own doing.

use crate::disturbances::{Disturbance, EXAMPLES, any_sequence};
use crate::simulated_gpu::{
    Claim, Deviation, MS, S, Scheduling, SimulatedGpu, TenantSpec, entitled, ledger_policy,
};
use proptest::prelude::*;
use sluice_core::Share;
use sluice_core::ledger::Class;

/// From this time after the end of the last disturbance on, shares are those entitled to.
const SETTLED_NS: u64 = 2 * S;
const WINDOW_NS: u64 = S;

/// Requests of the clients: they add up to 0.6, 0.95 and 1.
const REQUESTS: [&[f64]; 5] =
    [&[0.2, 0.4], &[0.25, 0.7], &[0.5, 0.5], &[0.15, 0.3, 0.5], &[0.1, 0.2, 0.3, 0.4]];

/// The largest tolerated deviation in a window: two points, or one quantum with the controls of its hand-off.
fn tolerance() -> f64 {
    let policy = ledger_policy();
    let quantum_ns = policy.quantum_ns.max(policy.quota.base_ns) + 2 * MS;
    (quantum_ns as f64 / WINDOW_NS as f64).max(0.02)
}

/// Differences of a tenant over the whole measured time, as shares.
#[derive(Clone, Copy, Debug)]
struct Mean {
    /// Between its share and the entitled one.
    share_error: f64,
    /// Between its charge and its share.
    charge_error: f64,
}

/// For how long tenants may repay what they were ahead by and `owed_ns`: a lighter one needs longer for the same GPU time. One whose
/// share is below the tolerance shows no deviation while it repays.
fn repaid_ns(tenants: &[TenantSpec], owed_ns: u64) -> u64 {
    let claims: Vec<Claim> = tenants.iter().map(Claim::from).collect();
    let shares = entitled(&claims).into_iter().filter(|share| *share > 0.02);
    let ppm = |share| u64::from(Share::from_fraction(share).unwrap().ppm());
    let longest = shares.map(|share| (ledger_policy().lag_ns + owed_ns) * 1_000_000 / ppm(share)).max();
    SETTLED_NS.max(longest.unwrap_or(0).next_multiple_of(10 * MS))
}

/// Runs the tenants through the disturbances, and then for `ns` from `settled_ns` after the last one on. Returns the largest
/// deviation of each tenant's share in this time, and its mean differences.
fn run(
    scheduling: Scheduling,
    tenants: &[TenantSpec],
    disturbances: &[(u64, Disturbance)],
    settled_ns: u64,
    ns: u64,
) -> Vec<(Deviation, Mean)> {
    let mut gpu = SimulatedGpu::new(scheduling, tenants);
    let mut quiet = 0;
    for (at, disturbance) in disturbances {
        disturbance.schedule(&mut gpu, tenants, *at);
        quiet = quiet.max(at + disturbance.lasts_ns());
    }
    gpu.run_until(quiet);
    // A kernel that does not stop at the end of its tenant's grant runs beside the other tenants, which delays its end.
    while scheduling == Scheduling::Token && gpu.runs_long_kernel() {
        gpu.run_until(gpu.now + 10 * MS);
    }
    let from = gpu.now.next_multiple_of(10 * MS) + settled_ns;
    let to = from + ns;
    gpu.run_until(from);
    let totals = |gpu: &SimulatedGpu| -> Vec<(u64, u64)> {
        let total = |tenant| (gpu.charged_ns(tenant), gpu.witness.total_ns(tenant));
        (0..tenants.len()).map(total).collect()
    };
    let before = totals(&gpu);
    gpu.run_until(to);
    let claims: Vec<Claim> = tenants.iter().map(Claim::from).collect();
    let expected = entitled(&claims);
    let means = before.iter().zip(totals(&gpu)).zip(&expected).map(|((before, after), expected)| {
        let share = |from: u64, to: u64| (to - from) as f64 / ns as f64;
        let (charged, used) = (share(before.0, after.0), share(before.1, after.1));
        Mean { share_error: used - expected, charge_error: charged - used }
    });
    let deviation = |(tenant, share)| gpu.witness.largest_deviation(tenant, share, WINDOW_NS, (from, to));
    expected.iter().copied().enumerate().map(deviation).zip(means).collect()
}

/// The failures of all request sums under one kind of disturbance.
fn failures(scheduling: Scheduling, disturbance: Disturbance) -> Vec<String> {
    let mut failures = Vec::new();
    for requests in REQUESTS {
        let tenants: Vec<TenantSpec> = requests.iter().map(|share| TenantSpec::saturating(*share)).collect();
        let owed_ns = disturbance.owed_ns();
        let settled_ns = if owed_ns > 0 { repaid_ns(&tenants, owed_ns) } else { SETTLED_NS };
        for (deviation, mean) in run(scheduling, &tenants, &[(5 * S, disturbance)], settled_ns, 120 * S) {
            if deviation.size() > tolerance() {
                failures.push(format!("{scheduling:?} {requests:?}: {deviation}"));
            }
            if mean.charge_error.abs() > 0.01 {
                failures.push(format!("{scheduling:?} {requests:?}: {mean:?}"));
            }
        }
    }
    failures
}

fn check(which: impl Fn(&Disturbance) -> bool) {
    for disturbance in EXAMPLES.into_iter().filter(which) {
        let by_token = failures(Scheduling::Token, disturbance);
        let by_quanta = failures(Scheduling::Hardware, disturbance);
        let failures = [by_token, by_quanta].concat();
        assert!(failures.is_empty(), "{disturbance:?}\n{}", failures.join("\n"));
    }
}

#[test]
fn shares_hold_after_the_manager_stood_still() {
    check(|d| matches!(d, Disturbance::ManagerStall { .. }));
}

#[test]
fn shares_hold_after_one_long_kernel() {
    check(|d| matches!(d, Disturbance::LongKernel { .. }));
}

/// What it took is given back: over a minute that contains the kernel, every tenant has its share.
#[test]
fn shares_hold_over_a_minute_with_a_kernel_of_two_seconds() {
    for requests in REQUESTS {
        let tenants: Vec<TenantSpec> = requests.iter().map(|share| TenantSpec::saturating(*share)).collect();
        let mut gpu = SimulatedGpu::new(Scheduling::Token, &tenants);
        Disturbance::LongKernel { tenant: 0, ns: 2 * S }.schedule(&mut gpu, &tenants, 5 * S);
        gpu.run_until(65 * S);
        let claims: Vec<Claim> = tenants.iter().map(Claim::from).collect();
        for (tenant, expected) in entitled(&claims).into_iter().enumerate() {
            let share = gpu.witness.total_ns(tenant) as f64 / (65 * S) as f64;
            assert!(
                (share - expected).abs() <= 0.01,
                "{requests:?}: tenant {tenant} got {share} of {expected}"
            );
        }
    }
}

#[test]
fn shares_hold_after_a_tenant_was_frozen() {
    check(|d| matches!(d, Disturbance::Freeze { .. }));
}

#[test]
fn shares_hold_after_a_process_died_and_another_one_started() {
    check(|d| matches!(d, Disturbance::Kill { .. }));
}

#[test]
fn shares_hold_after_a_change_of_class_and_back() {
    check(|d| matches!(d, Disturbance::ClassChange { .. }));
}

#[test]
fn shares_hold_after_a_reload_with_and_without_a_change() {
    check(|d| matches!(d, Disturbance::Reload | Disturbance::RequestChange { .. }));
}

#[test]
fn shares_hold_after_a_client_joined_or_left() {
    check(|d| matches!(d, Disturbance::Join { .. } | Disturbance::Leave { .. }));
}

#[test]
fn shares_hold_after_controls_failed() {
    check(|d| matches!(d, Disturbance::ControlFailure { .. }));
}

/// Two to four best-effort clients of which the requests add up to at most 1; one may have no request.
fn any_tenants() -> impl Strategy<Value = Vec<TenantSpec>> {
    let worse = prop::sample::select(Class::ALL[1..].to_vec());
    let tenant = (0_u32..10, worse);
    (prop::collection::vec(tenant, 2..5), 0.5..1.0).prop_map(|(weights, sum)| {
        let total: u32 = weights.iter().map(|(weight, _)| weight).sum();
        let request = |weight| f64::from(weight) * sum / f64::from(total.max(1));
        weights.into_iter().map(|(w, class)| TenantSpec::saturating(request(w)).of_class(class)).collect()
    })
}

proptest! {
    #[test]
    fn shares_hold_after_random_disturbances(
        (tenants, disturbances) in any_tenants().prop_flat_map(|tenants| {
            let sequence = any_sequence(tenants.len());
            (Just(tenants), sequence)
        }),
        hardware in any::<bool>(),
    ) {
        let scheduling = if hardware { Scheduling::Hardware } else { Scheduling::Token };
        let owed_ns = disturbances.iter().map(|(_, disturbance)| disturbance.owed_ns()).sum();
        for (deviation, mean) in run(scheduling, &tenants, &disturbances, repaid_ns(&tenants, owed_ns), 8 * S) {
            // Each of the other clients may have one quantum more or less in the window.
            let others = (tenants.len() - 1) as f64;
            prop_assert!(deviation.size() <= others * tolerance(), "{}", deviation);
            prop_assert!(mean.share_error.abs() <= 0.02, "{}: {:?}", deviation, mean);
        }
    }
}
