//! A stopped process stays stopped, whatever another process of its pod does with its sockets.

use super::harness::{Harness, failure};
use crate::support::MS;
use crate::support::agent::{pod, uid};
use crate::support::driver::{Descriptor, context};
use crate::support::group_processes::quiet;
use crate::support::hook::Hook;
use crate::support::until;
use sluice_comm::page::UNLIMITED;
use sluice_pod_manager::ViolationPolicy;
use sluice_pod_manager::channel_groups::ControlFailure;
use sluice_pod_manager::unhooked::scanning::ObstacleKind;
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
        Self::on(Harness::with_policy(&[pod(&uid(1)), pod(&uid(2))], ViolationPolicy::Stop))
    }

    fn without_search() -> Self {
        Self::on(Harness::without_search(&[pod(&uid(1)), pod(&uid(2))], ViolationPolicy::Stop))
    }

    fn on(node: Harness) -> Self {
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
        self.node.pass(ms);
    }

    /// Lets this time pass, in which the group must not be enabled.
    fn expect_disabled_for(&self, ms: u64) {
        self.expect_all_disabled_for(&[1], ms);
    }

    /// The same for these groups.
    fn expect_all_disabled_for(&self, groups: &[u32], ms: u64) {
        for passed in 0..ms / 10 {
            self.pass(10);
            for group in groups {
                assert!(!self.node.group(*group).0, "{group} is enabled after {} ms", passed * 10);
            }
        }
    }

    /// The search finds these groups from now on.
    fn set_groups(&self, hook: &Hook, groups: &[u32]) {
        self.node.discovery.set_groups(hook.process.pid, groups);
    }

    fn wait_for_its_end(&self) {
        until("the stop is over", || {
            self.pass(10);
            self.count() == 0.0
        });
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
fn launches_around_the_gate_stay_counted_when_the_sockets_of_a_stopped_process_close() {
    let mut stopped = Stopped::new();
    let hook = stopped.hook.take().unwrap();
    hook.report().count_bypass(2);
    drop(hook);
    stopped.pass(100);
    let usage = stopped.node.agent.usage(&uid(1)).unwrap();
    assert_eq!(usage.bypassed, [("manager_gone".to_owned(), 1)].into());
}

/// Its threads could not be stopped, and its hook sees the end of its connection.
#[test]
fn group_that_the_hook_of_a_stopped_process_enables_is_disabled_again() {
    let mut stopped = Stopped::new();
    stopped.node.world.driver.stand_while_disabled(1);
    drop(stopped.hook.take());
    stopped.pass(10);
    stopped.node.world.driver.set_group(1, (true, 2048));
    stopped.pass(500);
    stopped.expect_disabled_for(1000);
    assert_eq!(stopped.count(), 1.0);
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
    stopped.pass(1000);
    assert_eq!(stopped.count(), 0.0, "a stop takes 10 s otherwise");
}

/// The threads of these processes cannot be stopped, so they run on.
#[test]
fn groups_that_a_stopped_process_makes_are_disabled_too_and_shared_by_quanta_after_the_stop() {
    for mut stopped in [Stopped::without_search(), Stopped::new()] {
        let mut hook = stopped.hook.take().unwrap();
        hook.token.announce(&[context(11)], &[stopped.descriptor.sent.as_fd()]);
        stopped.pass(50);
        stopped.expect_all_disabled_for(&[1, 11], 2000);
        let hook = stopped.attach_again(&hook, &[12]);
        hook.becomes(true, stopped.node.world.clock.now());
        stopped.pass(50);
        stopped.expect_all_disabled_for(&[1, 11, 12], 2000);
        stopped.node.world.driver.stand_while_disabled(1);
        stopped.set_groups(&hook, &[12]);
        stopped.wait_for_its_end();
        stopped.pass(1000);
        assert!([1, 11].iter().all(|group| stopped.node.group(*group).0), "they are announced no longer");
        let enabled = stopped.node.enabled_ms([12, 2]);
        assert!(enabled.iter().all(|ms| (4000..=6000).contains(ms)), "{enabled:?}");
    }
}

#[test]
fn process_that_announced_nothing_during_its_stop_is_token_scheduled_afterwards() {
    let mut stopped = Stopped::without_search();
    let mut hook = stopped.hook.take().unwrap();
    hook.token.announce(&[], &[]);
    stopped.expect_disabled_for(2000);
    stopped.node.world.driver.stand_while_disabled(1);
    stopped.wait_for_its_end();
    stopped.pass(1000);
    assert!(stopped.node.group(1).0, "nothing would enable it");
    assert_ne!(hook.page().deadline_ns(), UNLIMITED);
}

#[test]
fn groups_that_a_stopped_process_has_destroyed_leave_room_for_new_ones() {
    let mut stopped = Stopped::without_search();
    let mut hook = stopped.hook.take().unwrap();
    stopped.node.world.driver.stand_while_disabled(1);
    let mut announce = |groups: std::ops::Range<u32>| {
        let contexts: Vec<_> = groups.map(context).collect();
        hook.token.announce(&contexts, &[stopped.descriptor.sent.as_fd()]);
        stopped.pass(100);
    };
    announce(100..164);
    stopped.expect_all_disabled_for(&[1, 100, 163], 100);
    announce(100..163);
    for group in (100..164).chain([1]) {
        stopped.node.world.driver.fail(group, Some(ControlFailure::Gone));
    }
    stopped.pass(7000);
    announce(200..264);
    stopped.expect_all_disabled_for(&[200, 263], 1000);
    assert_eq!(stopped.count(), 1.0);
}

/// A process that shares the stopped one's file makes groups without end, or closes its descriptors.
#[test]
fn search_results_release_no_group_of_a_stopped_process() {
    let results: [fn(&Stopped, i32); 4] = [
        |stopped, pid| stopped.node.discovery.set_uncontrollable(pid, ObstacleKind::TooMany),
        |stopped, pid| stopped.node.discovery.set_uncontrollable(pid, ObstacleKind::NoGroups),
        |stopped, pid| stopped.node.discovery.set_groups(pid, &[]),
        |stopped, pid| stopped.node.discovery.set_groups(pid, &(100..200).collect::<Vec<_>>()),
    ];
    for find in results {
        let mut stopped = Stopped::new();
        let pid = stopped.hook.take().unwrap().process.pid;
        stopped.pass(100);
        stopped.node.discovery.open_descriptor(pid);
        find(&stopped, pid);
        stopped.node.discovery.take_inspected();
        stopped.expect_disabled_for(5000);
        assert!(stopped.node.discovery.take_inspected().contains(&pid));
    }
}

#[test]
fn groups_that_are_found_at_a_stopped_process_are_disabled_too() {
    let mut stopped = Stopped::new();
    let pid = stopped.hook.take().unwrap().process.pid;
    stopped.node.discovery.open_descriptor(pid);
    stopped.node.discovery.set_groups(pid, &[11]);
    stopped.pass(1000);
    stopped.expect_all_disabled_for(&[1, 11], 3000);
}

/// Its group would be enabled in the quanta of the other process, which has its file too.
#[test]
fn group_of_a_stopped_process_stays_disabled_when_another_process_announces_it() {
    for closes_its_sockets in [false, true] {
        let mut stopped = Stopped::new();
        let hook = stopped.hook.take().unwrap();
        let open = (!closes_its_sockets).then_some(hook);
        stopped.pass(100);
        let sibling = stopped.node.world.peers.process_of(&uid(1));
        let announced: (&[_], &[_]) = (&[context(1)], &[stopped.descriptor.sent.as_fd()]);
        let sibling =
            Hook::attach_with(&stopped.node.world.socket(), &sibling, "unknown", 0, announced).unwrap();
        sibling.becomes(true, stopped.node.world.clock.now());
        stopped.expect_disabled_for(8000);
        assert_eq!(stopped.count(), 1.0);
        stopped.node.world.driver.stand_while_disabled(1);
        stopped.wait_for_its_end();
        stopped.pass(3000);
        let is_siblings = sibling.page().deadline_ns() == UNLIMITED;
        assert_eq!(is_siblings, open.is_none(), "an attached process keeps its groups");
        let enabled = stopped.node.enabled_ms([1, 2]);
        assert!(enabled.iter().all(|ms| (4000..=6000).contains(ms)), "{enabled:?}");
        assert_eq!(stopped.node.violations(1, "unannounced_groups"), 0.0);
    }
}

/// While controls of a process fail, its groups are given to another process of the pod that has its file.
#[test]
fn group_of_a_stopped_process_is_not_given_to_a_child() {
    let mut stopped = Stopped::new();
    let mut hook = stopped.hook.take().unwrap();
    stopped.node.world.driver.fail(11, Some(failure()));
    hook.token.announce(&[1, 11].map(context), &[stopped.descriptor.sent.as_fd()]);
    stopped.pass(100);
    assert_eq!(stopped.node.world.metric("sluice_processes_on_probation"), Some(1.0));
    let _child = stopped.node.discovery.add_process(500, &uid(1), &[1]);
    stopped.expect_disabled_for(5000);
    assert_eq!((stopped.count(), stopped.node.unhooked(1)), (1.0, 0.0));
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
