//! A manager with a scout, and what the agent says.

use crate::support::agent::{Agent, pod, uid};
use crate::support::driver::{Descriptor, context};
use crate::support::hook::Hook;
use crate::support::peers::FakeProcess;
use crate::support::scout::FakeScout;
use crate::support::steered::quiet;
use crate::support::{MS, World, until};
use sluice_pod_manager::channels::{Cause, ControlFailure};
use sluice_proto::control::Client;
use std::os::fd::AsFd;
use std::path::PathBuf;

pub(crate) const S: u64 = 1000 * MS;

/// A manager with a scout, and what the agent says.
pub(crate) struct Node {
    pub(crate) world: World,
    pub(crate) scout: FakeScout,
    pub(crate) agent: Agent,
}

impl Node {
    /// Pods 1 and 2 are best-effort clients.
    pub(crate) fn new() -> Self {
        Self::with(&[pod(&uid(1)), pod(&uid(2))])
    }

    pub(crate) fn with(clients: &[Client]) -> Self {
        Self::with_locks(clients, None)
    }

    /// Where somebody makes the driver's locks.
    pub(crate) fn with_locks(clients: &[Client], program: Option<PathBuf>) -> Self {
        let mut world = World::for_agent(|config| config.lock_program = program);
        world.stop();
        let scout = FakeScout::default();
        world.scout = Some(scout.clone());
        world.start();
        let mut agent = Agent::connect(&world);
        agent.set(clients);
        Self { world, scout, agent }
    }

    /// One whole look around, and what comes of it: the next one begins when the last one's answer has come.
    pub(crate) fn look(&self) {
        let looks = self.scout.looks();
        until("a look around", || {
            self.world.advance(100 * MS);
            self.scout.looks() >= looks + 2
        });
        quiet(&self.world);
    }

    /// As many looks as a program has to attach by itself.
    pub(crate) fn look_until_adopted(&self) {
        (0..3).for_each(|_| self.look());
    }

    pub(crate) fn metric(&self, name: &str, n: usize, more: &str) -> f64 {
        let text = self.world.metrics();
        let series = |line: &&str| {
            line.starts_with(&format!("{name}{{")) && line.contains(&uid(n)) && line.contains(more)
        };
        let line = text.lines().find(series).unwrap_or_else(|| panic!("no {name} of {n} {more}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    pub(crate) fn adopted(&self, n: usize) -> f64 {
        self.metric("sluice_adopted_processes", n, "")
    }

    pub(crate) fn unsteered(&self, n: usize, why: &str) -> f64 {
        self.metric("sluice_unsteered_processes", n, &format!("reason=\"{why}\""))
    }

    /// A hooked process of a pod, with one group, and always busy.
    pub(crate) fn hooked(&self, n: usize, group: u32) -> (Hook, Descriptor) {
        self.announcer(self.world.peers.process_of(&uid(n)), group)
    }

    /// This process attaches and announces this group.
    pub(crate) fn announcer(&self, process: FakeProcess, group: u32) -> (Hook, Descriptor) {
        let descriptor = Descriptor::new();
        let contexts = [context(group)];
        let announced: (&[_], &[_]) = (&contexts, &[descriptor.sent.as_fd()]);
        let hook = Hook::attach_with(&self.world.socket(), &process, "whoever", 0, announced).unwrap();
        hook.becomes(true, self.world.clock.now());
        self.when_all_is_looked_at();
        (hook, descriptor)
    }

    /// Whoever has announced something was believed, or was not.
    pub(crate) fn when_all_is_looked_at(&self) {
        until("no announcement waits", || self.world.metric("sluice_announcements_waiting") == Some(0.0));
        quiet(&self.world);
    }

    pub(crate) fn group(&self, group: u32) -> (bool, u64) {
        self.world.driver.group(group)
    }

    /// Milliseconds of the next 10 s for which each of these groups was let run.
    pub(crate) fn enabled_ms(&self, groups: [u32; 2]) -> [u32; 2] {
        let mut ran = [0, 0];
        for _ in 0..2000 {
            self.world.clock.advance(5 * MS);
            quiet(&self.world);
            for (ran, group) in ran.iter_mut().zip(groups) {
                *ran += 5 * u32::from(self.group(group).0);
            }
        }
        ran
    }
}

pub(crate) fn failure() -> ControlFailure {
    ControlFailure::Failed(Cause::Refused, "refused".into())
}
