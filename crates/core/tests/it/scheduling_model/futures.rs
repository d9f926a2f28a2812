//! What follows from a state if nothing disturbs it any more.

use super::bugs::Bug;
use super::process::Wait;
use super::world::{PROCESSES, QUANTUM, REQUESTS, TICK, World, apply};
use crate::simulated_gpu::{Arrivals, Claim, TenantSpec, entitled};
use sluice_core::channel_groups::{KnownSetting, ReleaseSequence, Setting, TINY_SLICE_US};
use sluice_core::ledger::Class;

/// Within this time every client that has work runs.
const SERVED_WITHIN: u64 = 15 * QUANTUM;
/// After this time every client has its entitled share, with a lag of at most `LARGEST_LAG`.
const SETTLED_AFTER: u64 = 50 * QUANTUM;
const MEASURED: u64 = 20 * QUANTUM;
/// The least part of the time in which another process runs while the work of one waits: a probe takes a tick, and so does the quantum of each
/// of two that wait.
const LEAST_USE: f64 = 0.85;
/// A quantum and the controls of a hand-off, each of which takes less than a tick.
const LARGEST_LAG: u64 = QUANTUM + TICK;

impl World {
    /// The disturbances are over.
    fn calm(&self) -> Self {
        let mut world = self.clone();
        world.stopped = 0;
        for process in &mut world.processes {
            process.frozen = 0;
        }
        world.manage();
        world.end_controls();
        world
    }

    /// Controls succeed at once.
    fn end_controls(&mut self) {
        for _ in 0..32 {
            if self.flight.is_none() {
                return;
            }
            self.end_control(false);
        }
    }

    fn calm_tick(&mut self) -> [u64; PROCESSES] {
        let served = self.tick();
        self.end_controls();
        served
    }

    /// Whether every client that has work runs within the bound. A latency-critical request takes one tick.
    pub(super) fn every_client_is_served(&self) -> bool {
        let mut world = self.calm();
        let mut waits: Vec<usize> = (0..PROCESSES).filter(|index| world.wants_gpu(*index)).collect();
        for _ in 0..SERVED_WITHIN / TICK {
            if waits.is_empty() {
                return true;
            }
            let served = world.calm_tick();
            waits.retain(|index| served[*index] == 0);
            for (index, ran) in served.iter().enumerate() {
                if *ran > 0 && world.processes[index].class == Class::LatencyCritical {
                    world.set_work(index, false);
                    world.manage();
                    world.end_controls();
                }
            }
        }
        waits.is_empty()
    }

    /// Whether others have nearly all of the GPU while the work of a process waits, unless a latency-critical process is attached: then one
    /// group is enabled.
    pub(super) fn gpu_is_used_while_work_waits(&self) -> bool {
        let mut world = self.calm();
        let of_class = |critical: bool| {
            let alive = self.processes.iter().filter(|process| process.alive);
            alive.filter(move |process| (process.class == Class::LatencyCritical) == critical)
        };
        let waits = of_class(false).any(|process| matches!(process.wait, Wait::Since(_)));
        if !waits || of_class(true).next().is_some() || !(0..PROCESSES).any(|index| world.is_ready(index)) {
            return true;
        }
        for _ in 0..SERVED_WITHIN / TICK {
            world.calm_tick();
        }
        let used: u64 = (0..MEASURED / TICK).map(|_| world.calm_tick().iter().sum::<u64>()).sum();
        used as f64 >= LEAST_USE * MEASURED as f64
    }

    /// Whether the shares of the clients that wait for grants become the entitled ones when all of them have work.
    pub(super) fn lag_is_bounded(&self) -> bool {
        let mut world = self.calm();
        let mut claims = Vec::new();
        let mut members = Vec::new();
        for index in (0..PROCESSES).filter(|index| self.processes[*index].alive) {
            let class = self.processes[index].class;
            world.set_work(index, class != Class::LatencyCritical);
            if class != Class::LatencyCritical {
                let request = REQUESTS[index];
                let arrivals = Arrivals::Saturating;
                claims.push(Claim::from(&TenantSpec { request, limit: 1.0, class, arrivals }));
                members.push(index);
            }
        }
        world.manage();
        world.end_controls();
        for _ in 0..SETTLED_AFTER / TICK {
            world.calm_tick();
        }
        let mut lags: Vec<f64> = vec![0.0; members.len()];
        let mut largest: f64 = 0.0;
        for _ in 0..MEASURED / TICK {
            let served = world.calm_tick();
            for ((lag, member), share) in lags.iter_mut().zip(&members).zip(entitled(&claims)) {
                *lag += share * TICK as f64 - served[*member] as f64;
                largest = largest.max(lag.abs());
            }
        }
        largest <= LARGEST_LAG as f64
    }

    /// Whether the node agent starts all processes if the manager dies now, even if the agent knows nothing and one of its
    /// controls fails, and whether the next manager serves them.
    pub(super) fn crash_is_survived(&self) -> bool {
        let started = |failure| self.clone().release_after_crash(failure);
        let mut world = self.clone();
        (0..PROCESSES * 2).all(started) && world.release_after_crash(usize::MAX) && {
            world.restart_manager();
            world.every_client_is_served()
        }
    }

    fn release_after_crash(&mut self, failure: usize) -> bool {
        let first = usize::from(self.bug == Bug::ForgetsGroupAtCrash);
        let groups = (first..PROCESSES).filter(|index| self.groups[*index].is_some());
        let mut release = ReleaseSequence::new(groups.map(|index| (index, KnownSetting::default())));
        let mut number = 0;
        while let Some((index, op)) = release.begin() {
            let succeeds = number != failure;
            if let Some(setting) = self.groups[index].as_mut().filter(|_| succeeds) {
                apply(setting, op);
            }
            if !self.slices_are_safe() {
                return false;
            }
            release.done(succeeds);
            number += 1;
        }
        self.groups.iter().flatten().all(|setting| *setting == Setting::FREE)
    }

    /// At most one enabled group has a tiny slice.
    pub(super) fn slices_are_safe(&self) -> bool {
        let enabled = self.groups.iter().flatten().filter(|setting| setting.enabled);
        enabled.filter(|setting| setting.slice_us < TINY_SLICE_US).count() <= 1
    }
}
