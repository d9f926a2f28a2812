//! A manager with a discovery that the test controls, and an agent.

use crate::support::agent::{Agent, pod, uid};
use crate::support::discovery::FakeDiscovery;
use crate::support::driver::{Descriptor, context};
use crate::support::group_processes::quiet;
use crate::support::hook::Hook;
use crate::support::peers::FakeProcess;
use crate::support::{MS, World, until};
use sluice_comm::attach::ContextHandles;
use sluice_pod_manager::channel_groups::{Cause, ControlFailure};
use sluice_pod_manager::{Config, ViolationPolicy};
use sluice_proto::control::Client;
use std::os::fd::AsFd;
use std::path::PathBuf;

pub(crate) const S: u64 = 1000 * MS;

/// A manager with a discovery that the test controls, and an agent.
pub(crate) struct Harness {
    pub(crate) world: World,
    pub(crate) discovery: FakeDiscovery,
    pub(crate) agent: Agent,
}

impl Harness {
    /// Pods 1 and 2 are best-effort clients.
    pub(crate) fn new() -> Self {
        Self::with(&[pod(&uid(1)), pod(&uid(2))])
    }

    pub(crate) fn with(clients: &[Client]) -> Self {
        Self::with_locks(clients, None)
    }

    /// As [`Self::with`], with this program as lock helper.
    pub(crate) fn with_locks(clients: &[Client], program: Option<PathBuf>) -> Self {
        Self::with_config(clients, |config| config.lock_program = program)
    }

    /// As [`Self::with`], with this policy.
    pub(crate) fn with_policy(clients: &[Client], policy: ViolationPolicy) -> Self {
        Self::with_config(clients, |config| config.violation_policy = policy)
    }

    /// As [`Self::with_policy`], without a search for processes without the hook.
    pub(crate) fn without_search(clients: &[Client], policy: ViolationPolicy) -> Self {
        Self::start(clients, World::for_agent(|config| config.violation_policy = policy))
    }

    /// As [`Self::with`], with this change of the configuration.
    pub(crate) fn with_config(clients: &[Client], change: impl FnOnce(&mut Config)) -> Self {
        let mut world = World::for_agent(change);
        world.stop();
        world.discovery = Some(FakeDiscovery::default());
        world.start();
        Self::start(clients, world)
    }

    fn start(clients: &[Client], world: World) -> Self {
        let discovery = world.discovery.clone().unwrap_or_default();
        let mut agent = Agent::connect(&world);
        agent.set(clients);
        Self { world, discovery, agent }
    }

    /// Waits for one whole scan and its effects: the scan after it begins when the manager has handled its result.
    pub(crate) fn scan(&self) {
        let scans = self.discovery.scans();
        until("a scan", || {
            self.world.advance(100 * MS);
            self.discovery.scans() >= scans + 2
        });
        quiet(&self.world);
    }

    /// Makes scans until the time to attach is over.
    pub(crate) fn scan_until_scheduled(&self) {
        (0..3).for_each(|_| self.scan());
    }

    /// Lets time pass, in steps in which searches and checks can happen.
    pub(crate) fn pass(&self, ms: u64) {
        for _ in 0..ms / 10 {
            self.world.clock.advance(10 * MS);
            quiet(&self.world);
        }
    }

    pub(crate) fn metric(&self, name: &str, n: usize, more: &str) -> f64 {
        let text = self.world.metrics();
        let series = |line: &&str| {
            line.starts_with(&format!("{name}{{")) && line.contains(&uid(n)) && line.contains(more)
        };
        let line = text.lines().find(series).unwrap_or_else(|| panic!("no {name} of {n} {more}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    pub(crate) fn unhooked(&self, n: usize) -> f64 {
        self.metric("sluice_adopted_processes", n, "")
    }

    pub(crate) fn violations(&self, n: usize, kind: &str) -> f64 {
        self.metric("sluice_violations_total", n, &format!("kind=\"{kind}\""))
    }

    pub(crate) fn uncontrolled(&self, n: usize, why: &str) -> f64 {
        self.metric("sluice_unsteered_processes", n, &format!("reason=\"{why}\""))
    }

    /// Attaches a hooked process of a pod with one group, which is always busy.
    pub(crate) fn hooked(&self, n: usize, group: u32) -> (Hook, Descriptor) {
        self.announce(self.world.peers.process_of(&uid(n)), group)
    }

    /// Attaches this process, which announces this group.
    pub(crate) fn announce(&self, process: FakeProcess, group: u32) -> (Hook, Descriptor) {
        self.announce_all(&process, &[context(group)])
    }

    /// Attaches this process, which is always busy and announces these groups.
    pub(crate) fn announce_all(
        &self,
        process: &FakeProcess,
        contexts: &[ContextHandles],
    ) -> (Hook, Descriptor) {
        let descriptor = Descriptor::new();
        let sent = [descriptor.sent.as_fd()];
        let announced = (contexts, if contexts.is_empty() { &[][..] } else { &sent[..] });
        let hook = Hook::attach_with(&self.world.socket(), process, "unknown", 0, announced).unwrap();
        hook.becomes(true, self.world.clock.now());
        self.wait_for_ownership_checks();
        (hook, descriptor)
    }

    /// Waits until every announcement is accepted or refused.
    pub(crate) fn wait_for_ownership_checks(&self) {
        until("no announcement waits", || {
            self.world.handle().gauge("sluice_announcements_waiting") == Some(0.0)
        });
        quiet(&self.world);
    }

    pub(crate) fn group(&self, group: u32) -> (bool, u64) {
        self.world.driver.group(group)
    }

    /// Milliseconds of the next 10 s in which each of these groups is enabled.
    pub(crate) fn enabled_ms(&self, groups: [u32; 2]) -> [u32; 2] {
        let mut enabled = [0, 0];
        for _ in 0..2000 {
            self.world.clock.advance(5 * MS);
            quiet(&self.world);
            for (enabled, group) in enabled.iter_mut().zip(groups) {
                *enabled += 5 * u32::from(self.group(group).0);
            }
        }
        enabled
    }
}

pub(crate) fn failure() -> ControlFailure {
    ControlFailure::Failed(Cause::Refused, "refused".into())
}
