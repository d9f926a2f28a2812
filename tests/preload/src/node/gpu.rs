//! A node's simulated GPU: its ledger and its time.

use super::Node;
use crate::host_time::HostTime;
use crate::tenant::Tenant;
use crate::waiting::{pause, polling};
use sluice_sim::fault::ControlFault;
use sluice_sim::ledger::{Interval, Ledger, ProcessLedger, Window};
use std::time::Duration;

/// A span of the GPU's time, with what the host took from this machine meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// Begin and end.
    pub span: (u64, u64),
    /// The part of it that the host took.
    pub taken: f64,
    /// The same in nanoseconds.
    pub taken_ns: u64,
}

impl Node {
    /// The present ledger of the simulated GPU.
    ///
    /// # Panics
    /// When the simulator does not answer.
    pub fn ledger(&self) -> Ledger {
        self.gpu.ledger().unwrap_or_else(|error| panic!("reading the ledger: {error:#}"))
    }

    /// Reads the ledger until `find` returns a value.
    ///
    /// # Panics
    /// When it never does.
    #[track_caller]
    pub fn when<T>(&self, what: &str, mut find: impl FnMut(&Ledger) -> Option<T>) -> T {
        polling(what, || find(&self.ledger()), || self.pause())
    }

    /// Between two polls: the GPU's time goes on.
    fn pause(&self) {
        match &self.stepped {
            None => pause(),
            Some(clock) => {
                clock.step();
                // Time for the processes to react.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Advances the GPU's clock at once, on a stepped node. Commands that are submitted meanwhile count as submitted at its end.
    ///
    /// # Panics
    /// When the node is not stepped.
    #[track_caller]
    pub fn advance(&self, ns: u64) {
        let Some(clock) = &self.stepped else { panic!("only a stepped node's clock is advanced") };
        clock.advance(ns);
    }

    /// Calls `act`, which waits for the GPU, while the GPU's time goes on.
    ///
    /// # Panics
    /// When `act` panics.
    pub fn during<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let acting = scope.spawn(act);
            self.when("the GPU's answer", |_| acting.is_finished().then_some(()));
            acting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The ledger's row of a process.
    ///
    /// # Panics
    /// When the simulator does not answer or the process has never used the GPU.
    #[track_caller]
    pub fn row(&self, tenant: &Tenant) -> ProcessLedger {
        let ledger = self.ledger();
        ledger
            .by_pid(tenant.pid())
            .cloned()
            .unwrap_or_else(|| panic!("the GPU knows no process {}", tenant.pid()))
    }

    /// Waits until the GPU has completed this many kernels of a process.
    ///
    /// # Panics
    /// When it never does.
    #[track_caller]
    pub fn when_completed(&self, tenant: &Tenant, kernels: u64) {
        self.when(&format!("{kernels} kernels of process {}", tenant.pid()), |ledger| {
            ledger.by_pid(tenant.pid()).filter(|row| row.kernels_completed >= kernels).map(|_| ())
        });
    }

    /// Waits until `duration_ns` of the GPU's time have passed; returns the begin and the end of that span.
    ///
    /// # Panics
    /// When the GPU's time does not advance.
    #[track_caller]
    pub fn let_pass(&self, duration_ns: u64) -> (u64, u64) {
        let from = self.ledger().gpu.now_ns;
        self.when("the GPU's time to pass", |ledger| (ledger.gpu.now_ns >= from + duration_ns).then_some(()));
        (from, from + duration_ns)
    }

    /// [`Self::let_pass`] for a bound on real time. If the host has taken more than a hundredth of the span, a second span is measured
    /// and the one from which less was taken is returned.
    #[track_caller]
    pub fn undisturbed(&self, duration_ns: u64) -> Measured {
        let measure = || {
            let host = HostTime::begin();
            let span = self.let_pass(duration_ns);
            Measured { span, taken: host.taken(), taken_ns: host.taken_ns() }
        };
        let first = measure();
        if first.taken <= 0.01 {
            return first;
        }
        let second = measure();
        if second.taken < first.taken { second } else { first }
    }

    /// Use of the GPU between two times of its clock.
    ///
    /// # Panics
    /// When the simulator does not answer.
    pub fn window(&self, (from_ns, to_ns): (u64, u64)) -> Window {
        self.gpu.window(from_ns, to_ns).unwrap_or_else(|error| panic!("reading a window: {error:#}"))
    }

    /// Use of the GPU in each of `parts` equal parts of a span of its clock.
    ///
    /// # Panics
    /// When the simulator does not answer.
    pub fn windows(&self, (from_ns, to_ns): (u64, u64), parts: u64) -> Vec<Window> {
        let at = |part: u64| from_ns + (to_ns - from_ns) * part / parts;
        (0..parts).map(|part| self.window((at(part), at(part + 1)))).collect()
    }

    /// The processes that had the GPU between two times of its clock.
    ///
    /// # Panics
    /// When the simulator does not answer.
    pub fn timeline(&self, (from_ns, to_ns): (u64, u64)) -> Vec<Interval> {
        self.gpu.timeline(from_ns, to_ns).unwrap_or_else(|error| panic!("reading the timeline: {error:#}"))
    }

    /// Sets a fault of the driver's controls.
    ///
    /// # Panics
    /// When the simulator does not answer.
    pub fn set_control_fault(&self, fault: ControlFault) {
        self.gpu.set_control_fault(Some(fault)).unwrap_or_else(|error| panic!("setting a fault: {error:#}"));
    }
}
