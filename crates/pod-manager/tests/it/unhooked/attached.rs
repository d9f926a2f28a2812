//! Attached processes are inspected too: their groups, their grant pages, and whether disabled groups stand.

use super::harness::Harness;
use crate::support::agent::{pod, uid};
use crate::support::driver::context;
use crate::support::group_processes::quiet;
use crate::support::hook::Hook;
use crate::support::until;
use sluice_comm::page::UNLIMITED;
use sluice_pod_manager::unhooked::scanning::ObstacleKind;
use sluice_proto::control::{Class, Client};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::Duration;

#[test]
fn groups_that_an_attached_process_has_not_announced_are_a_violation_and_share_its_quanta() {
    let node = Harness::new();
    let (hook, _descriptor) = node.hooked(1, 1);
    let (_other, _its) = node.hooked(2, 2);
    let _same = node.discovery.add_process(hook.process.pid, &uid(1), &[1]);
    node.pass(5000);
    assert_eq!(node.violations(1, "unannounced_groups"), 0.0, "it has announced its only group");
    // Its hook is idle; a second driver library works.
    hook.becomes(false, node.world.clock.now());
    node.discovery.set_groups(hook.process.pid, &[1, 11]);
    until("the violation is counted", || {
        node.pass(100);
        node.violations(1, "unannounced_groups") == 1.0
    });
    let mut both_disabled = BTreeSet::new();
    until("both groups are disabled and enabled together", || {
        node.pass(10);
        let (one, other) = (node.group(1).0, node.group(11).0);
        if one == other {
            both_disabled.insert(one);
        }
        both_disabled.len() == 2
    });
    let enabled = node.enabled_ms([11, 2]);
    assert!(enabled.iter().all(|ms| (4000..=6000).contains(ms)), "{enabled:?}");
    assert_eq!(node.violations(1, "unannounced_groups"), 1.0, "one process is one violation");
    assert_eq!(node.violations(2, "unannounced_groups"), 0.0);
}

#[test]
fn group_that_is_announced_soon_after_it_was_found_is_no_violation() {
    let node = Harness::new();
    let (mut hook, descriptor) = node.hooked(1, 1);
    let _same = node.discovery.add_process(hook.process.pid, &uid(1), &[1, 11]);
    until("both groups are found", || {
        node.pass(10);
        node.discovery.take_inspected().contains(&hook.process.pid)
    });
    let contexts = [1, 11].map(context);
    hook.token.announce(&contexts, &[descriptor.sent.as_fd()]);
    node.wait_for_ownership_checks();
    node.pass(5000);
    assert_eq!(node.violations(1, "unannounced_groups"), 0.0);
}

/// Each inspection takes locks of the driver, and the processes' own start takes them as well.
#[test]
fn ten_processes_that_start_at_once_are_inspected_one_after_the_other() {
    let node = Harness::new();
    let processes: Vec<_> = (1..=10).map(|group| node.hooked(1, group)).collect();
    let _same: Vec<_> = processes
        .iter()
        .zip(1..)
        .map(|((hook, _), group)| node.discovery.add_process(hook.process.pid, &uid(1), &[group]))
        .collect();
    let (mut most, mut all) = (0, 0);
    for _ in 0..100 {
        node.pass(100);
        let inspected = node.discovery.take_inspected().len();
        (most, all) = (most.max(inspected), all + inspected);
    }
    assert!(most <= 10 && all <= 80, "{most} inspections in a search, {all} in 10 s");
    let between = node.discovery.between_inspections().unwrap();
    assert!(between >= Duration::from_millis(10), "{between:?}");
    assert_eq!(node.violations(1, "unannounced_groups"), 0.0);
}

/// For example a context of another API beside CUDA on several GPUs, or more contexts than an announcement takes.
#[test]
fn groups_that_the_hook_reports_as_unannounced_share_its_quanta_without_a_violation() {
    let node = Harness::new();
    let (mut hook, _descriptor) = node.hooked(1, 1);
    let (_other, _its) = node.hooked(2, 2);
    let _same = node.discovery.add_process(hook.process.pid, &uid(1), &[1, 11]);
    hook.report().report_unannounced(1);
    hook.token.announce(&[], &[]);
    until("the process is scheduled from outside", || {
        node.pass(100);
        node.unhooked(1) == 1.0
    });
    let enabled = node.enabled_ms([11, 2]);
    assert!(enabled.iter().all(|ms| (4000..=6000).contains(ms)), "{enabled:?}");
    assert_eq!(node.violations(1, "unannounced_groups"), 0.0);
}

#[test]
fn process_whose_announcement_becomes_complete_is_scheduled_by_its_page_again() {
    let node = Harness::new();
    let (mut hook, descriptor) = node.hooked(1, 1);
    let _same = node.discovery.add_process(hook.process.pid, &uid(1), &[1, 11]);
    hook.report().report_unannounced(1);
    until("the process is scheduled from outside", || {
        node.pass(100);
        node.unhooked(1) == 1.0
    });
    hook.token.announce(&[1, 11].map(context), &[descriptor.sent.as_fd()]);
    node.pass(3000);
    assert_eq!(node.unhooked(1), 1.0, "the hook still reports other groups");
    hook.report().report_announced(1);
    until("its page counts again", || {
        node.pass(100);
        node.unhooked(1) == 0.0
    });
    assert_eq!(hook.page().deadline_ns(), UNLIMITED, "its groups stay under control");
    assert_eq!(node.violations(1, "unannounced_groups"), 0.0);
}

/// The program closes all descriptors, for example. The hook sees that its connection has ended, at once or when it next checks it.
#[test]
fn groups_that_the_hook_enables_after_its_connection_are_set_anew_without_a_violation() {
    for hook_acts_after_ms in [0, 520] {
        let critical = Client { class: Class::LatencyCritical.into(), ..pod(&uid(3)) };
        let node = Harness::with(&[pod(&uid(1)), pod(&uid(2)), critical]);
        let (lc, _its) = node.hooked(3, 3);
        lc.becomes(false, node.world.clock.now());
        let (hook, _descriptor) = node.hooked(1, 1);
        let (_other, _its) = node.hooked(2, 2);
        let _same = node.discovery.add_process(hook.process.pid, &uid(1), &[1, 11]);
        hook.report().report_unannounced(1);
        until("the process is scheduled from outside", || {
            node.pass(100);
            node.unhooked(1) == 1.0
        });
        [1, 11].iter().for_each(|group| node.world.driver.work(*group));
        let both = || [1, 11].map(|group| node.group(group));
        let are_disabled = || both() == [(false, 1); 2];
        until("its groups are disabled", || {
            node.pass(10);
            are_disabled()
        });
        let Hook { token, memory: _memory, .. } = hook;
        drop(token);
        quiet(&node.world);
        node.pass(hook_acts_after_ms);
        // Checks keep this distance by the real clock: the next one reads what the hook has set.
        std::thread::sleep(Duration::from_millis(260));
        [1, 11].iter().for_each(|group| node.world.driver.set_group(*group, (true, 2048)));
        node.pass(520);
        assert_eq!(
            both().map(|(_, slice_us)| slice_us),
            [1; 2],
            "the hook acts after {hook_acts_after_ms} ms"
        );
        assert!(both().iter().filter(|(enabled, _)| *enabled).count() <= 1);
        until("they are disabled again", || {
            node.pass(10);
            are_disabled()
        });
        node.pass(2000);
        for kind in ["stopped_group_ran", "time_slice"] {
            assert_eq!(node.violations(1, kind), 0.0, "{kind}");
        }
    }
}

/// Otherwise a process could have other groups for a moment again and again.
#[test]
fn process_that_repeats_a_violation_is_scheduled_from_outside_for_longer_each_time() {
    let node = Harness::new();
    let (hook, _descriptor) = node.hooked(1, 1);
    let _same = node.discovery.add_process(hook.process.pid, &uid(1), &[1]);
    let mut waited = Vec::new();
    for count in 1..=7 {
        node.discovery.set_groups(hook.process.pid, &[1, 11]);
        until("the violation is counted", || {
            node.pass(100);
            node.violations(1, "unannounced_groups") == f64::from(count)
        });
        node.discovery.set_groups(hook.process.pid, &[1]);
        let begun = node.world.clock.now();
        until("it is trusted again", || {
            node.pass(100);
            node.unhooked(1) == 0.0
        });
        waited.push(node.world.clock.now() - begun);
    }
    assert!(waited[6] > 8 * waited[0], "{waited:?}");
}

#[test]
fn groups_of_a_refused_announcement_count_as_unannounced() {
    let node = Harness::new();
    let process = node.world.peers.process_of(&uid(1));
    node.discovery.set_ownership(process.pid, Ok(false));
    let _same = node.discovery.add_process(process.pid, &uid(1), &[1]);
    let (_hook, _descriptor) = node.announce(process, 1);
    until("the violation is counted", || {
        node.pass(100);
        node.violations(1, "unannounced_groups") == 1.0
    });
    until("it is scheduled from outside", || {
        node.pass(100);
        node.unhooked(1) == 1.0
    });
}

#[test]
fn second_driver_library_is_a_violation_within_a_second() {
    let node = Harness::new();
    let (hook, _descriptor) = node.hooked(1, 1);
    let _same = node.discovery.add_process(hook.process.pid, &uid(1), &[1]);
    node.pass(5000);
    // It opens the driver, and its groups are there some time later.
    node.discovery.open_descriptor(hook.process.pid);
    node.pass(500);
    node.discovery.set_groups(hook.process.pid, &[1, 11]);
    node.pass(1000);
    assert_eq!(node.violations(1, "unannounced_groups"), 1.0);
}

#[test]
fn attached_process_with_too_many_descriptors_is_a_violation() {
    let node = Harness::new();
    let (hook, _descriptor) = node.hooked(1, 1);
    node.discovery.add_uncontrollable(hook.process.pid, &uid(1), ObstacleKind::TooMany);
    until("the violation is counted", || {
        node.pass(100);
        node.violations(1, "too_many_descriptors") == 1.0
    });
}

#[test]
fn process_without_the_hook_with_too_many_descriptors_is_one_violation() {
    let node = Harness::new();
    node.discovery.add_uncontrollable(500, &uid(1), ObstacleKind::TooMany);
    until("the violation is counted", || {
        node.pass(100);
        node.violations(1, "too_many_descriptors") == 1.0
    });
    node.pass(20_000);
    assert_eq!(node.violations(1, "too_many_descriptors"), 1.0, "one process is one violation");
    assert_eq!(node.uncontrolled(1, "too_many"), 1.0);
}

#[test]
fn another_page_in_place_of_the_grant_page_is_a_violation() {
    let node = Harness::new();
    let (hook, _descriptor) = node.hooked(1, 1);
    hook.report().set_grant_address(0x7000_0000);
    node.pass(3000);
    assert_eq!(node.violations(1, "grant_page"), 0.0);
    node.discovery.replace_page(hook.process.pid);
    until("the violation is counted", || {
        node.pass(100);
        node.violations(1, "grant_page") == 1.0
    });
}

#[test]
fn disabled_group_that_runs_and_a_changed_time_slice_are_violations() {
    let node = Harness::new();
    let (_first, _its) = node.hooked(1, 1);
    let (_second, _of_second) = node.hooked(2, 2);
    node.pass(3000);
    for kind in ["stopped_group_ran", "time_slice"] {
        assert_eq!((node.violations(1, kind), node.violations(2, kind)), (0.0, 0.0), "{kind}");
    }
    node.world.driver.run_while_disabled(1);
    until("the violation is counted", || {
        node.pass(100);
        node.violations(1, "stopped_group_ran") >= 1.0
    });
    assert_eq!(node.violations(2, "stopped_group_ran"), 0.0);
}

/// Attaches a process with this many groups from this one on, which the search finds too.
fn with_groups(node: &Harness, n: usize, first: u32, count: u32) -> impl Sized + use<> {
    let groups: Vec<u32> = (first..first + count).collect();
    let contexts: Vec<_> = groups.iter().map(|group| context(*group)).collect();
    let process = node.world.peers.process_of(&uid(n));
    let (hook, descriptor) = node.announce_all(&process, &contexts);
    let found = node.discovery.add_process(process.pid, &uid(n), &groups);
    (hook, descriptor, found)
}

#[test]
fn announcement_for_which_the_manager_has_no_room_is_no_violation() {
    let pods: Vec<_> = (1..=17).map(|n| Client { quota_ppm: 50_000, ..pod(&uid(n)) }).collect();
    let node = Harness::with(&pods);
    let full: Vec<_> = (1..=16).zip(1..).map(|(n, first)| with_groups(&node, n, 1000 * first, 64)).collect();
    node.wait_for_ownership_checks();
    let _last = with_groups(&node, 17, 1, 1);
    node.pass(5000);
    assert!(node.world.metric("sluice_announcements_refused_total").unwrap() >= 1.0);
    assert_eq!(node.violations(17, "unannounced_groups"), 0.0);
    drop(full);
}

#[test]
fn announcement_beyond_the_groups_of_a_client_is_a_violation() {
    let node = Harness::new();
    let _first = with_groups(&node, 1, 1000, 40);
    node.wait_for_ownership_checks();
    let _second = with_groups(&node, 1, 2000, 25);
    until("the violation is counted", || {
        node.pass(100);
        node.violations(1, "unannounced_groups") == 1.0
    });
}
