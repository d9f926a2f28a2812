//! Scans: what they find, what they cost, and the effect of a failed scan.

use super::harness::Harness;
use crate::support::agent::{Agent, pod, uid};
use crate::support::group_processes::quiet;
use crate::support::{MS, until};
use sluice_pod_manager::unhooked::scanning::ObstacleKind;
use sluice_proto::control::{Class, Client};

#[test]
fn groups_made_and_freed_later_are_followed() {
    let node = Harness::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _raw = node.discovery.add_process(500, &uid(1), &[1]);
    node.scan_until_scheduled();
    node.discovery.set_groups(500, &[1, 11]);
    node.discovery.take_inspected();
    until("the process is inspected", || {
        node.scan();
        !node.discovery.take_inspected().is_empty()
    });
    until("the new group is disabled too", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        !node.group(1).0 && !node.group(11).0
    });
    node.discovery.set_groups(500, &[11]);
    until("the freed group is released", || {
        node.scan();
        node.group(1) == (true, 2048)
    });
}

#[test]
fn restarted_manager_finds_the_process_again() {
    let mut node = Harness::new();
    let _raw = node.discovery.add_process(500, &uid(1), &[1]);
    let (_hook, _descriptor) = node.hooked(2, 2);
    node.scan_until_scheduled();
    node.world.stop();
    assert_eq!(node.group(1), (true, 2048));
    node.world.discovery = Some(node.discovery.clone());
    node.world.start();
    node.agent = Agent::connect(&node.world);
    node.agent.set(&[pod(&uid(1)), pod(&uid(2))]);
    node.scan_until_scheduled();
    assert_eq!(node.unhooked(1), 1.0);
}

#[test]
fn failed_scan_changes_nothing() {
    let node = Harness::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _raw = node.discovery.add_process(500, &uid(1), &[1]);
    node.discovery.add_uncontrollable(501, &uid(1), ObstacleKind::NotPermitted);
    until("both processes are known", || {
        node.scan();
        (node.unhooked(1), node.uncontrolled(1, "not_permitted")) == (1.0, 1.0)
    });
    node.discovery.set_failing(true);
    node.scan_until_scheduled();
    assert_eq!((node.unhooked(1), node.uncontrolled(1, "not_permitted")), (1.0, 1.0));
    node.discovery.set_failing(false);
    node.scan();
    assert_eq!((node.unhooked(1), node.uncontrolled(1, "not_permitted")), (1.0, 1.0));
}

#[test]
fn process_found_by_the_continued_search_is_inspected_in_the_same_scan() {
    let node = Harness::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    node.discovery.add_uncontrollable(500, &uid(1), ObstacleKind::NoGroups);
    // After these scans the process is inspected every 8 s.
    (0..20).for_each(|_| node.scan());
    node.discovery.take_inspected();
    until("an inspection", || {
        node.scan();
        !node.discovery.take_inspected().is_empty()
    });
    assert_eq!(node.uncontrolled(1, "no_groups"), 1.0);
    let _descriptor = node.discovery.find_groups(500, &[1]);
    node.scan();
    assert_eq!((node.unhooked(1), node.uncontrolled(1, "no_groups")), (1.0, 0.0));
}

#[test]
fn pod_with_expensive_inspections_delays_only_its_own_processes_and_only_for_a_time() {
    let node = Harness::with(&[pod(&uid(1)), pod(&uid(2)), pod(&uid(3))]);
    let (_hook, _descriptor) = node.hooked(2, 2);
    for pid in 500..520 {
        node.discovery.add_uncontrollable(pid, &uid(1), ObstacleKind::NoGroups);
        node.discovery.set_queries(pid, 1 << 18);
    }
    let _own = node.discovery.add_process(530, &uid(1), &[1]);
    let _others = node.discovery.add_process(600, &uid(3), &[3]);
    node.scan_until_scheduled();
    assert_eq!((node.unhooked(3), node.unhooked(1)), (1.0, 0.0));
    let scans = node.discovery.scans();
    until("the process of the expensive pod is scheduled", || {
        node.scan();
        node.unhooked(1) == 1.0
    });
    assert!(node.discovery.scans() - scans < 80, "{} scans", node.discovery.scans() - scans);
}

#[test]
fn search_waits_until_a_latency_critical_process_is_idle_but_50_ms_at_most() {
    let critical = Client { class: Class::LatencyCritical.into(), ..pod(&uid(1)) };
    let node = Harness::with(&[critical, pod(&uid(2))]);
    let (hook, _descriptor) = node.hooked(1, 1);
    let ms_until_search = |busy_ms: u64| {
        let searches = node.discovery.searches();
        until("a search", || {
            node.world.clock.advance(MS);
            quiet(&node.world);
            node.discovery.searches() > searches
        });
        let begun = node.world.clock.now();
        hook.becomes(true, begun);
        let searches = node.discovery.searches();
        until("the next search", || {
            node.world.clock.advance(MS);
            if node.world.clock.now() == begun + busy_ms * MS {
                hook.becomes(false, node.world.clock.now());
            }
            quiet(&node.world);
            node.discovery.searches() > searches
        });
        (node.world.clock.now() - begun) / MS
    };
    let after = ms_until_search(10);
    assert!((245..=260).contains(&after), "{after} ms");
    let after = ms_until_search(280);
    assert!((280..=283).contains(&after), "{after} ms");
    let after = ms_until_search(1000);
    assert!((295..=310).contains(&after), "{after} ms");
}
