//! Latency-critical clients: the ledger charges them what they use and charges no other client for it. It delays them beyond
//! their limit, and beyond their request while another client lags.

use super::*;

/// A latency-critical client (0) beside a best-effort one (1) that is hardware-scheduled and always has work. The GPU
/// runs the first one whenever it has a grant and work.
struct Gpu {
    ledger: TokenLedger,
    now: u64,
    /// The latency-critical client's process holds a grant.
    critical_granted: bool,
    /// The best-effort process is enabled.
    enabled: bool,
    used: [u64; 2],
    /// When the latency-critical client's grant was revoked or given, and which.
    changes: Vec<(u64, bool)>,
}

impl Gpu {
    fn new(critical: ClientSpec, best_effort: ClientSpec) -> Self {
        let mut ledger = TokenLedger::new(Policy::default());
        for (id, spec) in [(0, critical), (1, best_effort)] {
            ledger.set_client(ClientId(id), spec, 0);
        }
        ledger.add_process(ProcessId(0), ClientId(0), ReturnKind::Returns).unwrap();
        ledger.add_process(ProcessId(1), ClientId(1), ReturnKind::HardwareScheduled).unwrap();
        ask(&mut ledger, 0, 0);
        Self { ledger, now: 0, critical_granted: false, enabled: false, used: [0; 2], changes: Vec::new() }
    }

    /// Runs until `end`, in steps of a millisecond. `wants` tells whether the latency-critical client has work.
    fn run_until(&mut self, end: u64, wants: impl Fn(u64) -> bool) {
        while self.now < end {
            if !self.ledger.holds(ProcessId(1)) {
                ask(&mut self.ledger, 1, self.now);
            }
            let actions = self.ledger.advance(self.now);
            self.apply(&actions);
            let (from, to) = (self.now, self.now + MS);
            self.now = to;
            if self.critical_granted && wants(from) {
                self.used[0] += MS;
                self.ledger.charge_unlimited(ClientId(0), from, to, MS);
            } else if self.enabled {
                self.used[1] += MS;
            }
        }
    }

    fn apply(&mut self, actions: &[Action]) {
        for action in actions {
            match *action {
                Action::Grant { process: ProcessId(0), .. } => self.set_critical(true),
                Action::Revoke { process: ProcessId(0), reason } => {
                    assert_eq!(reason, GrantEnd::Delayed);
                    self.set_critical(false);
                }
                Action::Grant { process: ProcessId(1), .. } => self.set_enabled(true),
                Action::Disable { .. } => {
                    self.set_enabled(false);
                    self.ledger.returned(ProcessId(1), self.now, 0, 0).unwrap();
                }
                _ => {}
            }
        }
    }

    fn set_critical(&mut self, granted: bool) {
        self.critical_granted = granted;
        self.changes.push((self.now, granted));
    }

    fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
        self.ledger.set_enabled(ClientId(1), enabled, self.now);
    }

    fn share(&self, client: usize) -> f64 {
        self.used[client] as f64 / self.now as f64
    }
}

fn critical(request: f64, limit: f64) -> ClientSpec {
    ClientSpec { class: Class::LatencyCritical, ..spec(request, limit) }
}

#[test]
fn limit_of_a_latency_critical_client_holds_and_the_rest_goes_to_the_others() {
    let mut gpu = Gpu::new(critical(0.3, 0.3), spec(0.5, 1.0));
    gpu.run_until(10 * S, |_| true);
    assert!(gpu.share(0) <= 0.31, "{}", gpu.share(0));
    assert!(gpu.share(0) >= 0.28, "{}", gpu.share(0));
    assert!(gpu.share(1) >= 0.68, "{}", gpu.share(1));
}

#[test]
fn lone_request_within_the_burst_is_not_delayed() {
    let mut gpu = Gpu::new(critical(0.3, 0.3), spec(0.5, 1.0));
    gpu.run_until(20 * S, |now| now % S < 70 * MS);
    assert_eq!(gpu.changes, [(0, true)], "it keeps its grant from the beginning");
    assert!((gpu.share(0) - 0.07).abs() < 0.001, "{}", gpu.share(0));
}

#[test]
fn saturating_latency_critical_client_leaves_the_others_their_requests() {
    let mut gpu = Gpu::new(critical(0.5, 1.0), spec(0.5, 1.0));
    gpu.run_until(20 * S, |_| true);
    assert!(gpu.share(1) >= 0.48, "{}", gpu.share(1));
    assert!(gpu.share(0) >= 0.48, "{}", gpu.share(0));
    let usage = gpu.ledger.usage(ClientId(0), gpu.now).unwrap();
    assert_eq!(usage.charged_ns, gpu.used[0]);
}

#[test]
fn latency_critical_client_within_its_request_is_never_delayed() {
    let mut gpu = Gpu::new(critical(0.5, 1.0), spec(0.6, 1.0));
    gpu.run_until(20 * S, |now| now % (10 * MS) < 5 * MS);
    assert_eq!(gpu.changes, [(0, true)]);
}

#[test]
fn latency_critical_client_beyond_its_request_runs_while_the_others_have_theirs() {
    let mut gpu = Gpu::new(critical(0.1, 1.0), spec(0.3, 1.0));
    gpu.run_until(20 * S, |now| now % (10 * MS) < 6 * MS);
    assert_eq!(gpu.changes, [(0, true)], "0.4 is left, which is more than the request of 0.3");
}

#[test]
fn latency_critical_time_is_not_charged_to_a_limited_client_beside_it() {
    let mut gpu = Gpu::new(critical(0.55, 1.0), spec(0.4, 0.5));
    gpu.run_until(20 * S, |now| now % (25 * MS) < 13 * MS);
    assert!((gpu.share(0) - 0.52).abs() < 0.001, "{}", gpu.share(0));
    assert!(gpu.share(1) >= 0.45, "{}", gpu.share(1));
    let usage = gpu.ledger.usage(ClientId(1), gpu.now).unwrap();
    let charged = (usage.charged_ns + usage.running_ns) as f64 / gpu.now as f64;
    assert!((charged - gpu.share(1)).abs() < 0.01, "charged {charged}, ran {}", gpu.share(1));
}

#[test]
fn time_that_a_delayed_process_waits_is_counted() {
    let mut gpu = Gpu::new(critical(0.3, 0.3), spec(0.5, 1.0));
    gpu.run_until(S, |_| true);
    let delayed = |gpu: &Gpu| gpu.ledger.usage(ClientId(0), gpu.now).unwrap().delayed_ns;
    assert_eq!(delayed(&gpu), 0, "its process has not requested since it was revoked");
    let (revoked_at, _) = gpu.changes.iter().rev().find(|(_, granted)| !granted).copied().unwrap();
    ask(&mut gpu.ledger, 0, gpu.now);
    let asked_at = gpu.now;
    assert!(revoked_at <= asked_at);
    gpu.run_until(2 * S, |_| true);
    let granted_at = gpu.changes.iter().find(|(at, granted)| *granted && *at >= asked_at).unwrap().0;
    assert_eq!(delayed(&gpu), granted_at - asked_at);
}

#[test]
fn unanswered_request_stays_when_the_class_changes() {
    let mut ledger = pair();
    let critical = ClientSpec { class: Class::LatencyCritical, ..spec(0.1, 0.1) };
    ask(&mut ledger, 0, 0);
    ask(&mut ledger, 1, 0);
    assert_eq!(granted(&ledger.advance(0)), [(0, Deadline::At(50 * MS))]);
    ledger.set_client(ClientId(1), critical, MS);
    assert_eq!(granted(&ledger.advance(MS)), [(1, Deadline::Unlimited)]);
    // It is delayed because of its limit, requests, and becomes best-effort.
    ledger.charge_unlimited(ClientId(1), MS, 401 * MS, 400 * MS);
    let revoked = Action::Revoke { process: ProcessId(1), reason: GrantEnd::Delayed };
    assert!(ledger.advance(401 * MS).contains(&revoked));
    ask(&mut ledger, 1, 402 * MS);
    ledger.set_client(ClientId(1), spec(0.5, 1.0), 403 * MS);
    ledger.returned(ProcessId(0), 404 * MS, 50 * MS, 0).unwrap();
    assert_eq!(granted(&ledger.advance(404 * MS)), [(1, Deadline::At(454 * MS))]);
}

#[test]
fn latency_critical_client_is_not_delayed_for_one_that_its_own_limit_blocks() {
    let mut gpu = Gpu::new(critical(0.0, 1.0), spec(0.3, 0.3));
    gpu.run_until(100 * MS, |_| false);
    // A kernel of a second overdraws the limit: the client waits for it for more than two seconds.
    gpu.now += S;
    gpu.run_until(4 * S, |_| true);
    let before = gpu.used;
    gpu.run_until(8 * S, |_| true);
    let [critical, other] = [0, 1].map(|client| (gpu.used[client] - before[client]) as f64 / (4 * S) as f64);
    assert!(critical >= 0.65, "{critical}");
    assert!(other >= 0.28, "{other}");
}

#[test]
fn time_of_hold_kernels_is_charged_to_no_client() {
    let mut gpu = Gpu::new(critical(0.5, 1.0), spec(0.5, 1.0));
    gpu.run_until(S, |_| false);
    let charged = |gpu: &Gpu, client| {
        let usage = gpu.ledger.usage(ClientId(client), gpu.now).unwrap();
        usage.charged_ns + usage.running_ns
    };
    let before = [0, 1].map(|client| charged(&gpu, client));
    gpu.ledger.count_holds(ClientId(0), gpu.now - 4 * MS, gpu.now, 3 * MS, false);
    assert_eq!([0, 1].map(|client| charged(&gpu, client)), [before[0], before[1] - 3 * MS]);
}

#[test]
fn hold_kernels_count_towards_the_limit() {
    let mut gpu = Gpu::new(critical(0.3, 0.3), spec(0.5, 1.0));
    gpu.run_until(S, |_| false);
    gpu.ledger.count_holds(ClientId(0), 0, gpu.now, S, false);
    gpu.run_until(S + 10 * MS, |_| false);
    assert_eq!(gpu.changes.last(), Some(&(S, false)), "its grant is revoked");
}

#[test]
fn a_tenth_of_the_time_may_go_to_hold_kernels_that_lead_for_others() {
    // Of one process, or of two with half each.
    let is_revoked = |held_ms: u64, processes: u64, leads| {
        let mut gpu = Gpu::new(critical(0.3, 0.3), spec(0.5, 1.0));
        gpu.run_until(S, |_| false);
        for _ in 0..processes {
            gpu.ledger.count_holds(ClientId(0), 0, gpu.now, held_ms * MS / processes, leads);
        }
        gpu.run_until(S + 10 * MS, |_| false);
        gpu.changes.last() == Some(&(S, false))
    };
    let least = |processes, leads| (0..1_000).find(|held| is_revoked(*held, processes, leads)).unwrap();
    assert_eq!(least(1, true), least(1, false) + 100);
    // Not a tenth for each process.
    assert!(least(2, true) <= least(2, false) + 100);
}

#[test]
fn burst_that_alternates_with_a_token_scheduled_process_does_not_use_its_last_slice_in_full() {
    let mut ledger = TokenLedger::new(Policy::default());
    ledger.set_client(ClientId(0), critical(0.5, 1.0), 0);
    ledger.set_client(ClientId(1), spec(0.5, 1.0), 0);
    for id in [0, 1] {
        ledger.add_process(ProcessId(id), ClientId(id), ReturnKind::Returns).unwrap();
        ask(&mut ledger, id, 0);
    }
    ledger.advance(0);
    ledger.count_bursts(1, 10 * MS);
    ledger.charge_unlimited(ClientId(0), 0, 10 * MS, 10 * MS);
    assert_eq!(ledger.usage(ClientId(0), 10 * MS).unwrap().charged_ns, 4_500_000 - 460_000);
    // A burst that has not ended uses its slices in full.
    ledger.charge_unlimited(ClientId(0), 10 * MS, 20 * MS, 10 * MS);
    assert_eq!(ledger.usage(ClientId(0), 20 * MS).unwrap().charged_ns, 9_000_000 - 460_000);
}

#[test]
fn burst_beside_hardware_scheduled_processes_alternates_only_by_default_slices_with_work() {
    for (default_slices, works, expected) in
        [(false, true, 10_000_000), (true, true, 4_500_000), (true, false, 10_000_000)]
    {
        let mut ledger = TokenLedger::new(Policy::default());
        ledger.set_client(ClientId(0), critical(0.5, 1.0), 0);
        ledger.set_client(ClientId(1), spec(0.5, 1.0), 0);
        ledger.add_process(ProcessId(0), ClientId(0), ReturnKind::Returns).unwrap();
        ledger.add_process(ProcessId(1), ClientId(1), ReturnKind::HardwareScheduled).unwrap();
        ask(&mut ledger, 0, 0);
        ask(&mut ledger, 1, 0);
        ledger.advance(0);
        ledger.set_enabled(ClientId(1), true, 0);
        ledger.set_default_slices(default_slices);
        ledger.set_working(0, |_| works);
        ledger.charge_unlimited(ClientId(0), 0, 10 * MS, 10 * MS);
        let [own, other] = [0, 1].map(|id| ledger.usage(ClientId(id), 10 * MS).unwrap());
        assert_eq!(own.charged_ns, expected, "default slices: {default_slices}, work: {works}");
        assert_eq!(other.running_ns, if default_slices && works { expected } else { 0 });
    }
}

/// Its limit allows it to run before its request does.
#[test]
fn delay_by_the_limit_that_goes_on_beyond_the_request_is_checked_at_intervals() {
    let mut ledger = TokenLedger::new(Policy::default());
    for (id, spec) in [(0, critical(0.1, 0.3)), (1, spec(0.4, 1.0)), (2, spec(0.4, 1.0))] {
        ledger.set_client(ClientId(id), spec, 0);
        ledger.add_process(ProcessId(id), ClientId(id), ReturnKind::Returns).unwrap();
        ask(&mut ledger, id, 0);
    }
    ledger.advance(0);
    ledger.charge_unlimited(ClientId(0), 0, S, S);
    ledger.advance(S);
    assert!(!ledger.holds(ProcessId(0)), "it is delayed");
    let mut decisions = 0;
    while let Some(at) = ledger.next_deadline().filter(|at| *at < 1_500 * MS && decisions < 1_000) {
        ledger.advance(at);
        decisions += 1;
    }
    assert!(!ledger.holds(ProcessId(0)), "it is still delayed: the third client waits");
    assert!(decisions <= 110, "{decisions} decisions in half a second");
}

/// Two processes of it report late that both have worked in the same time, longer than a request's burst.
#[test]
fn client_with_the_whole_gpu_as_its_limit_is_never_delayed_by_it() {
    let mut ledger = TokenLedger::new(Policy::default());
    ledger.set_client(ClientId(0), critical(0.6, 1.0), 0);
    ledger.add_process(ProcessId(0), ClientId(0), ReturnKind::Returns).unwrap();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    ledger.charge_unlimited(ClientId(0), 900 * MS, S, MS);
    ledger.charge_unlimited(ClientId(0), 800 * MS, S, 200 * MS);
    ledger.advance(S);
    assert!(ledger.holds(ProcessId(0)));
}
