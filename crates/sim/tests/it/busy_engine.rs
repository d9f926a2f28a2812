//! An engine with permanently busy tenants, stepped event by event.

use sluice_sim::engine::{Command, Engine, GroupId, OwnerId, StreamId, StreamKind, Work};
use sluice_sim::params;

/// Commands that a busy tenant keeps in flight (M, header: 8-16).
const DEPTH: u64 = 12;

pub(crate) struct Tenant {
    pub(crate) owner: OwnerId,
    pub(crate) group: GroupId,
    pub(crate) stream: StreamId,
    pub(crate) kernel_ns: u64,
}

pub(crate) struct BusyEngine {
    pub(crate) engine: Engine,
    pub(crate) busy: Vec<Tenant>,
}

impl BusyEngine {
    pub(crate) fn new() -> Self {
        Self { engine: Engine::new(params::MEMORY_BYTES, 0), busy: Vec::new() }
    }

    pub(crate) fn tenant(&mut self, slice_us: u64, kernel_us: u64) -> Tenant {
        let owner = self.engine.account_mut().open(0, "");
        self.engine.account_mut().name(owner, "spin");
        let group = self.engine.add_group(owner, slice_us * 1_000);
        let stream = self.engine.add_stream(group, StreamKind::NonBlocking, 0, 0);
        Tenant { owner, group, stream, kernel_ns: kernel_us * 1_000 }
    }

    /// Adds a tenant that always has kernels of this length in flight.
    pub(crate) fn saturate(&mut self, slice_us: u64, kernel_us: u64) {
        let tenant = self.tenant(slice_us, kernel_us);
        for _ in 0..DEPTH {
            submit(&mut self.engine, &tenant, 0);
        }
        self.busy.push(tenant);
    }

    /// Steps to a time; busy tenants launch a kernel for each that completes. Calls `seen` for every other completion.
    pub(crate) fn run_to(&mut self, to: u64, mut seen: impl FnMut(StreamId, u64)) {
        while let Some(at) = self.engine.next_event().filter(|at| *at <= to) {
            self.engine.advance(at);
            for advanced in self.engine.take_advanced() {
                match self.busy.iter().find(|tenant| tenant.stream == advanced.stream) {
                    Some(tenant) => submit(&mut self.engine, tenant, at),
                    None => seen(advanced.stream, at),
                }
            }
        }
        self.engine.advance(to);
    }

    pub(crate) fn completed(&self, owner: OwnerId) -> u64 {
        self.engine.account().ledger().processes[owner.0].kernels_completed
    }
}

pub(crate) fn submit(engine: &mut Engine, tenant: &Tenant, at: u64) {
    let work = Work::Kernel { ns: tenant.kernel_ns, sms: params::SMS, name: 0 };
    assert!(engine.submit(tenant.stream, at, Command::Work(work)).is_some(), "the stream is open");
}

/// Deterministic numbers.
pub(crate) struct RandomNumbers(pub(crate) u64);

impl RandomNumbers {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 20) % limit
    }
}

pub(crate) fn assert_near(what: &str, got: f64, wanted: f64, tolerance: f64) {
    assert!((got - wanted).abs() <= tolerance, "{what}: {got:.2}, measured {wanted:.2} ± {tolerance:.2}");
}
