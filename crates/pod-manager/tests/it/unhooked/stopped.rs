//! A stopped process stays stopped, whatever another process of its pod does with its sockets.

use super::harness::Harness;
use crate::support::MS;
use crate::support::agent::{pod, uid};
use crate::support::driver::{Descriptor, context};
use crate::support::group_processes::quiet;
use crate::support::hook::Hook;
use crate::support::until;
use sluice_pod_manager::ViolationPolicy;
use std::os::fd::AsFd;

/// A node on which the process of pod 1 was just stopped, that process, and a busy one of pod 2.
struct Stopped {
    node: Harness,
    hook: Option<Hook>,
    descriptor: Descriptor,
    _other: (Hook, Descriptor),
    _same: Descriptor,
}

impl Stopped {
    fn new() -> Self {
        let node = Harness::with_policy(&[pod(&uid(1)), pod(&uid(2))], ViolationPolicy::Stop);
        let (hook, descriptor) = node.hooked(1, 1);
        let _same = node.discovery.add_process(hook.process.pid, &uid(1), &[1]);
        let _other = node.hooked(2, 2);
        let stopped = Self { node, hook: Some(hook), descriptor, _other, _same };
        stopped.pass(1000);
        stopped.violate();
        stopped
    }

    fn violate(&self) {
        self.node.world.driver.run_while_disabled(1);
        until("the process is stopped", || {
            self.pass(100);
            self.count() == 1.0
        });
        self.pass(50);
    }

    fn count(&self) -> f64 {
        self.node.metric("sluice_stopped_processes", 1, "")
    }

    fn pass(&self, ms: u64) {
        for _ in 0..ms / 10 {
            self.node.world.clock.advance(10 * MS);
            quiet(&self.node.world);
        }
    }

    /// Lets this time pass, in which the group must not be enabled.
    fn expect_disabled_for(&self, ms: u64) {
        for passed in 0..ms / 10 {
            self.pass(10);
            assert!(!self.node.group(1).0, "enabled after {} ms", passed * 10);
        }
    }

    fn attach_again(&self, of: &Hook, contexts: &[u32]) -> Hook {
        let contexts: Vec<_> = contexts.iter().map(|group| context(*group)).collect();
        let sent = [self.descriptor.sent.as_fd()];
        let announced = (&contexts[..], if contexts.is_empty() { &[][..] } else { &sent[..] });
        Hook::attach_with(&self.node.world.socket(), &of.process, "unknown", 0, announced).unwrap()
    }
}

#[test]
fn stop_does_not_end_with_the_sockets_of_the_process() {
    let mut stopped = Stopped::new();
    drop(stopped.hook.take());
    stopped.expect_disabled_for(9000);
    assert_eq!(stopped.count(), 1.0);
    until("10 s are over, and it has a quantum again", || {
        stopped.pass(10);
        stopped.count() == 0.0 && stopped.node.group(1).0
    });
    // It still enables its group.
    stopped.violate();
    stopped.expect_disabled_for(15_000);
    assert_eq!(stopped.count(), 1.0, "the second stop takes 20 s");
}

#[test]
fn stopped_process_stays_stopped_when_its_groups_are_announced_anew() {
    let mut stopped = Stopped::new();
    let mut hook = stopped.hook.take().unwrap();
    hook.token.announce(&[], &[]);
    stopped.expect_disabled_for(1000);
    let _again = stopped.attach_again(&hook, &[1]);
    stopped.expect_disabled_for(1000);
    let _without = stopped.attach_again(&hook, &[]);
    stopped.expect_disabled_for(1000);
    assert_eq!(stopped.count(), 1.0);
}

#[test]
fn stop_ends_with_the_process() {
    let mut stopped = Stopped::new();
    let hook = stopped.hook.take().unwrap();
    stopped.node.discovery.end_process(hook.process.pid);
    hook.process.die();
    until("it is forgotten", || {
        stopped.pass(10);
        stopped.count() == 0.0
    });
}

/// Otherwise each finding would be the first one of a process.
#[test]
fn violation_is_repeated_by_a_process_that_has_attached_anew_meanwhile() {
    let node = Harness::with_policy(&[pod(&uid(1)), pod(&uid(2))], ViolationPolicy::Stop);
    let (hook, descriptor) = node.hooked(1, 1);
    let _other = node.hooked(2, 2);
    node.world.driver.run_while_disabled(1);
    let mut hooks = vec![hook];
    let sent = [descriptor.sent.as_fd()];
    for _ in 0..50 {
        let hook = hooks.pop().unwrap();
        let violations = node.violations(1, "stopped_group_ran");
        until("a violation", || {
            node.world.clock.advance(10 * MS);
            quiet(&node.world);
            node.violations(1, "stopped_group_ran") > violations
        });
        if node.metric("sluice_stopped_processes", 1, "") == 1.0 {
            return;
        }
        let process = hook.process.clone();
        drop(hook);
        quiet(&node.world);
        let announced: (&[_], &[_]) = (&[context(1)], &sent);
        hooks.push(Hook::attach_with(&node.world.socket(), &process, "unknown", 0, announced).unwrap());
        hooks[0].becomes(true, node.world.clock.now());
    }
    panic!("it was never stopped");
}
