//! Programs of pods that run without the hook, over real sockets, with a driver, a clock and a scout that the test moves.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use sluice_comm::page::STANDING;
use sluice_pod_manager::adopt::Why;
use sluice_pod_manager::channels::{Cause, ControlFailure};
use sluice_proto::control::{Class, Client};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use support::agent::{Agent, pod, uid};
use support::driver::{Call, Descriptor, context};
use support::hook::Hook;
use support::peers::FakeProcess;
use support::scout::FakeScout;
use support::steered::quiet;
use support::{MS, World, until};

const S: u64 = 1000 * MS;

/// A manager with a scout, and what the agent says.
struct Node {
    world: World,
    scout: FakeScout,
    agent: Agent,
}

impl Node {
    /// Pods 1 and 2 are best-effort clients.
    fn new() -> Self {
        Self::with(&[pod(&uid(1)), pod(&uid(2))])
    }

    fn with(clients: &[Client]) -> Self {
        Self::with_locks(clients, None)
    }

    /// Where somebody makes the driver's locks.
    fn with_locks(clients: &[Client], program: Option<PathBuf>) -> Self {
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
    fn look(&self) {
        let looks = self.scout.looks();
        until("a look around", || {
            self.world.advance(100 * MS);
            self.scout.looks() >= looks + 2
        });
        quiet(&self.world);
    }

    /// As many looks as a program has to attach by itself.
    fn look_until_adopted(&self) {
        (0..3).for_each(|_| self.look());
    }

    fn metric(&self, name: &str, n: usize, more: &str) -> f64 {
        let text = self.world.metrics();
        let series = |line: &&str| {
            line.starts_with(&format!("{name}{{")) && line.contains(&uid(n)) && line.contains(more)
        };
        let line = text.lines().find(series).unwrap_or_else(|| panic!("no {name} of {n} {more}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    fn adopted(&self, n: usize) -> f64 {
        self.metric("sluice_adopted_processes", n, "")
    }

    fn unsteered(&self, n: usize, why: &str) -> f64 {
        self.metric("sluice_unsteered_processes", n, &format!("reason=\"{why}\""))
    }

    /// A hooked process of a pod, with one group, and always busy.
    fn hooked(&self, n: usize, group: u32) -> (Hook, Descriptor) {
        self.announcer(self.world.peers.process_of(&uid(n)), group)
    }

    /// This process attaches and announces this group.
    fn announcer(&self, process: FakeProcess, group: u32) -> (Hook, Descriptor) {
        let descriptor = Descriptor::new();
        let contexts = [context(group)];
        let announced: (&[_], &[_]) = (&contexts, &[descriptor.sent.as_fd()]);
        let hook = Hook::attach_with(&self.world.socket(), &process, "whoever", 0, announced).unwrap();
        hook.becomes(true, self.world.clock.now());
        self.when_all_is_looked_at();
        (hook, descriptor)
    }

    /// Whoever has announced something was believed, or was not.
    fn when_all_is_looked_at(&self) {
        until("no announcement waits", || self.world.metric("sluice_announcements_waiting") == Some(0.0));
        quiet(&self.world);
    }

    fn group(&self, group: u32) -> (bool, u64) {
        self.world.driver.group(group)
    }

    /// Milliseconds of the next 10 s for which each of these groups was let run.
    fn enabled_ms(&self, groups: [u32; 2]) -> [u32; 2] {
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

fn failure() -> ControlFailure {
    ControlFailure::Failed(Cause::Refused, "refused".into())
}

#[test]
fn a_program_without_the_hook_takes_turns_with_one_that_has_it_by_their_quotas() {
    let clients =
        [Client { quota_ppm: 300_000, ..pod(&uid(1)) }, Client { quota_ppm: 700_000, ..pod(&uid(2)) }];
    let mut node = Node::with(&clients);
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _raw = node.scout.program(500, &uid(1), &[1]);
    node.look();
    assert_eq!((node.adopted(1), node.group(1)), (0.0, (true, 2048)), "it may attach yet");
    node.look_until_adopted();
    assert_eq!(node.adopted(1), 1.0);
    let [raw, hooked] = node.enabled_ms([1, 2]);
    let share = f64::from(raw) / f64::from(raw + hooked);
    assert!((share - 0.3).abs() < 0.02, "{raw} ms and {hooked} ms");
    let usage = node.agent.usage(&uid(1)).unwrap();
    assert_eq!((usage.adopted_processes, usage.processes.len(), usage.processes[0].pid), (1, 1, 500));
    assert!(usage.gpu_time_ns > 2 * S);
}

#[test]
fn somebody_latency_critical_is_guarded_from_it() {
    let critical = Client { class: Class::LatencyCritical.into(), ..pod(&uid(3)) };
    let node = Node::with(&[pod(&uid(1)), pod(&uid(2)), critical]);
    let (_first, _second) = (node.scout.program(500, &uid(1), &[1]), node.scout.program(501, &uid(2), &[2]));
    node.look_until_adopted();
    let (lc, _descriptor) = node.hooked(3, 3);
    lc.becomes(false, node.world.clock.now());
    quiet(&node.world);
    assert_eq!(node.group(3), (true, 1_000_000));
    let slices = [node.group(1).1, node.group(2).1];
    assert_eq!(slices, [1, 1]);
    assert_ne!(node.group(1).0, node.group(2).0, "one of them at a time");
}

#[test]
fn whoever_has_attached_is_never_looked_into_and_who_attaches_later_loses_no_control() {
    let node = Node::new();
    let (hook, descriptor) = node.hooked(1, 1);
    let _same = node.scout.program(hook.process.pid, &uid(1), &[1]);
    let _raw = node.scout.program(500, &uid(2), &[2]);
    node.look_until_adopted();
    assert!(node.scout.take_reached().iter().all(|pid| *pid == 500));
    // The second one attaches after all, with the group that is controlled already, while it is stopped.
    until("it is stopped", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        !node.group(2).0
    });
    node.world.driver.take_calls();
    let mut process = node.world.peers.process_of(&uid(2));
    process.pid = 500;
    let contexts = [context(2)];
    let announced: (&[_], &[_]) = (&contexts, &[descriptor.sent.as_fd()]);
    let late = Hook::attach_with(&node.world.socket(), &process, "whoever", 0, announced).unwrap();
    late.becomes(true, node.world.clock.now());
    quiet(&node.world);
    assert!(!node.world.driver.calls().contains(&Call::Start(2)), "{:?}", node.world.driver.calls());
    assert_eq!(late.page().deadline_ns(), STANDING);
    assert_eq!(node.adopted(2), 0.0);
    let turns = node.enabled_ms([1, 2]);
    assert!(turns.iter().all(|ms| (4500..=5500).contains(ms)), "{turns:?}");
    assert_eq!(node.scout.take_reached(), [] as [i32; 0]);
}

#[test]
fn when_it_ends_nothing_of_it_is_kept_and_the_others_go_on() {
    let node = Node::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let raw = node.scout.program(500, &uid(1), &[1]);
    node.look_until_adopted();
    assert_eq!(node.adopted(1), 1.0);
    node.scout.die(500);
    raw.closes();
    quiet(&node.world);
    assert_eq!(node.adopted(1), 0.0);
    let [_, hooked] = node.enabled_ms([1, 2]);
    assert_eq!(hooked, 10_000);
}

#[test]
fn when_its_pod_is_no_client_any_more_it_is_let_go() {
    let mut node = Node::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let raw = node.scout.program(500, &uid(1), &[1]);
    node.look_until_adopted();
    until("it is stopped", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        !node.group(1).0
    });
    node.agent.set(&[pod(&uid(2))]);
    quiet(&node.world);
    assert_eq!(node.group(1), (true, 2048));
    node.scout.shut(500, Why::NoGroups);
    raw.closes();
}

#[test]
fn groups_that_come_and_go_are_followed() {
    let node = Node::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _raw = node.scout.program(500, &uid(1), &[1]);
    node.look_until_adopted();
    node.scout.regroup(500, &[1, 11]);
    node.scout.take_reached();
    until("it was looked into", || {
        node.look();
        !node.scout.take_reached().is_empty()
    });
    until("the new one is stopped too", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        !node.group(1).0 && !node.group(11).0
    });
    node.scout.regroup(500, &[11]);
    until("the old one is let go", || {
        node.look();
        node.group(1) == (true, 2048)
    });
}

#[test]
fn a_child_that_has_inherited_its_parents_file_is_not_taken_for_another() {
    let node = Node::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _parent = node.scout.program(500, &uid(1), &[1]);
    let _child = node.scout.program(501, &uid(1), &[1]);
    node.look_until_adopted();
    assert_eq!(node.adopted(1), 1.0);
    // The one that was taken for the owner ends; the other one lives, and is found when it is looked into the next time.
    node.scout.die(500);
    until("the other one is adopted", || {
        node.look();
        node.adopted(1) == 1.0
    });
    let turns = node.enabled_ms([1, 2]);
    assert!(turns.iter().all(|ms| (4500..=5500).contains(ms)), "{turns:?}");
}

#[test]
fn what_cannot_be_reached_or_controlled_is_counted_by_why() {
    let mut node = Node::with(&[pod(&uid(1)), pod(&uid(2)), pod(&uid(3))]);
    node.scout.unreachable(500, &uid(1), Why::NotPermitted);
    let _raw = node.scout.program(501, &uid(2), &[2]);
    let _many = node.scout.program(502, &uid(3), &(100..200).collect::<Vec<_>>());
    node.world.driver.fail(2, Some(failure()));
    let expected = [(1, "not_permitted"), (2, "control_failed"), (3, "too_many")];
    until("all of them are counted", || {
        node.look();
        expected.iter().all(|(n, why)| node.unsteered(*n, why) == 1.0)
    });
    assert_eq!([1, 2, 3].map(|n| node.adopted(n)), [0.0; 3]);
    assert_eq!(node.agent.usage(&uid(1)).unwrap().unsteered_processes["not_permitted"], 1);
    node.scout.die(500);
    node.look();
    assert_eq!(node.unsteered(1, "not_permitted"), 0.0);
}

#[test]
fn a_manager_that_was_started_again_finds_it_again() {
    let mut node = Node::new();
    let _raw = node.scout.program(500, &uid(1), &[1]);
    let (_hook, _descriptor) = node.hooked(2, 2);
    node.look_until_adopted();
    node.world.stop();
    assert_eq!(node.group(1), (true, 2048));
    node.world.scout = Some(node.scout.clone());
    node.world.start();
    node.agent = Agent::connect(&node.world);
    node.agent.set(&[pod(&uid(1)), pod(&uid(2))]);
    node.look_until_adopted();
    assert_eq!(node.adopted(1), 1.0);
}

/// A pod could otherwise get rid of all turns by one process that cannot be controlled.
#[test]
fn a_process_that_cannot_be_controlled_does_not_free_the_others_of_its_pod() {
    let node = Node::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _bad = node.scout.program(500, &uid(1), &[1]);
    let _good = node.scout.program(501, &uid(1), &[11]);
    node.world.driver.fail(1, Some(failure()));
    until("one is adopted, the other one not", || {
        node.look();
        (node.adopted(1), node.unsteered(1, "control_failed")) == (1.0, 1.0)
    });
    let turns = node.enabled_ms([11, 2]);
    assert!(turns.iter().all(|ms| (4500..=5500).contains(ms)), "{turns:?}");
    node.look_until_adopted();
    assert_eq!((node.adopted(1), node.unsteered(1, "control_failed")), (1.0, 1.0));
}

#[test]
fn a_look_that_fails_changes_nothing() {
    let node = Node::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _raw = node.scout.program(500, &uid(1), &[1]);
    node.scout.unreachable(501, &uid(1), Why::NotPermitted);
    until("they are known", || {
        node.look();
        (node.adopted(1), node.unsteered(1, "not_permitted")) == (1.0, 1.0)
    });
    node.scout.blind(true);
    node.look_until_adopted();
    assert_eq!((node.adopted(1), node.unsteered(1, "not_permitted")), (1.0, 1.0));
    node.scout.blind(false);
    node.look();
    assert_eq!((node.adopted(1), node.unsteered(1, "not_permitted")), (1.0, 1.0));
}

/// Nor by one that has the hook and of which a control fails.
#[test]
fn a_program_is_taken_again_at_once_when_a_hooked_one_of_its_pod_cannot_be_controlled() {
    let node = Node::new();
    let (bad, _bad) = node.hooked(1, 1);
    let (_other, _descriptor) = node.hooked(2, 2);
    let _raw = node.scout.program(500, &uid(1), &[11]);
    // By then it is looked into every 8 s only.
    (0..10).for_each(|_| node.look());
    assert_eq!(node.adopted(1), 1.0);
    node.world.driver.fail(1, Some(failure()));
    until("a control has failed", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        bad.page().deadline_ns() != STANDING
    });
    node.world.driver.fail(1, None);
    node.look();
    assert_eq!(node.adopted(1), 1.0);
    let (next, _next) = node.hooked(1, 3);
    assert_ne!(next.page().deadline_ns(), STANDING, "who has the hook is not pardoned for that");
    let turns = node.enabled_ms([11, 2]);
    assert!(turns[0] < 6000 && turns[1] > 4000, "{turns:?}");
}

/// The announcement is put off, and the groups are found at the child meanwhile.
#[test]
fn what_a_hooked_parent_announces_later_is_taken_from_the_child_that_has_inherited_it() {
    let node = Node::new();
    let (mut hook, descriptor) = node.hooked(1, 1);
    let mut announce = |groups: std::ops::Range<u32>| {
        let contexts: Vec<_> = groups.map(context).collect();
        hook.token.announce(&contexts, &[descriptor.sent.as_fd()]);
        quiet(&node.world);
    };
    announce(100..160);
    announce(200..250);
    let _child = node.scout.program(500, &uid(1), &[200]);
    until("the child is adopted", || {
        node.world.advance(100 * MS);
        quiet(&node.world);
        node.adopted(1) == 1.0
    });
    assert_ne!(hook.page().deadline_ns(), STANDING, "it is put off");
    until("the parent is steered", || {
        node.world.advance(100 * MS);
        quiet(&node.world);
        hook.page().deadline_ns() == STANDING
    });
    assert_eq!(node.adopted(1), 0.0);
}

#[test]
fn what_is_found_by_searching_on_is_adopted_without_waiting_for_the_next_time() {
    let node = Node::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    node.scout.unreachable(500, &uid(1), Why::NoGroups);
    // By then it is looked into every 8 s only.
    (0..20).for_each(|_| node.look());
    node.scout.take_reached();
    until("it was looked into a moment ago", || {
        node.look();
        !node.scout.take_reached().is_empty()
    });
    assert_eq!(node.unsteered(1, "no_groups"), 1.0);
    let _descriptor = node.scout.find(500, &[1]);
    node.look();
    assert_eq!((node.adopted(1), node.unsteered(1, "no_groups")), (1.0, 0.0));
}

#[test]
fn a_pod_whose_programs_take_long_to_look_into_does_not_hide_those_of_others_nor_its_own_for_ever() {
    let node = Node::with(&[pod(&uid(1)), pod(&uid(2)), pod(&uid(3))]);
    let (_hook, _descriptor) = node.hooked(2, 2);
    for pid in 500..520 {
        node.scout.unreachable(pid, &uid(1), Why::NoGroups);
        node.scout.costs(pid, 1 << 18);
    }
    let _own = node.scout.program(530, &uid(1), &[1]);
    let _others = node.scout.program(600, &uid(3), &[3]);
    node.look_until_adopted();
    assert_eq!((node.adopted(3), node.adopted(1)), (1.0, 0.0));
    let looks = node.scout.looks();
    until("its own is adopted", || {
        node.look();
        node.adopted(1) == 1.0
    });
    assert!(node.scout.looks() - looks < 80, "{} looks", node.scout.looks() - looks);
}

/// It has been told the handles, or sends a file of its own for them.
#[test]
fn what_a_hooked_process_announces_that_is_not_its_own_frees_nobody() {
    let node = Node::new();
    let (_other, _descriptor) = node.hooked(2, 2);
    let _raw = node.scout.program(500, &uid(1), &[1]);
    node.look_until_adopted();
    assert_eq!(node.adopted(1), 1.0);
    let refused = || node.world.metric("sluice_announcements_refused_total").unwrap();
    for (before, doubt) in [(0.0, Ok(false)), (1.0, Err(Why::NotPermitted)), (2.0, Err(Why::Driver))] {
        let liar = node.world.peers.process_of(&uid(1));
        node.scout.doubt(liar.pid, doubt);
        assert_eq!(refused(), before);
        let (liar, _sent) = node.announcer(liar, 1);
        assert_eq!((refused(), node.adopted(1)), (before + 1.0, 1.0), "{doubt:?}");
        assert_ne!(liar.page().deadline_ns(), STANDING);
        drop(liar);
        quiet(&node.world);
        assert_eq!(node.adopted(1), 1.0);
    }
    let turns = node.enabled_ms([1, 2]);
    assert!(turns.iter().all(|ms| (4500..=5500).contains(ms)), "{turns:?}");
    // What is nobody's is believed of who cannot be looked into.
    let hidden = node.world.peers.process_of(&uid(1));
    node.scout.doubt(hidden.pid, Err(Why::NotPermitted));
    let (hidden, _sent) = node.announcer(hidden, 11);
    assert_eq!((refused(), hidden.page().deadline_ns()), (3.0, STANDING));
}

/// What makes the locks of a test: writes down what it was told, and how it ended.
fn keeper(folder: &Path) -> (PathBuf, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let (program, log) = (folder.join("keeper"), folder.join("keeper.log"));
    let to = log.display();
    let read = format!("while read line; do echo \"$line\" >> {to}; echo ok; done");
    let script = format!("#!/bin/sh\necho \"$@\" >> {to}\n{read}\necho end >> {to}\n");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (program, log)
}

#[test]
fn who_cannot_be_looked_through_is_held_by_the_drivers_lock() {
    let folder = tempfile::tempdir().unwrap();
    let (program, log) = keeper(folder.path());
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let mut node = Node::with_locks(&[pod(&uid(1)), pod(&uid(2))], Some(program));
    let (_hook, _descriptor) = node.hooked(2, 2);
    node.scout.unreachable(500, &uid(1), Why::TooMany);
    node.scout.unreachable(501, &uid(1), Why::NoGroups);
    until("it is held", || {
        node.look();
        said().contains("lock 500 1000")
    });
    let unsteered = ["too_many", "no_groups"].map(|why| node.unsteered(1, why));
    assert_eq!((node.adopted(1), unsteered), (1.0, [0.0, 1.0]));
    until("it has its turns", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        let words = said();
        words.matches("\nunlock 500").count() > 3 && words.matches("\nlock 500").count() > 3
    });
    let [_, hooked] = node.enabled_ms([1, 2]);
    assert!((4500..=5500).contains(&hooked), "{hooked} ms");
    node.world.stop();
    until("whoever makes the locks is told to end", || said().ends_with("end\n"));
    let words = said();
    assert!(words.starts_with("hold --locks\n") && !words.contains("501"), "{words}");
    node.world.start();
}
