//! Shares of clients of different classes beside each other, and of clients without a request.

use crate::simulated_gpu::{Arrivals, Claim, MS, S, Scheduling, SimulatedGpu, TenantSpec, entitled};
use sluice_core::ledger::Class;

const BOTH: [Scheduling; 2] = [Scheduling::Token, Scheduling::Hardware];
/// By grants a latency-critical client and the holder of a grant take turns by the driver's time slices, whose switches cost so much of the time.
const SWITCHES: f64 = 0.1;
/// The measured span, after a beginning that does not count.
const FROM: u64 = 5 * S;
const TO: u64 = 35 * S;

fn critical(request: f64) -> TenantSpec {
    TenantSpec::saturating(request).of_class(Class::LatencyCritical)
}

/// Requests of a latency-critical client, which need 52 % of the GPU.
fn stream(request: f64, period_ns: u64) -> TenantSpec {
    critical(request).with(Arrivals::Periodic { period_ns, work_ns: period_ns * 52 / 100 })
}

/// The shares of the tenants in the measured span. The ledger's charges must equal them within one point.
fn shares(gpu: &mut SimulatedGpu, tenants: &[TenantSpec]) -> Vec<f64> {
    let charged = |gpu: &SimulatedGpu| -> Vec<u64> {
        (0..tenants.len()).map(|tenant| gpu.charged_ns(tenant)).collect()
    };
    gpu.run_until(FROM);
    let before = charged(gpu);
    gpu.run_until(TO);
    let after = charged(gpu);
    let shares: Vec<f64> = (0..tenants.len()).map(|tenant| gpu.witness.share(tenant, FROM, TO)).collect();
    for (tenant, share) in shares.iter().enumerate() {
        let charged = (after[tenant] - before[tenant]) as f64 / (TO - FROM) as f64;
        assert!(
            (charged - share).abs() <= 0.01,
            "{:?} {tenants:?}: tenant {tenant} got {share} and is charged {charged}",
            gpu.scheduling
        );
    }
    shares
}

/// The shares under both kinds of scheduling.
fn shares_of(tenants: &[TenantSpec]) -> Vec<(Scheduling, Vec<f64>)> {
    let measure = |scheduling| (scheduling, shares(&mut SimulatedGpu::new(scheduling, tenants), tenants));
    BOTH.into_iter().map(measure).collect()
}

/// Whether every share is within two points of the entitled one.
fn assert_entitled(tenants: &[TenantSpec]) {
    let claims: Vec<Claim> = tenants.iter().map(Claim::from).collect();
    let expected = entitled(&claims);
    for (scheduling, shares) in shares_of(tenants) {
        let near = shares.iter().zip(&expected).all(|(share, expected)| (share - expected).abs() <= 0.02);
        assert!(near, "{scheduling:?}: {shares:?} instead of {expected:?}");
    }
}

fn assert_served_beside_a_stream(scheduling: Scheduling, stream: TenantSpec) {
    let tenants = [stream, TenantSpec::saturating(0.5).limited(0.5)];
    let mut gpu = SimulatedGpu::new(scheduling, &tenants);
    gpu.run_until(FROM);
    let switching_ns = gpu.witness.switching_ns;
    let shares = shares(&mut gpu, &tenants);
    let switching = (gpu.witness.switching_ns - switching_ns) as f64 / (TO - FROM) as f64;
    let left = 1.0 - shares[0] - switching;
    assert!(
        shares[1] >= (left - 0.01).min(0.45),
        "{scheduling:?}: {shares:?} of {left} that the stream leaves"
    );
    assert!(
        left - shares[1] <= 0.03,
        "{scheduling:?}: {shares:?}, and the GPU is idle for {}",
        left - shares[1]
    );
}

#[test]
fn best_effort_client_gets_its_request_beside_a_latency_critical_stream() {
    for request in [0.0, 0.5] {
        BOTH.into_iter()
            .for_each(|scheduling| assert_served_beside_a_stream(scheduling, stream(request, 100 * MS)));
        assert_served_beside_a_stream(Scheduling::Hardware, stream(request, 10 * MS));
    }
}

#[test]
fn best_effort_client_gets_its_request_beside_a_saturating_latency_critical_one() {
    for (scheduling, shares) in shares_of(&[critical(0.5), TenantSpec::saturating(0.5)]) {
        let switches = if scheduling == Scheduling::Token { SWITCHES } else { 0.0 };
        assert!(shares[1] >= 0.48 * (1.0 - switches), "{scheduling:?}: {shares:?}");
    }
}

#[test]
fn limit_of_a_latency_critical_client_holds() {
    const LIMIT: f64 = 0.3;
    for (critical_request, request) in [(0.3, 0.6), (0.1, 0.9)] {
        let tenants = [critical(critical_request).limited(LIMIT), TenantSpec::saturating(request)];
        for scheduling in BOTH {
            let mut gpu = SimulatedGpu::new(scheduling, &tenants);
            let shares = shares(&mut gpu, &tenants);
            // By grants the service may have more than its request, up to its limit.
            let most = if scheduling == Scheduling::Token { 1.0 - LIMIT - SWITCHES } else { 1.0 };
            assert!(shares[1] >= request.min(most) - 0.02, "{scheduling:?}: {shares:?}");
            let longest =
                (0..(TO - FROM) / S - 9).map(|s| gpu.witness.share(0, FROM + s * S, FROM + (s + 10) * S));
            let most = longest.fold(0.0, f64::max);
            assert!(most <= LIMIT + 0.01, "{scheduling:?}: {most} in 10 s");
        }
    }
}

#[test]
fn lone_request_of_a_limited_latency_critical_client_is_not_delayed() {
    let arrivals = Arrivals::Periodic { period_ns: 990 * MS, work_ns: 60 * MS };
    let tenants =
        [critical(0.1).limited(0.3).with(arrivals), TenantSpec::saturating(0.4), TenantSpec::saturating(0.4)];
    // By grants the driver's time slices delay each of its requests.
    let mut gpu = SimulatedGpu::new(Scheduling::Hardware, &tenants);
    gpu.run_until(TO);
    let durations: Vec<u64> = gpu.finished(0).iter().map(|(_, duration)| *duration).collect();
    assert!(durations.len() >= 34, "{} requests", durations.len());
    // A context switch and the control in flight.
    let longest = durations[1..].iter().max().unwrap();
    assert!(*longest <= 61_500_000, "{durations:?}");
}

#[test]
fn clients_without_a_request_share_what_is_left_equally() {
    for requests in [&[0.9, 0.0][..], &[0.6, 0.0, 0.0], &[0.3, 0.3, 0.0], &[0.0, 0.0, 0.0]] {
        let tenants: Vec<TenantSpec> = requests.iter().map(|share| TenantSpec::saturating(*share)).collect();
        assert_entitled(&tenants);
    }
}

#[test]
fn client_without_a_request_gets_one_percent_where_all_is_requested() {
    assert_entitled(&[TenantSpec::saturating(0.6), TenantSpec::saturating(0.4), TenantSpec::saturating(0.0)]);
}

#[test]
fn each_level_gets_what_the_requests_below_leave() {
    let worse = [TenantSpec::saturating(0.2).of_class(Class::Normal), TenantSpec::saturating(0.4)];
    let high = TenantSpec::saturating(0.1).of_class(Class::High);
    assert_entitled(&[high, worse[0], worse[1]]);
    assert_entitled(&[high.limited(0.2), worse[0], worse[1]]);
    assert_entitled(&[high.limited(0.2), worse[0].limited(0.3), worse[1], TenantSpec::saturating(0.1)]);
}

#[test]
fn time_beyond_a_limit_goes_to_the_others_in_proportion() {
    let limited = TenantSpec::saturating(0.3).limited(0.3);
    assert_entitled(&[limited, TenantSpec::saturating(0.1), TenantSpec::saturating(0.2)]);
}

#[test]
fn client_with_short_pauses_gets_its_request() {
    // It could use 80 % of the GPU if it never waited. A quantum ends after 3 ms without work, which count as its own.
    let pausing = Arrivals::Pausing { work_ns: 40 * MS, pause_ns: 10 * MS };
    let tenants = [TenantSpec::saturating(0.4).with(pausing), TenantSpec::saturating(0.6)];
    for scheduling in BOTH {
        let mut gpu = SimulatedGpu::new(scheduling, &tenants);
        gpu.run_until(TO);
        let shares = [0, 1].map(|tenant| gpu.witness.share(tenant, FROM, TO));
        assert!(shares[0] >= 0.36 && shares[0] + shares[1] >= 0.95, "{scheduling:?}: {shares:?}");
    }
}
